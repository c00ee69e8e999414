import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.schema.GenericRecord;

/**
 * Producers and consumers that note what they do; it answers as {@link JsonLines} says.
 *
 * <p>{@code subscribe} and {@code open_producers} take plans, {@code start} and {@code stop_sending} what they say, and {@code collect} gives
 * what was noted since it was last asked for. Times are seconds since the epoch.
 */
public final class MovingClients {
    private static final String NUMBER = "number";
    private static final int OPERATION_SECONDS = 30;
    private static final int RECEIVE_MS = 100;
    private static final long RETRY_MS = 200;
    private static final Set<String> CLOSED = Set.of("AlreadyClosedException", "TopicTerminatedException");

    private final List<Sender> senders = new ArrayList<>();
    private final List<Receiver> receivers = new ArrayList<>();
    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
    private PulsarClient common;
    private volatile boolean sending = true;

    private MovingClients() {
    }

    /** What a typed message holds. */
    public static final class Numbered {
        public String key;
        public long number;
    }

    public static void main(String[] args) throws Exception {
        JsonLines.serve(new MovingClients()::perform);
    }

    private Object perform(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "subscribe" -> subscribe(request);
            case "open_producers" -> openProducers(request);
            case "start" -> senders.forEach(Sender::start);
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

    private synchronized PulsarClient client(JsonNode request) throws PulsarClientException {
        if (request.get("shared").asBoolean() && common != null) {
            return common;
        }
        common = PulsarClient.builder()
                .serviceUrl(request.get("service").asText())
                .operationTimeout(OPERATION_SECONDS, TimeUnit.SECONDS)
                .ioThreads(1)
                .listenerThreads(1)
                .statsInterval(0, TimeUnit.SECONDS)
                .build();
        return common;
    }

    private void subscribe(JsonNode request) throws Exception {
        List<CompletableFuture<Receiver>> opening = new ArrayList<>();
        for (JsonNode plan : request.get("plans")) {
            boolean typed = !plan.get("encoding").asText().equals("BYTES");
            PulsarClient client = client(request);
            opening.add(typed ? open(client, plan, Schema.AUTO_CONSUME()) : open(client, plan, Schema.BYTES));
        }
        for (CompletableFuture<Receiver> one : opening) {
            Receiver receiver = one.get(OPERATION_SECONDS, TimeUnit.SECONDS);
            receivers.add(receiver);
            Thread thread = new Thread(receiver, receiver.name);
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static <T> CompletableFuture<Receiver> open(PulsarClient client, JsonNode plan, Schema<T> schema) {
        return client.newConsumer(schema)
                .topic(plan.get("topic").asText())
                .subscriptionName(plan.get("type").asText())
                .subscriptionType(SubscriptionType.valueOf(plan.get("type").asText()))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .consumerName(plan.get("name").asText())
                .subscribeAsync()
                .thenApply(consumer -> new Receiver(plan, consumer));
    }

    private void openProducers(JsonNode request) throws Exception {
        for (JsonNode plan : request.get("plans")) {
            PulsarClient client = client(request);
            String encoding = plan.get("encoding").asText();
            senders.add(switch (encoding) {
                case "JSON" -> typed(client, plan, Schema.JSON(Numbered.class), request);
                case "AVRO" -> typed(client, plan, Schema.AVRO(Numbered.class), request);
                default -> plain(client, plan, request);
            });
        }
    }

    private Sender plain(PulsarClient client, JsonNode plan, JsonNode request) throws PulsarClientException {
        Producer<byte[]> producer = configured(client.newProducer(), plan, request).create();
        return new Sender(plan, (key, number) -> producer.newMessage()
                .key(key)
                .property(NUMBER, Long.toString(number))
                .value((key + ":" + number).getBytes(StandardCharsets.UTF_8))
                .sendAsync());
    }

    private Sender typed(PulsarClient client, JsonNode plan, Schema<Numbered> schema, JsonNode request)
            throws PulsarClientException {
        Producer<Numbered> producer = configured(client.newProducer(schema), plan, request).create();
        return new Sender(plan, (key, number) -> {
            Numbered value = new Numbered();
            value.key = key;
            value.number = number;
            return producer.newMessage().key(key).property(NUMBER, Long.toString(number)).value(value).sendAsync();
        });
    }

    private static <T> ProducerBuilder<T> configured(ProducerBuilder<T> builder, JsonNode plan, JsonNode request) {
        return builder.topic(plan.get("topic").asText())
                .producerName(plan.get("name").asText())
                .enableBatching(plan.get("batching").asBoolean())
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .maxPendingMessages(request.get("queue").asInt())
                .sendTimeout(request.get("send_limit_ms").asInt(), TimeUnit.MILLISECONDS);
    }

    private boolean stopSending(double limit) throws InterruptedException {
        sending = false;
        clock.shutdown();
        double deadline = now() + limit;
        while (senders.stream().anyMatch(one -> one.open() > 0) && now() < deadline) {
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

    /** Hands one message to a producer. */
    private interface Send {
        CompletableFuture<MessageId> send(String key, long number);
    }

    /** Sends without waiting for acknowledgements. */
    private final class Sender {
        private final String name;
        private final int keys;
        private final double interval;
        private final Send send;
        private final AtomicInteger count = new AtomicInteger();
        private final Map<Integer, Object[]> open = new TreeMap<>();
        private List<Object[]> ended = new ArrayList<>();
        private List<Object[]> errors = new ArrayList<>();
        private volatile boolean closed;

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

        private void step() {
            if (closed || !sending) {
                return;
            }
            int mine = count.getAndIncrement();
            String key = name + "/" + mine % keys;
            long number = mine / keys;
            synchronized (this) {
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
        private final boolean cumulative;
        private final Consumer<?> consumer;
        private boolean connected = true;
        private int corrupt;
        private List<Object[]> received = new ArrayList<>();
        private List<Double> breaks = new ArrayList<>();
        private List<Object[]> errors = new ArrayList<>();

        Receiver(JsonNode plan, Consumer<?> consumer) {
            this.name = plan.get("name").asText();
            this.cumulative = plan.get("cumulative").asBoolean();
            this.consumer = consumer;
        }

        @Override
        public void run() {
            while (true) {
                try {
                    Message<?> message = consumer.receive(RECEIVE_MS, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        note(message);
                        acknowledge(message);
                    }
                } catch (PulsarClientException e) {
                    failed(e);
                    pause();
                }
                look();
            }
        }

        private void acknowledge(Message<?> message) {
            CompletableFuture<Void> done =
                    cumulative ? consumer.acknowledgeCumulativeAsync(message) : consumer.acknowledgeAsync(message);
            done.whenComplete((nothing, error) -> {
                if (error != null) {
                    failed(error);
                }
            });
        }

        private synchronized void note(Message<?> message) {
            String number = message.getProperty(NUMBER);
            MessageIdAdv id = (MessageIdAdv) message.getMessageId();
            String place = id.getLedgerId() + ":" + id.getEntryId() + ":" + id.getPartitionIndex() + ":" + id.getBatchIndex();
            received.add(new Object[] {message.getKey(), Long.parseLong(number), now(), place});
            corrupt += body(message).equals(message.getKey() + ":" + number) ? 0 : 1;
        }

        private static String body(Message<?> message) {
            return message.getValue() instanceof GenericRecord record
                    ? record.getField("key") + ":" + record.getField("number")
                    : new String(message.getData(), StandardCharsets.UTF_8);
        }

        private synchronized void look() {
            boolean now = consumer.isConnected();
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
