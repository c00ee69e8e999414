import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;

/**
 * Answers a program: one request in JSON on each line of standard input, one answer in JSON on standard output.
 *
 * <p>Every request has {@code op}. An answer has {@code result}, or {@code error} with the exception's class and {@code message}.
 */
final class JsonLines {
    private static final ObjectMapper JSON = new ObjectMapper();

    private JsonLines() {
    }

    /** What one request asks for. */
    interface Operation {
        Object perform(JsonNode request) throws Exception;
    }

    /** Answers until standard input ends, and ends the program then; what it holds stays open, as in a crash. */
    static void serve(Operation operation) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(operation, JSON.readTree(line))));
        }
        System.exit(0);
    }

    private static ObjectNode answer(Operation operation, JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("result", JSON.valueToTree(operation.perform(request)));
        } catch (Exception e) {
            Throwable cause = e instanceof ExecutionException && e.getCause() != null ? e.getCause() : e;
            answer.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }
}
