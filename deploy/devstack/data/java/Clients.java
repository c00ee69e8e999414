import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Producers and consumers that note what they do; a program with them answers as {@link JsonLines} says.
 *
 * <p>{@code subscribe} and {@code open_producers} take plans, {@code start} and {@code stop_sending} what they say, and {@code collect} gives
 * what was noted since it was last asked for. {@code attach} opens the consumers that it can, and says why it cannot open the others;
 * {@code leave} ends consumers by name, {@code pause} and {@code resume} silence producers. Times are seconds since the epoch.
 */
abstract class Clients {
    static final String NUMBER = "number";
    static final int OPERATION_SECONDS = 30;
    static final int RECEIVE_MS = 100;
    private static final long RETRY_MS = 200;
    private static final Set<String> CLOSED = Set.of("AlreadyClosedException", "TopicTerminatedException");

    private final List<Sender> senders = new ArrayList<>();
    private final List<Receiver> receivers = new CopyOnWriteArrayList<>();
    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
    private volatile boolean sending = true;

    /** Opens the consumer of a plan. */
    abstract CompletableFuture<Inbox> subscribe(JsonNode request, JsonNode plan) throws Exception;

    /** Opens the producer of a plan. */
    abstract Send produce(JsonNode request, JsonNode plan) throws Exception;

    /** Hands one message to a producer. */
    interface Send {
        CompletableFuture<?> send(String key, long number);
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

    Object perform(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "subscribe" -> {
                for (CompletableFuture<?> one : opened(request).values()) {
                    one.get(OPERATION_SECONDS, TimeUnit.SECONDS);
                }
            }
            case "attach" -> {
                return attach(request);
            }
            case "leave" -> {
                for (Receiver one : receivers) {
                    if (named(request, one.name)) {
                        one.leave();
                    }
                }
            }
            case "open_producers" -> {
                for (JsonNode plan : request.get("plans")) {
                    senders.add(new Sender(plan, produce(request, plan)));
                }
            }
            case "start" -> senders.forEach(Sender::start);
            case "pause" -> {
                return pause(request);
            }
            case "resume" -> named(request).forEach(one -> one.pause(false));
            case "stop_sending" -> {
                return stopSending(request.get("limit").asDouble());
            }
            case "collect" -> {
                return collect();
            }
            default -> throw new IllegalArgumentException(request.get("op").asText());
        }
        return true;
    }

    /** The subscription of a plan. */
    static String subscription(JsonNode plan) {
        String named = plan.get("named").asText();
        return named.isEmpty() ? plan.get("type").asText() : named;
    }

    /** Whether a subscription that a plan makes begins behind all messages. */
    static boolean latest(JsonNode plan) {
        return plan.get("latest").asBoolean();
    }

    private static boolean named(JsonNode request, String name) {
        for (JsonNode one : request.get("names")) {
            if (one.asText().equals(name)) {
                return true;
            }
        }
        return false;
    }

    private Map<String, CompletableFuture<?>> opened(JsonNode request) {
        Map<String, CompletableFuture<?>> opening = new TreeMap<>();
        for (JsonNode plan : request.get("plans")) {
            CompletableFuture<Inbox> inbox;
            try {
                inbox = subscribe(request, plan);
            } catch (Exception e) {
                inbox = CompletableFuture.failedFuture(e);
            }
            opening.put(plan.get("name").asText(), inbox.thenAccept(one -> receive(plan, one)));
        }
        return opening;
    }

    private void receive(JsonNode plan, Inbox inbox) {
        Receiver receiver = new Receiver(plan, inbox);
        receivers.add(receiver);
        Thread thread = new Thread(receiver, receiver.name);
        thread.setDaemon(true);
        thread.start();
    }

