"""Reads a namespace of Oxia: scans by key range, point reads in batches, children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clients.closeable import Closeable
from clients.errors import StoreProtocolError
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import OxiaConnection, Shard
from clients.store import Partition, Record, Unreadable
from models.store_url import StoreUrl

#: Oxia's own keys (terms, commit offsets, sessions' shadows).
INTERNAL = b"__oxia/"

# Gets in one request; the server streams the answers back in messages of about 2 MB.
_GETS = 4096
# More parents than this are looked for in a listing of all keys.
_FEW_LISTED = 100
# Between this many and twice as many keys of a shard are kept to cut it into ranges.
_SAMPLES = 2048


class OxiaReader(Closeable):
    """Reads a namespace and cannot write to it; implements clients.store.StoreReader.

    Keys lie in a shard in the order of their depth (number of slashes), then of their bytes with `/` as the highest. So
    the children of a path are one range, its grandchildren another, and a subtree is one range for each depth. Scans do
    not depend on that; `children` does (keySorting: hierarchical, which Pulsar needs as well).
    """

    def __init__(self, url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
        """Create a client that connects with the first call.

        Args:
            url: the store.
            access: credentials and TLS settings.
            timeout: seconds that a stream may stay silent.
        """
        self.url = url
        self._connection = OxiaConnection(url, access=access, timeout=timeout)

    def partitions(self, wanted: int) -> list[Partition]:
        """Split the namespace into about `wanted` key ranges of as many records each; at least one for each shard.

        With more ranges than shards all keys are listed once.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        shards = self._connection.shards
        if wanted <= len(shards):
            return [_partition(shard, b"", b"") for shard in shards]
        samples = [self._sample(shard) for shard in shards]
        total = sum(count for count, _ in samples)
        partitions: list[Partition] = []
        for shard, (count, keys) in zip(shards, samples, strict=True):
            ranges = min(max(1, round(wanted * count / max(1, total))), len(keys) + 1)
            cuts = [keys[len(keys) * index // ranges] for index in range(1, ranges)]
            partitions += map(_partition, [shard] * ranges, [b"", *cuts], [*cuts, b""])
        return partitions

    def scan(self, partition: Partition) -> Iterator[list[Record | Unreadable]]:
        """Yield all records of one partition, in the shard's order.

        Raises:
            StoreUnreachable: connection lost, or the server fell silent.
            StoreError: see clients.oxia.connection.
        """
        request = pb.RangeScanRequest(
            shard=partition.shard, start_inclusive=partition.start, end_exclusive=partition.end
        )
        for message in self._connection.stream(partition.shard, "RangeScan", request, pb.RangeScanResponse):
            yield [record_of(record.key, record) for record in message.records if not record.key.startswith(INTERNAL)]

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        """Return the records of these paths, in their order; None where there is none.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        records: list[Record | Unreadable | None] = [None] * len(paths)
        by_shard: dict[int, list[int]] = {}
        for index, path in enumerate(paths):
            by_shard.setdefault(self.shard_of(path), []).append(index)
        for shard, indexes in by_shard.items():
            for begin in range(0, len(indexes), _GETS):
                batch = indexes[begin : begin + _GETS]
                for index, answer in zip(batch, self._gets(shard, [paths[index] for index in batch]), strict=True):
                    if answer.status == pb.OK:
                        records[index] = record_of(paths[index], answer)
        return records

    def shard_of(self, path: bytes) -> int:
        """Return the shard that has the record of this path, unless it was written with a partition key.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        return self._connection.shard_of(path)

    def children(self, path: bytes) -> list[bytes]:
        """Return full paths of the direct children, sorted; `[]` if there is none.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        start = path.rstrip(b"/") + b"/"
        keys: list[bytes] = []
        # Keys are hashed whole, so any shard may hold some of the children.
        for shard in self._connection.shards:
            request = pb.ListRequest(shard=shard.id, start_inclusive=start, end_exclusive=start + b"/")
            for message in self._connection.stream(shard.id, "List", request, pb.ListResponse):
                keys.extend(message.keys)
        return sorted(key for key in keys if key != start)

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        """Yield full paths of the direct children of many nodes, in no order.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        if len(paths) <= _FEW_LISTED:
            for path in paths:
                yield from self.children(path)
            return
        parents = {path.rstrip(b"/") for path in paths}
        # Only names, which is far faster than one request after the other.
        for shard in self._connection.shards:
            for message in self._connection.stream(shard.id, "List", pb.ListRequest(shard=shard.id), pb.ListResponse):
                for key in message.keys:
                    if key[: key.rfind(b"/")] in parents and not key.startswith(INTERNAL):
                        yield key

    def misplaced(self, record: Record, shard: int) -> bool:
        """Return whether a record was found on another shard than the one that its key hashes to.

        Such a record was written with a partition key, which Oxia does not return: a copy without it is elsewhere,
        and clients that use the partition key do not find it.
        """
        return self.shard_of(record.path) != shard

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._connection.close()

    def _gets(self, shard: int, paths: list[bytes]) -> Iterator[pb.GetResponse]:
        request = pb.ReadRequest(shard=shard, gets=[pb.GetRequest(key=path, include_value=True) for path in paths])
        answered = 0
        for message in self._connection.stream(shard, "Read", request, pb.ReadResponse):
            answered += len(message.gets)
            yield from message.gets
        # A stream that ends early would make records look absent, and they would be deleted or written again.
        if answered != len(paths):
            raise StoreProtocolError(f"{self.url} answered {answered} of {len(paths)} gets on shard {shard}")

    def _sample(self, shard: Shard) -> tuple[int, list[bytes]]:
        """Return number of keys in a shard, and every n-th of them, in the shard's order."""
        count, stride, samples = 0, 1, list[bytes]()
        request = pb.ListRequest(shard=shard.id)
        for message in self._connection.stream(shard.id, "List", request, pb.ListResponse):
            samples.extend(message.keys[-count % stride :: stride])
            count += len(message.keys)
            while len(samples) >= 2 * _SAMPLES:
                samples, stride = samples[::2], stride * 2
        return count, [key for key in samples if not key.startswith(INTERNAL)]


def _partition(shard: Shard, start: bytes, end: bytes) -> Partition:
    return Partition(singles=(), subtrees=(), shard=shard.id, start=start, end=end)


def record_of(path: bytes, response: pb.GetResponse) -> Record:
    """Return the record in Oxia's answer for a key."""
    version = response.version
    # A shard's first session has the id 0.
    owner = (version.session_id or 1) if version.HasField("session_id") else 0
    return Record(path, response.value, version.version_id, version.modifications_count, owner, 0, 0)
