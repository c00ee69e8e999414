import com.fasterxml.jackson.databind.JsonNode;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver;

/**
 * BookKeeper's own client for tests; it answers as {@link JsonLines} says.
 *
 * <p>Every request has {@code op} and {@code uri}, and may have {@code settings} of the client.
 */
public final class Ledgers {
    private static final int ENTRIES_IN_FLIGHT = 500;
    private static final int LEDGERS_IN_FLIGHT = 100;
    private static final int BATCH = 500;
    private static final long TIMEOUT_SECONDS = 60;

    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<Integer, Writer> held = new HashMap<>();
    private int lastHeld;

    private Ledgers() {
    }

    public static void main(String[] args) throws Exception {
        MetadataDrivers.registerClientDriver("metadata-store", PulsarMetadataClientDriver.class, true);
        JsonLines.serve(new Ledgers()::perform);
    }

    private Object perform(JsonNode request) throws Exception {
        return switch (request.get("op").asText()) {
            case "create" -> create(request);
            case "hold" -> hold(request);
            case "add" -> add(request);
            case "close" -> close(held.remove(request.get("handle").asInt()));
            case "abandon" -> held.remove(request.get("handle").asInt()).id();
            case "read" -> read(request);
            case "next_id" -> nextId(request);
            case "delete" -> delete(request);
            default -> throw new IllegalArgumentException(request.get("op").asText());
        };
    }

    private BookKeeper client(JsonNode request) throws Exception {
        String uri = request.get("uri").asText();
        JsonNode settings = request.path("settings");
        String key = uri + settings;
        if (!clients.containsKey(key)) {
            ClientConfiguration conf = new ClientConfiguration();
            conf.setMetadataServiceUri(uri);
            // As brokers do.
            conf.setUseV2WireProtocol(true);
            conf.setThrottleValue(0);
            conf.setNettyMaxFrameSizeBytes(6 << 20);
            // A bookie on a machine with other work is slow, and not lost: one that is gone refuses connections.
            conf.setAddEntryTimeout((int) TIMEOUT_SECONDS / 2);
            conf.setReadEntryTimeout((int) TIMEOUT_SECONDS / 2);
            settings.properties().forEach(one -> conf.setProperty(one.getKey(), one.getValue().asText()));
            clients.put(key, BookKeeper.newBuilder(conf).build());
        }
        return clients.get(key);
    }

    private CompletableFuture<Writer> open(JsonNode request, Long id) throws Exception {
        CreateBuilder builder = client(request)
                .newCreateLedgerOp()
                .withEnsembleSize(request.get("ensemble").asInt())
                .withWriteQuorumSize(request.get("write").asInt())
                .withAckQuorumSize(request.get("ack").asInt())
                .withDigestType(digest(request))
                .withPassword(request.get("password").binaryValue())
                .withCustomMetadata(bytesOf(request.get("custom")));
        if (id == null) {
            return builder.execute().thenApply(handle -> new Writer(handle, null));
        }
        return builder.makeAdv().withLedgerId(id).execute().thenApply(handle -> new Writer(null, handle));
    }

    private List<Long> create(JsonNode request) throws Exception {
        List<Long> wanted = new ArrayList<>();
        request.get("ids").forEach(id -> wanted.add(id.isNull() ? null : id.asLong()));
        Semaphore ledgersFree = new Semaphore(LEDGERS_IN_FLIGHT);
        Semaphore entriesFree = new Semaphore(ENTRIES_IN_FLIGHT);
        List<CompletableFuture<Writer>> writers = new ArrayList<>();
        for (Long id : wanted) {
            acquire(ledgersFree);
            CompletableFuture<Writer> opened = open(request, id);
            opened.whenComplete((writer, error) -> ledgersFree.release());
            writers.add(opened);
        }
        List<CompletableFuture<?>> pending = new ArrayList<>();
        List<Long> created = new ArrayList<>();
        for (CompletableFuture<Writer> opened : writers) {
            Writer writer = get(opened);
            created.add(writer.id());
            List<CompletableFuture<?>> adds = new ArrayList<>();
            for (long entry = 0; entry < request.get("entries").asLong(); entry++) {
                acquire(entriesFree);
                CompletableFuture<Long> added = writer.add(entry, payload(request, entry));
                added.whenComplete((number, error) -> entriesFree.release());
                adds.add(added);
            }
            CompletableFuture<Void> all = CompletableFuture.allOf(adds.toArray(CompletableFuture[]::new));
            pending.add(request.get("close").asBoolean() ? all.thenCompose(nothing -> writer.close()) : all);
        }
        for (CompletableFuture<?> one : pending) {
            get(one);
        }
        return created;
    }

    private Map<String, Object> hold(JsonNode request) throws Exception {
        JsonNode id = request.get("ids").get(0);
        Writer writer = get(open(request, id.isNull() ? null : id.asLong()));
        for (long entry = 0; entry < request.get("entries").asLong(); entry++) {
            get(writer.add(entry, payload(request, entry)));
        }
        held.put(++lastHeld, writer);
        return Map.of("handle", lastHeld, "ledger_id", writer.id());
    }

