import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.pulsar.client.api.v5.MessageBuilder;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Pulsar's library for scalable topics, with transactions that stay open between two requests; it answers as {@link JsonLines}
 * says.
 *
 * <p>Every request has {@code op}, {@code service}, {@code topic} and {@code transaction}, which is empty for none.
 */
public final class SegmentTransactions {
    private static final Duration TIMEOUT = Duration.ofMinutes(10);

    private final Map<String, Transaction> transactions = new HashMap<>();
    private PulsarClient client;
    private Producer<byte[]> producer;

    private SegmentTransactions() {
    }

    public static void main(String[] args) throws Exception {
        JsonLines.serve(new SegmentTransactions()::perform);
    }

    private Object perform(JsonNode request) throws Exception {
        String name = request.get("transaction").asText();
        switch (request.get("op").asText()) {
            case "send" -> send(request, name);
            case "commit" -> transactions.remove(name).commit();
            case "abort" -> transactions.remove(name).abort();
            default -> throw new IllegalArgumentException(request.get("op").asText());
        }
        return true;
    }

    /** Sends a message; its transaction begins with the first one. */
    private void send(JsonNode request, String name) throws Exception {
        if (client == null) {
            client = PulsarClient.builder()
                    .serviceUrl(request.get("service").asText())
                    .transactionPolicy(TransactionPolicy.builder().timeout(TIMEOUT).build())
                    .build();
            producer = client.newProducer(Schema.bytes()).topic(request.get("topic").asText()).create();
        }
        MessageBuilder<byte[]> message = producer.newMessage()
                .key("key")
                .value(request.get("payload").asText().getBytes(StandardCharsets.UTF_8));
        if (!name.isEmpty()) {
            if (!transactions.containsKey(name)) {
                transactions.put(name, client.newTransaction());
            }
            message.transaction(transactions.get(name));
        }
        message.send();
    }
}
