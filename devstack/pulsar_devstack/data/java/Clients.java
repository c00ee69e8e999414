import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
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
    static final long RETRY_MS = 200;

    private final List<Sender> senders = new ArrayList<>();
    private final List<Receiver> receivers = new CopyOnWriteArrayList<>();
    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);

    /** Opens the consumer of a plan. */
    abstract CompletableFuture<Receiver.Inbox> subscribe(JsonNode request, JsonNode plan) throws Exception;

    /** Opens the producer of a plan. */
    abstract Sender.Send produce(JsonNode request, JsonNode plan) throws Exception;

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
            case "start" -> senders.forEach(one -> one.start(clock));
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
            CompletableFuture<Receiver.Inbox> inbox;
            try {
                inbox = subscribe(request, plan);
            } catch (Exception e) {
                inbox = CompletableFuture.failedFuture(e);
            }
            opening.put(plan.get("name").asText(), inbox.thenAccept(one -> receive(plan, one)));
        }
        return opening;
    }

    private void receive(JsonNode plan, Receiver.Inbox inbox) {
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
        senders.forEach(one -> one.pause(true));
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

    /** Seconds since the epoch. */
    static double now() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }

    /** The name of what went wrong. */
    static String reason(Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        return cause.getClass().getSimpleName();
    }
}
