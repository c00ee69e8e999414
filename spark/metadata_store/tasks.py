"""Tasks of a bulk job on an executor: each reads a part of a store, and writes, sums or lists it."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from struct import Struct

from xxhash import xxh3_64_intdigest

from clients.closeable import Closeable
from clients.errors import StoreDenied
from clients.oxia.reader import OxiaReader
from clients.pulsar.roots import is_nested_store, is_pulsars
from clients.store import ABSENT, Partition, Record, Seen, StoreReader, StoreRemover, Unreadable
from clients.stores import MAX_RAISE, open_reader, open_remover, open_writer
from clients.zookeeper.acl import is_own
from clients.zookeeper.reader import ZooKeeperReader
from models.lifecycle.claim import CLAIM, PacedClaim
from models.lifecycle.failures import NAMED
from models.migration_flag import OPEN_PHASES, FlagPhase
from spark.fence import WriteFence, claim_in, require_phase
from spark.metadata_store.equivalence import Equivalence, is_coordination, is_held, migrates
from spark.metadata_store.replica import BATCH_SIZE, Mirror, Replica
from spark.metadata_store.spec import (
    UINT64_MAX,
    Buckets,
    Changed,
    Copied,
    Differences,
    Pair,
    PathSample,
    Repaired,
    Side,
    SidePart,
    Surveyed,
    bucket,
)

_NUMBERS = Struct(">qqI")
_SESSIONS = 1000
# ACLs are read of this many records of a partition, then of one in this many: an ACL needs a request, and takes ten
# times as long as a record.
_ALL_ACLS, _ACL_OF = 5_000, 16
# Most records in memory before they are deleted.
_MOST_DELETIONS = 50_000
# How often a record that still differs is written again.
_TRIES = 3
# From COMPLETED on, services write to the target.
_NOT_COMMITTED = frozenset(FlagPhase) - {FlagPhase.COMPLETED}
_PATH_SET_ROWS = 256


def copy_part(pair: Pair, partition: Partition) -> Copied:
    """Copy the persistent records of one partition; records that the target already has stay as they are."""
    rules = Equivalence(pair.source, pair.target)
    records = value_bytes = highest = 0
    with (
        open_reader(pair.source, pair.access) as reader,
        # Not the connection that scans, which has many requests in flight.
        open_reader(pair.source, pair.access) as source,
        open_reader(pair.target, pair.access) as target,
        ExitStack() as opened,
    ):
        fence = _fence(pair, target, source, _NOT_COMMITTED)
        writer = opened.enter_context(
            open_writer(pair.target, pair.access, keep_versions=rules.keeps_versions, guard=fence.read_claim)
        )
        for batch in reader.scan(partition):
            chosen: list[Record] = []
            for record in batch:
                if isinstance(record, Unreadable):
                    # Skipping it would leave a hole in the copy. PRECHECK blocks on such records, so this one is newer.
                    raise _unreadable(record)
                if migrates(record):
                    chosen.append(record)
            size = sum(len(record.value) for record in chosen)
            # Before the batch is written: an attempt that was given up may wake up here.
            fence.check(size)
            for record in chosen:
                # Never over an existing record: a task that wakes up after the commit must not replace newer state.
                writer.put(rules.wanted(record), over=ABSENT)
                highest = max(highest, record.version)
            records += len(chosen)
            value_bytes += size
        writer.flush()
    return Copied(records, value_bytes, highest)


def survey_part(pair: Pair, partition: Partition) -> Surveyed:
    """Count the records of one part of the source."""
    records = value_bytes = ephemerals = others = 0
    largest = (0, b"")
    problems: dict[str, list[bytes]] = defaultdict(list)
    unasked: list[bytes] = []
    sessions: dict[int, bytes] = {}
    rules = Equivalence(pair.source, pair.target)
    with open_reader(pair.source, pair.access) as reader:
        for batch in reader.scan(partition):
            for record in batch:
                if isinstance(record, Unreadable):
                    problems["unreadable"].append(record.path)
                elif not migrates(record):
                    ephemerals += bool(record.owner)
                    if record.owner and len(sessions) < _SESSIONS and is_held(record.path):
                        sessions.setdefault(record.owner, record.path)
                else:
                    records += 1
                    others += not is_pulsars(record.path)
                    value_bytes += len(record.value)
                    largest = max(largest, (len(record.value), record.path))
                    if records <= _ALL_ACLS or not records % _ACL_OF:
                        unasked.append(record.path)
                    for problem in _problems(rules, record):
                        problems[problem].append(record.path)
            problems["misplaced"] += _misplaced(reader, partition, batch)
            if len(unasked) >= BATCH_SIZE:
                problems["protected"] += _protected(reader, unasked)
                unasked.clear()
        problems["protected"] += _protected(reader, unasked)
    return Surveyed(
        records=records,
        value_bytes=value_bytes,
        ephemerals=ephemerals,
        largest=largest,
        sessions=sessions,
        others=others,
        **{problem: PathSample.of(paths) for problem, paths in problems.items()},
    )


def _problems(rules: Equivalence, record: Record) -> Iterator[str]:
    """Yield the fields of `Surveyed` that count a record, except those that need more than the record."""
    if rules.raise_needed(record) > MAX_RAISE:
        yield "too_high"
    if rules.has_no_version(record):
        yield "no_version"
    if rules.has_no_znode(record):
        yield "no_znode"
    if is_nested_store(record.path):
        yield "nested"


def digest_of(record: Record, numbers: tuple[int, int]) -> int:
    """Return a 64-bit digest of path, value, version and count."""
    head = _NUMBERS.pack(numbers[0], numbers[1], len(record.path))
    return xxh3_64_intdigest(head + record.path + record.value)


def sum_part(pair: Pair, buckets: int, side: SidePart) -> Side:
    """Sum the digests of one part of one side, by bucket."""
    rules = Equivalence(pair.source, pair.target)
    numbers = rules.source_numbers if side.of_source else rules.target_numbers
    sums = array("Q", bytes(8 * buckets))
    records = 0
    ephemerals: list[bytes] = []
    with ExitStack() as opened:
        # A target's count may be higher than required and cannot be lowered, so it is not in the sums.
        separate = side.of_source and rules.target_is_zookeeper
        counters = opened.enter_context(_Counters(pair, buckets)) if separate else None
        for record in _records(pair, side):
            if not migrates(record):
                if record.owner:
                    ephemerals.append(record.path)
                continue
            index = bucket(record.path, buckets)
            # Summed and not chained, so that any task can read parts in any order.
            sums[index] = (sums[index] + digest_of(record, numbers(record))) & UINT64_MAX
            records += 1
            if counters and (least := rules.counter(record)):
                counters.add(record.path, least)
        lagging = counters.lagging() if counters else frozenset[int]()
    return Side(sums.tobytes(), records, tuple(ephemerals), lagging)


class _Counters(Closeable):
    """Checks whether next numbers in the target are high enough, many at a time; a context manager."""

    def __init__(self, pair: Pair, buckets: int) -> None:
        self._buckets = buckets
        self._reader = open_reader(pair.target, pair.access)
        self._least: dict[bytes, int] = {}
        self._lagging: set[int] = set()

    def add(self, path: bytes, least: int) -> None:
        """Queue a path for the check."""
        self._least[path] = least
        if len(self._least) >= BATCH_SIZE:
            self._check()

    def lagging(self) -> frozenset[int]:
        """Return the buckets of the paths whose next number is too low."""
        self._check()
        return frozenset(self._lagging)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def _check(self) -> None:
        paths = list(self._least)
        for path, record in zip(paths, self._reader.read(paths) if paths else [], strict=True):
            if not (isinstance(record, Record) and record.count >= self._least[path]):
                self._lagging.add(bucket(path, self._buckets))
        self._least.clear()


def difference_part(pair: Pair, buckets: Buckets, side: SidePart) -> Differences:
    """Compare the records of one part of one side that fall into some buckets with those of the other side.

    Records of both sides are counted on the source's side.
    """
    count, named = 0, list[bytes]()
    with Mirror(pair) as mirror:
        for records in _in_buckets(pair, buckets, side):
            different = _different(mirror, side, records)
            count += len(different)
            named += different[: NAMED - len(named)]
    return Differences(count, tuple(named))


def repair_part(pair: Pair, buckets: Buckets, side: SidePart) -> Repaired:
    """Repair the records of one part that fall into some buckets, and compare them again.

    Records that changed since, or cannot be kept, still differ then.
    """
    checked, count, named = 0, 0, list[bytes]()
    with open_reader(pair.source, pair.access) as source, open_reader(pair.target, pair.access) as target:
        fence = _fence(pair, target, source, _NOT_COMMITTED)
        with Replica(pair, fence.read_claim) as replica:
            for records in _in_buckets(pair, buckets, side):
                different = _different(replica, side, records)
                fence.check(sum(records[path] for path in different))
                for _ in range(_TRIES):
                    replica.apply(different)
                    different = replica.differences(different)
                checked += len(records)
                count += len(different)
                named += different[: NAMED - len(named)]
            return Repaired(checked, Differences(count, tuple(named)), replica.highest)


def _different(mirror: Mirror, side: SidePart, paths: Iterable[bytes]) -> list[bytes]:
    return mirror.differences(paths) if side.of_source else mirror.excess(paths)


def _in_buckets(pair: Pair, buckets: Buckets, side: SidePart) -> Iterator[dict[bytes, int]]:
    """Yield the migrating paths of one part of one side that fall into some buckets, with the sizes of their values."""
    sizes: dict[bytes, int] = {}
    for record in _records(pair, side):
        if migrates(record) and buckets.hold(record.path):
            sizes[record.path] = len(record.value)
            if len(sizes) >= BATCH_SIZE:
                yield sizes
                sizes = {}
    if sizes:
        yield sizes


def changed_part(pair: Pair, since: int, partition: Partition) -> Changed:
    """Return what changed in one part of a ZooKeeper source after a transaction id, according to the records.

    A node's own transaction ids show that it was created or set; that of its children, that they changed.
    """
    paths: list[bytes] = []
    parents: list[bytes] = []
    for record in _records(pair, SidePart(partition, of_source=True)):
        # mutant: metadata-store/a-scan-misses-what-was-set
        if max(record.changed, record.children_changed) > since and not is_coordination(record.path):
            paths.append(record.path)
            if record.children_changed > since:
                parents.append(record.path)
    return Changed(paths, parents)


def gone_part(pair: Pair, parents: Sequence[bytes]) -> list[bytes]:
    """Return the paths beneath these parents that the target has and the source no longer has.

    A deleted node leaves only a later transaction id at its parent in the source; the target still has its name.
    """
    with open_reader(pair.source, pair.access) as source, open_reader(pair.target, pair.access) as target:
        # Digests only: a parent that lost one child may have many others.
        existing = PathSet(source.children_of(parents))
        missing = list(dict.fromkeys(path for path in target.children_of(parents) if path not in existing))
        gone: list[bytes] = []
        while missing:
            gone += missing
            missing = list(dict.fromkeys(target.children_of(missing)))
    return [path for path in gone if not is_coordination(path)]


def ephemeral_part(pair: Pair, partition: Partition) -> list[bytes]:
    """Return the paths of the ephemerals in one part of the source."""
    return [record.path for record in _records(pair, SidePart(partition, of_source=True)) if record.owner]


def clear_parts(pair: Pair, store: str, limit: int, parts: Sequence[Partition]) -> tuple[int, int]:
    """Delete up to `limit` persistent records of each of these parts of the `source` or the `target`, children first.

    Ephemerals, the coordinator's subtree and znodes that carry either stay. A source keeps everything that is not
    Pulsar's, because its root may be shared. Returns how many records were deleted, and how many remain: of a
    large partition
    some remain even without a limit.
    """
    of_target = store == "target"
    removed = remaining = 0
    with ExitStack() as opened:
        reader = opened.enter_context(open_reader(pair.target if of_target else pair.source, pair.access))
        source = opened.enter_context(open_reader(pair.source, pair.access)) if of_target else None
        fence = _fence(pair, reader, source, OPEN_PHASES)
        remover = opened.enter_context(open_remover(reader.url, pair.access, fence.read_claim))
        for partition in parts:
            done, rest = _clear_part(reader, remover, limit, partition, of_target=of_target)
            removed, remaining = removed + done, remaining + rest
    return removed, remaining


def _clear_part(
    reader: StoreReader, remover: StoreRemover, limit: int, partition: Partition, *, of_target: bool
) -> tuple[int, int]:
    count = 0

    def deletable() -> Iterator[Seen]:
        nonlocal count
        for batch in reader.scan(partition):
            for record in batch:
                if isinstance(record, Record) and migrates(record) and (of_target or is_pulsars(record.path)):
                    count += 1
                    yield Seen(record.path, record.version)

    # The deepest first: ZooKeeper does not delete a node that has children.
    to_delete = heapq.nlargest(min(limit, _MOST_DELETIONS), deletable(), key=lambda record: record.path.count(b"/"))
    return remover.remove(to_delete), count - len(to_delete)


def _fence(pair: Pair, store: StoreReader, source: StoreReader | None, phases: Collection[FlagPhase]) -> WriteFence:
    """Return the fence of tasks that write to a store: the claim in that store and the flag in the source.

    Args:
        pair: both stores.
        store: store that is written.
        source: store with the flag; None for tasks that write in any phase.
        phases: phases in which the flag must be. Pulsar's own command may migrate the same cluster to the same target,
                and does not read claims.
    """

    def claim() -> PacedClaim | None:
        if source is not None:  # mutant: metadata-store/bulk-jobs-do-not-read-the-flag
            require_phase(source, phases)
        return claim_in(store, CLAIM, PacedClaim)

    return WriteFence(
        claim, attempt=pair.attempt, what=str(store.url), parallelism=pair.parallelism, paced=not pair.urgent
    )


def _records(pair: Pair, side: SidePart) -> Iterator[Record]:
    with open_reader(pair.source if side.of_source else pair.target, pair.access) as reader:
        for batch in reader.scan(side.partition):
            for record in batch:
                if isinstance(record, Unreadable):
                    raise _unreadable(record)
                yield record


def _unreadable(record: Unreadable) -> StoreDenied:
    return StoreDenied(f"{record.path.decode(errors='replace')} cannot be read: {record.reason}", path=record.path)


def _protected(reader: StoreReader, paths: Sequence[bytes]) -> list[bytes]:
    # A copy has no ACL: Oxia has none, and ACLs are not copied to ZooKeeper. A writer protects nodes of ours again.
    asked = [path for path in paths if not is_own(path)]
    # mutant: metadata-store/acls-are-not-read
    return reader.protected(asked) if isinstance(reader, ZooKeeperReader) else []


def _misplaced(reader: StoreReader, partition: Partition, batch: list[Record | Unreadable]) -> list[bytes]:
    if not isinstance(reader, OxiaReader):
        return []
    return [record.path for record in batch if isinstance(record, Record) and reader.misplaced(record, partition.shard)]


class PathSet:
    """Set of paths, at eight bytes each; two paths collide with a probability of 1 in 2^64."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        rows = [array("Q") for _ in range(_PATH_SET_ROWS)]
        for path in paths:
            digest = xxh3_64_intdigest(path)
            rows[digest % _PATH_SET_ROWS].append(digest)
        # Row by row: Python sorts objects, which take five times the memory.
        for index, row in enumerate(rows):
            rows[index] = array("Q", sorted(row))
        self._rows = rows

    def __contains__(self, path: bytes) -> bool:
        digest = xxh3_64_intdigest(path)
        row = self._rows[digest % _PATH_SET_ROWS]
        position = bisect_left(row, digest)
        return position < len(row) and row[position] == digest
