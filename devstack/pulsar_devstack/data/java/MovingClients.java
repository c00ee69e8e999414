import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.ClientBuilder;
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

/** Clients of Pulsar's Java library. */
public final class MovingClients extends Clients {
    private PulsarClient common;

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

    private synchronized PulsarClient client(JsonNode request) throws PulsarClientException {
        if (request.get("shared").asBoolean() && common != null) {
            return common;
        }
        ClientBuilder builder = PulsarClient.builder();
        if (!request.get("token").asText().isEmpty()) {
            builder.authentication(AuthenticationFactory.token(request.get("token").asText()));
        }
        if (!request.get("authorities").asText().isEmpty()) {
            builder.tlsTrustCertsFilePath(request.get("authorities").asText()).enableTlsHostnameVerification(true);
        }
        common = builder.serviceUrl(request.get("service").asText())
                .operationTimeout(OPERATION_SECONDS, TimeUnit.SECONDS)
                .ioThreads(1)
                .listenerThreads(1)
                .statsInterval(0, TimeUnit.SECONDS)
                .build();
        return common;
    }

    @Override
    CompletableFuture<Receiver.Inbox> subscribe(JsonNode request, JsonNode plan) throws PulsarClientException {
        boolean typed = !plan.get("encoding").asText().equals("BYTES");
        PulsarClient client = client(request);
        return typed ? open(client, plan, Schema.AUTO_CONSUME()) : open(client, plan, Schema.BYTES);
    }

    private static <T> CompletableFuture<Receiver.Inbox> open(PulsarClient client, JsonNode plan, Schema<T> schema) {
        return client.newConsumer(schema)
                .topic(plan.get("topic").asText())
                .subscriptionName(subscription(plan))
                .subscriptionType(SubscriptionType.valueOf(plan.get("type").asText()))
                .subscriptionInitialPosition(
                        latest(plan) ? SubscriptionInitialPosition.Latest : SubscriptionInitialPosition.Earliest)
                .consumerName(plan.get("name").asText())
                .subscribeAsync()
                .thenApply(consumer -> new Subscribed(consumer, plan.get("cumulative").asBoolean()));
    }

    @Override
    Sender.Send produce(JsonNode request, JsonNode plan) throws PulsarClientException {
        PulsarClient client = client(request);
        return switch (plan.get("encoding").asText()) {
            case "JSON" -> typed(client, plan, Schema.JSON(Numbered.class), request);
            case "AVRO" -> typed(client, plan, Schema.AVRO(Numbered.class), request);
            default -> plain(client, plan, request);
        };
    }

    private static Sender.Send plain(PulsarClient client, JsonNode plan, JsonNode request) throws PulsarClientException {
        Producer<byte[]> producer = configured(client.newProducer(), plan, request).create();
        return (key, number) -> producer.newMessage()
                .key(key)
                .property(NUMBER, Long.toString(number))
                .value((key + ":" + number).getBytes(StandardCharsets.UTF_8))
                .sendAsync();
    }

    private static Sender.Send typed(PulsarClient client, JsonNode plan, Schema<Numbered> schema, JsonNode request)
            throws PulsarClientException {
        Producer<Numbered> producer = configured(client.newProducer(schema), plan, request).create();
        return (key, number) -> {
            Numbered value = new Numbered();
            value.key = key;
            value.number = number;
            return producer.newMessage().key(key).property(NUMBER, Long.toString(number)).value(value).sendAsync();
        };
    }

    private static <T> ProducerBuilder<T> configured(ProducerBuilder<T> builder, JsonNode plan, JsonNode request) {
        return builder.topic(plan.get("topic").asText())
                .producerName(plan.get("name").asText())
                .enableBatching(plan.get("batching").asBoolean())
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .maxPendingMessages(request.get("queue").asInt())
                .sendTimeout(request.get("send_limit_ms").asInt(), TimeUnit.MILLISECONDS);
    }

    /** A consumer, which acknowledges each message or all up to it. */
    private record Subscribed(Consumer<?> consumer, boolean cumulative) implements Receiver.Inbox {
        @Override
        public Receiver.Arrival next() throws PulsarClientException {
            Message<?> message = consumer.receive(RECEIVE_MS, TimeUnit.MILLISECONDS);
            if (message == null) {
                return null;
            }
            MessageIdAdv id = (MessageIdAdv) message.getMessageId();
            String place = id.getLedgerId() + ":" + id.getEntryId() + ":" + id.getPartitionIndex() + ":" + id.getBatchIndex();
            return new Receiver.Arrival(message.getKey(), message.getProperty(NUMBER), place, body(message), id);
        }

        @Override
        public CompletableFuture<Void> acknowledge(Receiver.Arrival arrival) {
            MessageId id = (MessageId) arrival.id();
            return cumulative ? consumer.acknowledgeCumulativeAsync(id) : consumer.acknowledgeAsync(id);
        }

        @Override
        public boolean isConnected() {
            return consumer.isConnected();
        }

        @Override
        public void close() throws PulsarClientException {
            consumer.close();
        }

        private static String body(Message<?> message) {
            return message.getValue() instanceof GenericRecord record
                    ? record.getField("key") + ":" + record.getField("number")
                    : new String(message.getData(), StandardCharsets.UTF_8);
        }
    }
}
