import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * BookKeeper's own Java client as a copier of ledgers: {@code sourceUri targetUri single|batch}.
 *
 * <p>It speaks version 2 of the wire protocol as brokers do, and reads ahead: by single reads that are all in flight, or by
 * BookKeeper's batch reads. Prints READY, and then for each line of standard input one line of JSON:
 *
 * <p>{@code generate first ledgers entries size}: write ledgers to the source; with size 0 they are like those of schemas
 * and cursors, with one to three entries of some hundred bytes.
 *
 * <p>{@code copy id as}: copy one ledger to another id. {@code copy-small first ledgers as}: copy many, some at once, to ids
 * that begin there.
 */
public final class BookiePeer {
    private static final byte[] PASSWORD = new byte[0];
    private static final int REPLICAS = 2;
    private static final int ADDS_IN_FLIGHT = 2_000;
    private static final int SMALL_IN_FLIGHT = Integer.getInteger("small.in.flight", 64);
    private static final int READ_BYTES = Integer.getInteger("read.bytes", 1 << 20);
    private static final int MOST_ENTRIES = 1_000;
    private static final int READS_AHEAD = Integer.getInteger("reads.ahead", 4);
    private static final long TIMEOUT_SECONDS = 120;

    private final BookKeeper source;
    private final BookKeeper target;
    private final boolean batches;

    private BookiePeer(String source, String target, boolean batches) throws Exception {
        this.source = client(source);
        this.target = client(target);
        this.batches = batches;
    }

    public static void main(String[] args) {
        try {
            serve(new BookiePeer(args[0], args[1], args[2].equals("batch")));
            System.exit(0);
        } catch (Exception e) {
            // The client's threads would keep the process alive.
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void serve(BookiePeer peer) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("READY");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            long[] numbers = Stream.of(words).skip(1).mapToLong(Long::parseLong).toArray();
            long start = System.nanoTime();
            long entries = switch (words[0]) {
                case "generate" -> peer.generate(numbers[0], numbers[1], numbers[2], (int) numbers[3]);
                case "copy" -> peer.copy(numbers[0], numbers[1]);
                case "copy-small" -> peer.copySmall(numbers[0], numbers[1], numbers[2]);
                default -> throw new IllegalArgumentException(line);
            };
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.printf(Locale.ROOT, "{\"seconds\": %.4f, \"entries\": %d}%n", seconds, entries);
        }
    }

