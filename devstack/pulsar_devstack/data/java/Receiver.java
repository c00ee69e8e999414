import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;

/** A consumer, which acknowledges all that it receives. */
final class Receiver implements Runnable {
    final String name;
    private final Inbox inbox;
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean leaving;
    private boolean connected = true;
    private int corrupt;
    private List<Object[]> received = new ArrayList<>();
    private List<Double> breaks = new ArrayList<>();
    private List<Object[]> errors = new ArrayList<>();

    Receiver(JsonNode plan, Inbox inbox) {
        this.name = plan.get("name").asText();
        this.inbox = inbox;
    }

    @Override
    public void run() {
        while (!leaving) {
            try {
                Arrival arrival = inbox.next();
                if (arrival != null) {
                    note(arrival);
                    acknowledge(arrival);
                }
            } catch (Exception e) {
                failed(e);
                pause();
            }
            look();
        }
        ended.countDown();
    }

    /** Ends the consumer: what it has received is acknowledged, and nothing else is. */
    void leave() throws Exception {
        leaving = true;
        ended.await();
        inbox.close();
        synchronized (this) {
            breaks.add(Clients.now());
        }
    }

    private void acknowledge(Arrival arrival) {
        inbox.acknowledge(arrival).whenComplete((nothing, error) -> {
            if (error != null) {
                failed(error);
            }
        });
    }

    private synchronized void note(Arrival one) {
        received.add(new Object[] {one.key(), Long.parseLong(one.number()), Clients.now(), one.place()});
        corrupt += one.body().equals(one.key() + ":" + one.number()) ? 0 : 1;
    }

    private synchronized void look() {
        boolean now = inbox.isConnected();
        if (connected && !now) {
            breaks.add(Clients.now());
        }
        connected = now;
    }

    private synchronized void failed(Throwable error) {
        errors.add(new Object[] {Clients.now(), Clients.reason(error)});
    }

    private static void pause() {
        try {
            Thread.sleep(Clients.RETRY_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** What it did since this was last asked for. */
    synchronized Map<String, Object> collect() {
        Map<String, Object> noted =
                Map.of("received", received, "breaks", breaks, "errors", errors, "corrupt", corrupt);
        received = new ArrayList<>();
        breaks = new ArrayList<>();
        errors = new ArrayList<>();
        corrupt = 0;
        return noted;
    }

    /** Where the messages of a consumer come from. */
    interface Inbox {
        /** The next message; null where none comes for a while. */
        Arrival next() throws Exception;

        CompletableFuture<Void> acknowledge(Arrival arrival);

        boolean isConnected();

        void close() throws Exception;
    }

    /** A message: where it lies, its body as text, and what its consumer acknowledges. */
    record Arrival(String key, String number, String place, String body, Object id) {
    }
}
