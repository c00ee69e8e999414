import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.CreateOption;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.apache.pulsar.metadata.coordination.impl.MigrationCoordinator;
import org.apache.pulsar.metadata.impl.MetadataStoreFactoryImpl;

/**
 * Pulsar's own side of the benchmark; prints one line of JSON when it ends.
 *
 * <p>{@code coordinator zkUrl oxiaUrl}: Pulsar's MigrationCoordinator, on the store that a broker would give it.
 * It warms up, prints READY, and starts with the first line on its standard input.
 *
 * <p>{@code participant zkUrl}: stands for the one broker of the cluster. It holds ephemeral records and writes all the time, prints READY,
 * and ends when its standard input does; the longest time between two writes that succeeded is what a broker felt.
 */
public final class Peer {
    /** Those of a broker, without its registration: what is registered has to answer questions about its settings. */
    private static final List<String> EPHEMERALS = List.of(
            "/loadbalance/leader",
            "/namespace/tenant000/ns0000/0x00000000_0x55555555",
            "/namespace/tenant000/ns0000/0x55555555_0xaaaaaaaa",
            "/namespace/tenant000/ns0000/0xaaaaaaaa_0xffffffff");
    private static final MetadataStoreConfig CONFIG =
            MetadataStoreConfig.builder().sessionTimeoutMillis(30_000).build();
    private static final long WRITE_EVERY_MS = 20;
    private static final long TIMEOUT_SECONDS = 60;
    private static final String WARM_UP = "/warm-up";
    private static final int WARM_UP_RECORDS = 20_000;
    private static final int WARM_UP_IN_FLIGHT = 1_000;

    private Peer() {
    }

    public static void main(String[] args) throws Exception {
        // Never closed: a DualMetadataStore whose target was never opened cannot be; the process ends instead.
        MetadataStoreExtended store = MetadataStoreFactoryImpl.createExtended(args[1], CONFIG);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        switch (args[0]) {
            case "coordinator" -> coordinate(store, args[2], orders);
            case "participant" -> participate(store, orders);
            default -> throw new IllegalArgumentException("coordinator or participant, not " + args[0]);
        }
        System.exit(0);
    }

    /** Copies some ledgers to a place of their own and removes them: a broker's Java machine has compiled all this. */
    private static void warmUp(MetadataStore source, String targetUrl) throws Exception {
        try (MetadataStore target = MetadataStoreFactoryImpl.create(targetUrl, CONFIG)) {
            Semaphore free = new Semaphore(WARM_UP_IN_FLIGHT);
            for (String path : someLedgers(source)) {
                free.acquire();
                source.get(path)
                        .thenCompose(found -> target.put(WARM_UP + path, found.orElseThrow().getValue(), Optional.empty()))
                        .whenComplete((stat, error) -> free.release());
            }
            if (!free.tryAcquire(WARM_UP_IN_FLIGHT, TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
                throw new TimeoutException("the records of the warm-up were not written");
            }
            target.deleteRecursive(WARM_UP).get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static List<String> someLedgers(MetadataStore source) throws Exception {
        List<String> found = new ArrayList<>();
        for (String group : source.getChildren("/ledgers/00").get(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            String folder = "/ledgers/00/" + group;
            for (String name : source.getChildren(folder).get(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
                found.add(folder + "/" + name);
            }
            if (found.size() >= WARM_UP_RECORDS) {
                break;
            }
        }
        return found;
    }

    private static void coordinate(MetadataStoreExtended store, String target, BufferedReader orders) throws Exception {
        warmUp(store, target);
        MigrationCoordinator coordinator = new MigrationCoordinator(store, target);
        System.out.println("READY");
        orders.readLine();
        long cpu = cpuNanos();
        long start = System.nanoTime();
        coordinator.startMigration();
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf(Locale.ROOT, "{\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"peak_rss_bytes\": %d}%n",
                seconds, (cpuNanos() - cpu) / 1e9, peakRssBytes());
    }

    private static void participate(MetadataStoreExtended store, BufferedReader orders) throws Exception {
        byte[] value = "{\"webServiceUrl\":\"http://127.0.0.1:1\",\"pulsarServiceUrl\":\"pulsar://127.0.0.1:1\"}"
                .getBytes(StandardCharsets.UTF_8);
        for (String path : EPHEMERALS) {
            store.put(path, value, Optional.of(-1L), EnumSet.of(CreateOption.Ephemeral))
                    .get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        }
        Writes writes = new Writes(store, "/bench/participant", value);
        writes.once();
        System.out.println("READY");
        Thread writer = new Thread(writes, "writes");
        writer.start();
        while (orders.readLine() != null) {
            continue;
        }
        writes.ended = true;
        writer.join();
        System.out.printf(Locale.ROOT, "{\"writes\": %d, \"refused\": %d, \"longest_gap_seconds\": %.3f}%n",
                writes.done, writes.refused, writes.longestGapNanos / 1e9);
    }

    private static long cpuNanos() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime();
    }

    private static long peakRssBytes() throws Exception {
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith("VmHWM:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) * 1024)
                .findFirst().orElse(0);
    }

    /** Writes to one record until it is told to end, and then until one more write succeeded. */
    private static final class Writes implements Runnable {
        private final MetadataStoreExtended store;
        private final String path;
        private final byte[] value;
        private volatile boolean ended;
        private long done;
        private long refused;
        private long longestGapNanos;
        private long lastSuccess = System.nanoTime();

        Writes(MetadataStoreExtended store, String path, byte[] value) {
            this.store = store;
            this.path = path;
            this.value = value;
        }

        void once() throws Exception {
            store.put(path, value, Optional.empty()).get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            long now = System.nanoTime();
            longestGapNanos = done == 0 ? 0 : Math.max(longestGapNanos, now - lastSuccess);
            lastSuccess = now;
            done++;
        }

        @Override
        public void run() {
            try {
                while (true) {
                    boolean last = ended;
                    try {
                        once();
                        if (last) {
                            return;
                        }
                    } catch (InterruptedException e) {
                        throw e;
                    } catch (Exception e) {
                        refused++;
                    }
                    Thread.sleep(WRITE_EVERY_MS);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
