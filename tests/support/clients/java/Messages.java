import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.Field;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericRecordBuilder;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * Pulsar's own client for what the Python client lacks, typed records and transactions; it answers as {@link JsonLines}
 * says.
 *
 * <p>Every request has {@code op} and {@code service}.
 */
public final class Messages {
    private static final int TIMEOUT_SECONDS = 60;

    private final Map<String, PulsarClient> clients = new HashMap<>();

    private Messages() {
    }

    public static void main(String[] args) throws Exception {
        JsonLines.serve(new Messages()::perform);
    }

    private Object perform(JsonNode request) throws Exception {
        return switch (request.get("op").asText()) {
            case "send_records" -> sendRecords(request);
            case "read_records" -> readRecords(request);
            case "transact" -> transact(request);
            default -> throw new IllegalArgumentException(request.get("op").asText());
        };
    }

    private PulsarClient client(JsonNode request) throws Exception {
        String service = request.get("service").asText();
        if (!clients.containsKey(service)) {
            clients.put(service, PulsarClient.builder()
                    .serviceUrl(service)
                    .enableTransaction(true)
                    .operationTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
                    .ioThreads(1)
                    .listenerThreads(1)
                    .build());
        }
        return clients.get(service);
    }

    private int sendRecords(JsonNode request) throws Exception {
        GenericSchema<GenericRecord> schema = Schema.generic(SchemaInfo.builder()
                .name(request.get("topic").asText())
                .type(SchemaType.valueOf(request.get("type").asText()))
                .schema(request.get("definition").asText().getBytes(StandardCharsets.UTF_8))
                .properties(Map.of())
                .build());
        try (Producer<GenericRecord> producer = client(request)
                .newProducer(schema)
                .topic(request.get("topic").asText())
                .create()) {
            for (JsonNode record : request.get("records")) {
                GenericRecordBuilder builder = schema.newRecordBuilder();
                record.properties().forEach(one -> builder.set(
                        one.getKey(), one.getValue().isInt() ? (Object) one.getValue().asInt() : one.getValue().asText()));
                producer.send(builder.build());
            }
        }
        return request.get("records").size();
    }

    /** All that the topic holds now, decoded by the version of the schema that each record names. */
    private List<Map<String, Object>> readRecords(JsonNode request) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        try (Reader<GenericRecord> reader = client(request)
                .newReader(Schema.AUTO_CONSUME())
                .topic(request.get("topic").asText())
                .startMessageId(MessageId.earliest)
                .create()) {
            while (reader.hasMessageAvailable()) {
                Message<GenericRecord> message = reader.readNext(TIMEOUT_SECONDS, TimeUnit.SECONDS);
                if (message == null) {
                    throw new TimeoutException("after " + found.size() + " records");
                }
                Map<String, Object> fields = new HashMap<>();
                for (Field field : message.getValue().getFields()) {
                    fields.put(field.getName(), message.getValue().getField(field).toString());
                }
                found.add(Map.of("version", new BigInteger(message.getSchemaVersion()), "fields", fields));
            }
        }
        return found;
    }

    /** Sends messages to a topic and acknowledges messages of a subscription, in one transaction that ends as it is told. */
    private boolean transact(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        Transaction transaction = client(request)
                .newTransaction()
                .withTransactionTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
                .build()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        try (Producer<byte[]> producer = client(request).newProducer().topic(topic).create();
                Consumer<byte[]> consumer = client(request)
                        .newConsumer()
                        .topic(topic)
                        .subscriptionName(request.get("subscription").asText())
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            for (JsonNode payload : request.get("payloads")) {
                producer.newMessage(transaction).value(payload.asText().getBytes(StandardCharsets.UTF_8)).send();
            }
            acknowledge(consumer, transaction, request.get("acknowledge"));
            end(request.get("commit").asBoolean() ? transaction.commit() : transaction.abort());
        }
        return true;
    }

    private static void acknowledge(Consumer<byte[]> consumer, Transaction transaction, JsonNode payloads) throws Exception {
        Set<String> wanted = new HashSet<>();
        payloads.forEach(payload -> wanted.add(payload.asText()));
        while (!wanted.isEmpty()) {
            Message<byte[]> message = consumer.receive(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                throw new TimeoutException("did not receive " + wanted);
            }
            if (wanted.remove(new String(message.getValue(), StandardCharsets.UTF_8))) {
                end(consumer.acknowledgeAsync(message.getMessageId(), transaction));
            }
        }
    }

    private static void end(CompletableFuture<Void> future) throws Exception {
        future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }
}