    private long add(JsonNode request) throws Exception {
        Writer writer = held.get(request.get("handle").asInt());
        for (JsonNode payload : request.get("payloads")) {
            get(writer.add(writer.next(), payload.binaryValue()));
        }
        return writer.next() - 1;
    }

    private long close(Writer writer) throws Exception {
        get(writer.close());
        return writer.id();
    }

    private List<Map<String, Object>> read(JsonNode request) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (JsonNode id : request.get("ids")) {
            Map<String, Object> one = new HashMap<>();
            one.put("ledger_id", id.asLong());
            found.add(one);
            try {
                ReadHandle ledger = get(client(request)
                        .newOpenLedgerOp()
                        .withLedgerId(id.asLong())
                        .withDigestType(digest(request))
                        .withPassword(request.get("password").binaryValue())
                        .withRecovery(request.get("recover").asBoolean())
                        .execute());
                describe(ledger.getLedgerMetadata(), one);
                readAll(ledger, one);
                ledger.close();
            } catch (ExecutionException e) {
                one.put("error", e.getCause().getClass().getSimpleName());
            } catch (BKException e) {
                one.put("error", e.getClass().getSimpleName());
            }
        }
        return found;
    }

    private static void describe(LedgerMetadata metadata, Map<String, Object> found) {
        found.put("state", metadata.getState().name());
        found.put("quorum", List.of(
                metadata.getEnsembleSize(), metadata.getWriteQuorumSize(), metadata.getAckQuorumSize()));
        Map<String, String> custom = new HashMap<>();
        metadata.getCustomMetadata()
                .forEach((key, value) -> custom.put(key, Base64.getEncoder().encodeToString(value)));
        found.put("custom", custom);
        Map<Long, List<String>> segments = new HashMap<>();
        metadata.getAllEnsembles().forEach((first, bookies) ->
                segments.put(first, bookies.stream().map(Object::toString).toList()));
        found.put("segments", segments);
    }

    /** Entries that the writer of an open ledger has not confirmed are not read. */
    private static void readAll(ReadHandle ledger, Map<String, Object> found) throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        long last = ledger.getLastAddConfirmed();
        long bytes = 0;
        long entries = 0;
        for (long first = 0; first <= last; first += BATCH) {
            try (LedgerEntries batch = ledger.read(first, Math.min(last, first + BATCH - 1))) {
                for (LedgerEntry entry : batch) {
                    if (entry.getEntryId() != entries) {
                        throw new IllegalStateException("entry " + entry.getEntryId() + " in place of " + entries);
                    }
                    byte[] payload = entry.getEntryBytes();
                    sha256.update(ByteBuffer.allocate(Integer.BYTES).putInt(payload.length).flip());
                    sha256.update(payload);
                    bytes += payload.length;
                    entries++;
                }
            }
        }
        found.put("entries", entries);
        found.put("bytes", bytes);
        found.put("length", ledger.getLength());
        found.put("sha256", HexFormat.of().formatHex(sha256.digest()));
    }

    private long nextId(JsonNode request) throws Exception {
        Writer writer = get(open(request, null));
        get(writer.close());
        get(client(request).newDeleteLedgerOp().withLedgerId(writer.id()).execute());
        return writer.id();
    }

    private int delete(JsonNode request) throws Exception {
        for (JsonNode id : request.get("ids")) {
            get(client(request).newDeleteLedgerOp().withLedgerId(id.asLong()).execute());
        }
        return request.get("ids").size();
    }

    /** The seed and the entry's number, four bytes each, over and over. */
    private static byte[] payload(JsonNode request, long entry) {
        JsonNode sizes = request.get("sizes");
        byte[] bytes = new byte[sizes.get((int) (entry % sizes.size())).asInt()];
        byte[] word = ByteBuffer.allocate(2 * Integer.BYTES).putInt(request.get("seed").asInt()).putInt((int) entry).array();
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = word[i % word.length];
        }
        return bytes;
    }

    private static DigestType digest(JsonNode request) {
        String name = request.get("digest").asText();
        return name.equals("HMAC") ? DigestType.MAC : DigestType.valueOf(name);
    }

    private static Map<String, byte[]> bytesOf(JsonNode map) throws Exception {
        Map<String, byte[]> found = new HashMap<>();
        for (Map.Entry<String, JsonNode> one : map.properties()) {
            found.put(one.getKey(), one.getValue().binaryValue());
        }
        return found;
    }

    private static void acquire(Semaphore free) throws Exception {
        if (!free.tryAcquire(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new TimeoutException("bookies do not answer");
        }
    }

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    /** A ledger that is written: with an id that was given, entries are numbered by the caller. */
    private static final class Writer {
        private final WriteHandle plain;
        private final WriteAdvHandle numbered;
        private long next;

        Writer(WriteHandle plain, WriteAdvHandle numbered) {
            this.plain = plain;
            this.numbered = numbered;
        }

        long id() {
            return plain != null ? plain.getId() : numbered.getId();
        }

        long next() {
            return next;
        }

        CompletableFuture<Long> add(long entry, byte[] payload) {
            next = entry + 1;
            return plain != null ? plain.appendAsync(payload) : numbered.writeAsync(entry, Unpooled.wrappedBuffer(payload));
        }

        CompletableFuture<Void> close() {
            return plain != null ? plain.closeAsync() : numbered.closeAsync();
        }
    }
}
