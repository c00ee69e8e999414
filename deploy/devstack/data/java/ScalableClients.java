import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Clients of the Java library for scalable topics, which also use regular ones: shared subscriptions by queue, others as a stream,
 * and a consumer that begins at a checkpoint without a subscription.
 */
public final class ScalableClients extends Clients {
    private PulsarClient common;

    private ScalableClients() {
    }

    public static void main(String[] args) throws Exception {
        JsonLines.serve(new ScalableClients()::perform);
    }

    private synchronized PulsarClient client(JsonNode request) throws PulsarClientException {
        if (request.get("shared").asBoolean() && common != null) {
            return common;
        }
        common = PulsarClient.builder()
                .serviceUrl(request.get("service").asText())
                .operationTimeout(Duration.ofSeconds(OPERATION_SECONDS))
                .build();
        return common;
    }

    @Override
    CompletableFuture<Receiver.Inbox> subscribe(JsonNode request, JsonNode plan) throws PulsarClientException {
        PulsarClient client = client(request);
        String type = plan.get("type").asText();
        SubscriptionInitialPosition begin =
                latest(plan) ? SubscriptionInitialPosition.LATEST : SubscriptionInitialPosition.EARLIEST;
        if (plan.get("checkpoint").asBoolean()) {
            return client.newCheckpointConsumer(Schema.bytes())
                    .topic(plan.get("topic").asText())
                    .consumerName(plan.get("name").asText())
                    .startPosition(latest(plan) ? Checkpoint.latest() : Checkpoint.earliest())
                    .createAsync()
                    .thenApply(FromCheckpoint::new);
        }
        if (type.equals("Shared") || type.equals("Key_Shared")) {
            return client.newQueueConsumer(Schema.bytes())
                    .topic(plan.get("topic").asText())
                    .subscriptionName(subscription(plan))
                    .consumerName(plan.get("name").asText())
                    .subscriptionInitialPosition(begin)
                    .subscribeAsync()
                    .thenApply(Queue::new);
        }
        return client.newStreamConsumer(Schema.bytes())
                .topic(plan.get("topic").asText())
                .subscriptionName(subscription(plan))
                .consumerName(plan.get("name").asText())
                .subscriptionInitialPosition(begin)
                .subscribeAsync()
                .thenApply(Stream::new);
    }

    @Override
    Sender.Send produce(JsonNode request, JsonNode plan) throws PulsarClientException {
        Producer<byte[]> producer = client(request).newProducer(Schema.bytes())
                .topic(plan.get("topic").asText())
                .producerName(plan.get("name").asText())
                .sendTimeout(Duration.ofMillis(request.get("send_limit_ms").asInt()))
                .create();
        return (key, number) -> producer.async().newMessage()
                .key(key)
                .property(NUMBER, Long.toString(number))
                .value((key + ":" + number).getBytes(StandardCharsets.UTF_8))
                .send();
    }

    private static Receiver.Arrival arrival(Message<byte[]> message) {
        if (message == null) {
            return null;
        }
        String body = new String(message.value(), StandardCharsets.UTF_8);
        return new Receiver.Arrival(
                message.key().orElse(""), message.properties().get(NUMBER), place(message.id()), body, message.id());
    }

    /** The segment, and where the message lies there; a stream's id goes on with what else had been delivered. */
    private static String place(MessageId id) {
        ByteBuffer bytes = ByteBuffer.wrap(id.toByteArray());
        long segment = bytes.getLong();
        byte[] within = new byte[bytes.getInt()];
        bytes.get(within);
        return segment + ":" + Base64.getEncoder().encodeToString(within);
    }

    private interface Scalable extends Receiver.Inbox {
        /** The library does not tell. */
        @Override
        default boolean isConnected() {
            return true;
        }
    }

    private record Queue(QueueConsumer<byte[]> consumer) implements Scalable {
        @Override
        public Receiver.Arrival next() throws PulsarClientException {
            return arrival(consumer.receive(Duration.ofMillis(RECEIVE_MS)));
        }

        @Override
        public CompletableFuture<Void> acknowledge(Receiver.Arrival arrival) {
            consumer.acknowledge((MessageId) arrival.id());
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void close() throws PulsarClientException {
            consumer.close();
        }
    }

    private record Stream(StreamConsumer<byte[]> consumer) implements Scalable {
        @Override
        public Receiver.Arrival next() throws PulsarClientException {
            return arrival(consumer.receive(Duration.ofMillis(RECEIVE_MS)));
        }

        @Override
        public CompletableFuture<Void> acknowledge(Receiver.Arrival arrival) {
            consumer.acknowledgeCumulative((MessageId) arrival.id());
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void close() throws PulsarClientException {
            consumer.close();
        }
    }

    private record FromCheckpoint(CheckpointConsumer<byte[]> consumer) implements Scalable {
        @Override
        public Receiver.Arrival next() throws PulsarClientException {
            return arrival(consumer.receive(Duration.ofMillis(RECEIVE_MS)));
        }

        @Override
        public CompletableFuture<Void> acknowledge(Receiver.Arrival arrival) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void close() throws PulsarClientException {
            consumer.close();
        }
    }
}
