import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientBuilder;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.auth.AuthenticationFactory;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;
import org.apache.pulsar.tls.TlsPolicy;

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
        PulsarClientBuilder builder = PulsarClient.builder();
        if (!request.get("token").asText().isEmpty()) {
            builder.authentication(AuthenticationFactory.token(request.get("token").asText()));
        }
        if (!request.get("authorities").asText().isEmpty()) {
            String authorities = request.get("authorities").asText();
            builder.tlsPolicy(TlsPolicy.builder().trustCertsFilePath(authorities).enableHostnameVerification(true).build());
        }
        common = builder.serviceUrl(request.get("service").asText())
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
                    .thenApply(consumer -> new Inbox(consumer::receive, id -> { }, consumer::close));
        }
        if (type.equals("Shared") || type.equals("Key_Shared")) {
            return client.newQueueConsumer(Schema.bytes())
                    .topic(plan.get("topic").asText())
                    .subscriptionName(subscription(plan))
                    .consumerName(plan.get("name").asText())
                    .subscriptionInitialPosition(begin)
                    .subscribeAsync()
                    .thenApply(consumer -> new Inbox(consumer::receive, consumer::acknowledge, consumer::close));
        }
        return client.newStreamConsumer(Schema.bytes())
                .topic(plan.get("topic").asText())
                .subscriptionName(subscription(plan))
                .consumerName(plan.get("name").asText())
                .subscriptionInitialPosition(begin)
                .subscribeAsync()
                .thenApply(consumer -> new Inbox(consumer::receive, consumer::acknowledgeCumulative, consumer::close));
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

    private interface Receive {
        Message<byte[]> within(Duration limit) throws PulsarClientException;
    }

    /** What the kinds of consumers share; they have no common type in the library. */
    private record Inbox(Receive receive, Consumer<MessageId> acknowledgement, AutoCloseable end)
            implements Receiver.Inbox {
        @Override
        public Receiver.Arrival next() throws PulsarClientException {
            return arrival(receive.within(Duration.ofMillis(RECEIVE_MS)));
        }

        @Override
        public CompletableFuture<Void> acknowledge(Receiver.Arrival arrival) {
            acknowledgement.accept((MessageId) arrival.id());
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public boolean isConnected() {
            // The library does not tell.
            return true;
        }

        @Override
        public void close() throws Exception {
            end.close();
        }
    }
}
