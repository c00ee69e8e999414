import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.broker.resources.ScalableTopicMetadata;
import org.apache.pulsar.broker.service.scalable.SegmentLayout;
import org.apache.pulsar.common.scalable.ScalableTopicHashing;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** The broker's own arithmetic of segments, and the hash by which clients choose segments; it answers as {@link JsonLines} says. */
public final class SegmentLayouts {
    private static final ObjectMapper JSON = ObjectMapperFactory.getMapper().getObjectMapper();

    private SegmentLayouts() {
    }

    public static void main(String[] args) throws Exception {
        JsonLines.serve(SegmentLayouts::perform);
    }

    private static Object perform(JsonNode request) throws Exception {
        return switch (request.get("op").asText()) {
            case "change" -> change(request);
            case "hash" -> hash(request.get("keys"));
            default -> throw new IllegalArgumentException(request.get("op").asText());
        };
    }

    /** The stored value after each of the changes, as brokers write it. */
    private static List<String> change(JsonNode request) throws Exception {
        ScalableTopicMetadata stored = JSON.readValue(request.get("value").asText(), ScalableTopicMetadata.class);
        List<String> values = new ArrayList<>();
        for (JsonNode step : request.get("steps")) {
            SegmentLayout layout = SegmentLayout.fromMetadata(stored);
            JsonNode ids = step.get("ids");
            long now = step.get("now_ms").asLong();
            SegmentLayout changed = switch (step.get("what").asText()) {
                case "split" -> layout.splitSegment(ids.get(0).asLong(), now);
                case "merge" -> layout.mergeSegments(ids.get(0).asLong(), ids.get(1).asLong(), now);
                case "rebucket" -> layout.rebucketSegment(ids.get(0).asLong(), equalSplits(step), now);
                default -> layout.pruneSegment(ids.get(0).asLong());
            };
            stored = changed.toMetadata(stored);
            values.add(JSON.writeValueAsString(stored));
        }
        return values;
    }

    /** Borders of entry buckets of equal width; the broker's own code for it is not public. */
    private static List<Integer> equalSplits(JsonNode step) {
        int buckets = step.get("buckets").asInt();
        List<Integer> splits = new ArrayList<>();
        for (int number = 1; number < buckets; number++) {
            splits.add(number * 0x10000 / buckets);
        }
        return splits;
    }

    private static List<Integer> hash(JsonNode keys) {
        List<Integer> hashes = new ArrayList<>();
        for (JsonNode key : keys) {
            hashes.add(ScalableTopicHashing.segmentHash(ScalableTopicHashing.murmur(key.asText().getBytes(UTF_8))));
        }
        return hashes;
    }
}