    private Map<String, String> attach(JsonNode request) throws InterruptedException {
        Map<String, String> refused = new TreeMap<>();
        for (Map.Entry<String, CompletableFuture<?>> one : opened(request).entrySet()) {
            try {
                one.getValue().get(OPERATION_SECONDS, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                refused.put(one.getKey(), reason(e.getCause()));
            } catch (TimeoutException e) {
                // It may still be opened, and receives then.
                refused.put(one.getKey(), reason(e));
            }
        }
        return refused;
    }

    private boolean pause(JsonNode request) throws InterruptedException {
        named(request).forEach(one -> one.pause(true));
        return settled(named(request), request.get("limit").asDouble());
    }

    private List<Sender> named(JsonNode request) {
        return senders.stream().filter(one -> named(request, one.name)).toList();
    }

    private boolean stopSending(double limit) throws InterruptedException {
        sending = false;
        clock.shutdown();
        return settled(senders, limit);
    }

    /** Waits until every message was acknowledged or refused; returns whether that came. */
    private static boolean settled(List<Sender> senders, double limit) throws InterruptedException {
        double deadline = now() + limit;
        while (senders.stream().anyMatch(one -> one.open() > 0)) {
            if (now() > deadline) {
                return false;
            }
            Thread.sleep(RETRY_MS / 10);
        }
        return true;
    }

    private Map<String, Object> collect() {
        Map<String, Object> sent = new TreeMap<>();
        senders.forEach(one -> sent.put(one.name, one.collect()));
        Map<String, Object> received = new TreeMap<>();
        receivers.forEach(one -> received.put(one.name, one.collect()));
        return Map.of("producers", sent, "consumers", received);
    }

    private static double now() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }

    private static String reason(Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        return cause.getClass().getSimpleName();
    }

    /** Sends without waiting for acknowledgements. */
    private final class Sender {
        private final String name;
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

        void start() {
            long pause = Math.round(interval * 1e6);
            clock.scheduleAtFixedRate(this::step, pause, pause, TimeUnit.MICROSECONDS);
        }

        synchronized void pause(boolean now) {
            paused = now;
        }

        private void step() {
            int mine;
            String key;
            long number;
            synchronized (this) {
                if (closed || paused || !sending) {
                    return;
                }
                mine = count++;
                key = name + "/" + mine % keys;
                number = mine / keys;
                open.put(mine, new Object[] {key, number, now(), null});
            }
            send.send(key, number).whenComplete((id, error) -> end(mine, error));
        }

        private synchronized void end(int mine, Throwable error) {
            Object[] one = open.remove(mine);
            if (error == null) {
                one[3] = now();
            } else {
                errors.add(new Object[] {now(), reason(error)});
                closed |= CLOSED.contains(reason(error));
            }
            ended.add(one);
        }

        synchronized int open() {
            return open.size();
        }

        synchronized Map<String, Object> collect() {
            List<Object[]> gone = ended;
            List<Object[]> failed = errors;
            ended = new ArrayList<>();
            errors = new ArrayList<>();
            return Map.of("sent", gone, "open", new ArrayList<>(open.values()), "errors", failed);
        }
    }

    /** Receives and acknowledges. */
    private static final class Receiver implements Runnable {
        private final String name;
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
                breaks.add(now());
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
            received.add(new Object[] {one.key(), Long.parseLong(one.number()), now(), one.place()});
            corrupt += one.body().equals(one.key() + ":" + one.number()) ? 0 : 1;
        }

        private synchronized void look() {
            boolean now = inbox.isConnected();
            if (connected && !now) {
                breaks.add(now());
            }
            connected = now;
        }

        private synchronized void failed(Throwable error) {
            errors.add(new Object[] {now(), reason(error)});
        }

        private static void pause() {
            try {
                Thread.sleep(RETRY_MS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        synchronized Map<String, Object> collect() {
            Map<String, Object> noted =
                    Map.of("received", received, "breaks", breaks, "errors", errors, "corrupt", corrupt);
            received = new ArrayList<>();
            breaks = new ArrayList<>();
            errors = new ArrayList<>();
            corrupt = 0;
            return noted;
        }
    }
}
