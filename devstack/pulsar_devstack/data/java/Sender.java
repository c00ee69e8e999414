import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** A producer, which sends without waiting for acknowledgements. */
final class Sender {
    private static final Set<String> CLOSED = Set.of("AlreadyClosedException", "TopicTerminatedException");

    final String name;
    private final int keys;
    private final double interval;
    private final Send send;
    private final Map<Integer, Object[]> open = new TreeMap<>();
    private List<Object[]> ended = new ArrayList<>();
    private List<Object[]> errors = new ArrayList<>();
    private volatile boolean closed;
    private boolean paused;
    private int count;

    Sender(JsonNode plan, Send send) {
        this.name = plan.get("name").asText();
        this.keys = plan.get("keys").asInt();
        this.interval = plan.get("interval").asDouble();
        this.send = send;
    }

    void start(ScheduledExecutorService clock) {
        long pause = Math.round(interval * 1e6);
        clock.scheduleAtFixedRate(this::step, pause, pause, TimeUnit.MICROSECONDS);
    }

    /** Be silent, or go on. */
    synchronized void pause(boolean now) {
        paused = now;
    }

    private void step() {
        int mine;
        String key;
        long number;
        synchronized (this) {
            if (closed || paused) {
                return;
            }
            mine = count++;
            key = name + "/" + mine % keys;
            number = mine / keys;
            open.put(mine, new Object[] {key, number, Clients.now(), null});
        }
        send.send(key, number).whenComplete((id, error) -> end(mine, error));
    }

    private synchronized void end(int mine, Throwable error) {
        Object[] one = open.remove(mine);
        if (error == null) {
            one[3] = Clients.now();
        } else {
            errors.add(new Object[] {Clients.now(), Clients.reason(error)});
            closed |= CLOSED.contains(Clients.reason(error));
        }
        ended.add(one);
    }

    /** Messages that were neither acknowledged nor refused. */
    synchronized int open() {
        return open.size();
    }

    /** What it did since this was last asked for. */
    synchronized Map<String, Object> collect() {
        List<Object[]> gone = ended;
        List<Object[]> failed = errors;
        ended = new ArrayList<>();
        errors = new ArrayList<>();
        return Map.of("sent", gone, "open", new ArrayList<>(open.values()), "errors", failed);
    }

    /** Hands one message to a producer. */
    interface Send {
        CompletableFuture<?> send(String key, long number);
    }
}