    private static BookKeeper client(String uri) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(uri);
        conf.setUseV2WireProtocol(true);
        conf.setBatchReadEnabled(true);
        conf.setThrottleValue(0);
        conf.setAddEntryTimeout(60);
        conf.setReadEntryTimeout(60);
        return BookKeeper.newBuilder(conf).build();
    }

    private CompletableFuture<WriteAdvHandle> create(BookKeeper cluster, long id, Map<String, byte[]> custom) {
        return cluster.newCreateLedgerOp()
                .withEnsembleSize(REPLICAS)
                .withWriteQuorumSize(REPLICAS)
                .withAckQuorumSize(REPLICAS)
                .withDigestType(DigestType.CRC32C)
                .withPassword(PASSWORD)
                .withCustomMetadata(custom)
                .makeAdv()
                .withLedgerId(id)
                .execute();
    }

    private CompletableFuture<ReadHandle> open(long id) {
        return source.newOpenLedgerOp()
                .withLedgerId(id)
                .withDigestType(DigestType.CRC32C)
                .withPassword(PASSWORD)
                .withRecovery(false)
                .execute();
    }

    private long generate(long first, long ledgers, long entries, int size) throws Exception {
        Window ledgersAtOnce = new Window(SMALL_IN_FLIGHT);
        AtomicLong written = new AtomicLong();
        for (long id = first; id < first + ledgers; id++) {
            Random random = new Random(id);
            long count = size == 0 ? 1 + random.nextInt(3) : entries;
            Map<String, byte[]> custom = Map.of("application", "pulsar".getBytes(StandardCharsets.UTF_8),
                    "component", (size == 0 ? "schema" : "managed-ledger").getBytes(StandardCharsets.UTF_8),
                    "pulsar/schemaId", ("bench/ns/topic-" + id).getBytes(StandardCharsets.UTF_8));
            written.addAndGet(count);
            CompletableFuture<WriteAdvHandle> created = create(source, id, custom);
            if (size > 0) {
                // In this thread: many adds have to wait for others, whose answers the client's own threads take.
                get(fill(get(created), random, count, size));
                continue;
            }
            ledgersAtOnce.enter();
            ledgersAtOnce.leave(created.thenCompose(ledger -> fill(ledger, random, count, size)));
        }
        ledgersAtOnce.drain();
        return written.get();
    }

    private static CompletableFuture<Void> fill(WriteAdvHandle ledger, Random random, long count, int size) {
        try {
            Window adds = new Window(ADDS_IN_FLIGHT);
            byte[] data = new byte[size == 0 ? 200 + random.nextInt(500) : size];
            random.nextBytes(data);
            CompletableFuture<?>[] last = new CompletableFuture<?>[(int) count];
            for (int entry = 0; entry < count; entry++) {
                adds.enter();
                last[entry] = ledger.writeAsync(entry, Unpooled.wrappedBuffer(data));
                adds.leave(last[entry]);
            }
            return CompletableFuture.allOf(last).thenCompose(nothing -> ledger.closeAsync());
        } catch (Exception e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private long copy(long id, long as) throws Exception {
        ReadHandle from = get(open(id));
        WriteAdvHandle to = get(create(target, as, from.getLedgerMetadata().getCustomMetadata()));
        Window adds = new Window(ADDS_IN_FLIGHT);
        long last = from.getLastAddConfirmed();
        int chunk = (int) Math.max(1, Math.min(MOST_ENTRIES, READ_BYTES / (from.getLength() / (last + 1) + 64)));
        Deque<CompletableFuture<LedgerEntries>> ahead = new ArrayDeque<>();
        long asked = 0;
        long written = 0;
        while (written <= last) {
            while (asked <= last && ahead.size() < READS_AHEAD) {
                ahead.add(read(from, asked, Math.min(last + 1, asked + chunk)));
                asked = Math.min(last + 1, asked + chunk);
            }
            long end = Math.min(last + 1, written + chunk);
            written = write(get(ahead.remove()), to, adds, written);
            // A batch may hold less than was asked for.
            while (written < end) {
                written = write(get(read(from, written, end)), to, adds, written);
            }
        }
        adds.drain();
        get(to.closeAsync());
        get(from.closeAsync());
        return written;
    }

    private CompletableFuture<LedgerEntries> read(ReadHandle from, long first, long end) {
        return batches ? from.batchReadAsync(first, (int) (end - first), 2L * READ_BYTES) : from.readAsync(first, end - 1);
    }

    private static long write(LedgerEntries entries, WriteAdvHandle to, Window adds, long next) throws Exception {
        try (entries) {
            for (LedgerEntry entry : entries) {
                adds.enter();
                adds.leave(to.writeAsync(next++, entry.getEntryBuffer().retain()));
            }
        }
        return next;
    }

    private long copySmall(long first, long ledgers, long as) throws Exception {
        Window atOnce = new Window(SMALL_IN_FLIGHT);
        AtomicLong copied = new AtomicLong();
        for (long id = first; id < first + ledgers; id++) {
            long ledger = id;
            atOnce.enter();
            atOnce.leave(open(ledger).thenCompose(from -> create(
                    target, as + ledger - first, from.getLedgerMetadata().getCustomMetadata()).thenCompose(to -> copyAll(from, to, copied))));
        }
        atOnce.drain();
        return copied.get();
    }

    private CompletableFuture<Void> copyAll(ReadHandle from, WriteAdvHandle to, AtomicLong copied) {
        return read(from, 0, from.getLastAddConfirmed() + 1)
                .thenCompose(entries -> {
                    try (entries) {
                        List<CompletableFuture<Long>> adds = new ArrayList<>();
                        for (LedgerEntry entry : entries) {
                            adds.add(to.writeAsync(entry.getEntryId(), entry.getEntryBuffer().retain()));
                        }
                        copied.addAndGet(adds.size());
                        return CompletableFuture.allOf(adds.toArray(CompletableFuture[]::new));
                    }
                })
                .thenCompose(nothing -> to.closeAsync())
                .thenCompose(nothing -> from.closeAsync());
    }

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    /** Bounds what is in flight, and remembers the first failure. */
    private static final class Window {
        private final Semaphore free;
        private final int size;
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        Window(int size) {
            this.free = new Semaphore(size);
            this.size = size;
        }

        void enter() throws Exception {
            take(1);
        }

        void leave(CompletableFuture<?> work) {
            work.whenComplete((result, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                }
                free.release();
            });
        }

        void drain() throws Exception {
            take(size);
        }

        private void take(int permits) throws Exception {
            if (!free.tryAcquire(permits, TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
                throw new TimeoutException("bookies do not answer");
            }
            if (failure.get() != null) {
                throw new IllegalStateException("a copy failed", failure.get());
            }
        }
    }
}
