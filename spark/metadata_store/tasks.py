"""What one task of a bulk job does on an executor: read a part of a store, and write, add up or list it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from struct import Struct

from xxhash import xxh3_64_intdigest

from clients.equivalence import Equivalence, is_coordination, is_recreated, migrates
from clients.errors import StoreDenied
from clients.oxia.reader import OxiaReader
from clients.store import ABSENT, Partition, Record, Seen, StoreReader, Unreadable
from clients.stores import MAX_RAISE, open_reader, open_remover, open_writer
from models.lifecycle.claim import CLAIM, PacedClaim
from spark.fence import WriteFence, claim_in
from spark.metadata_store.spec import Changed, Copied, Pair, Side, SidePart, Some, Surveyed

_NUMBERS = Struct(">qqI")
_UINT64_MAX = (1 << 64) - 1
_SESSIONS = 1000


def copy_part(pair: Pair, part: Partition) -> Copied:
    """Copy the persistent records of one part; records that stand in the target already are left as they are."""
    rules = Equivalence(pair.source, pair.target)
    records = value_bytes = highest = 0
    with (
        open_reader(pair.source, pair.access) as reader,
        open_reader(pair.target, pair.access) as target,
        ExitStack() as opened,
    ):
        fence = _fence(pair, target)
        writer = opened.enter_context(
            open_writer(pair.target, pair.access, keep_versions=rules.keeps_versions, guard=fence.look)
        )
        for batch in reader.scan(part):
            chosen: list[Record] = []
            for record in batch:
                if isinstance(record, Unreadable):
                    # Left out, it would be a hole in the copy. PRECHECK blocks on such records, so this one came later.
                    raise _unreadable(record)
                if migrates(record):
                    chosen.append(record)
            size = sum(len(record.value) for record in chosen)
            # Before the batch is written: an attempt that was given up may wake up here.
            fence.check(size)
            for record in chosen:
                # Never over what stands: a task that wakes up behind the commit must not replace newer state.
                writer.put(rules.wanted(record), over=ABSENT)
                highest = max(highest, record.version)
            records += len(chosen)
            value_bytes += size
        writer.flush()
    return Copied(records, value_bytes, highest)


def survey_part(pair: Pair, part: Partition) -> Surveyed:
    """Count what one part of the source holds."""
    records = value_bytes = ephemerals = 0
    largest = (0, b"")
    unreadable: list[bytes] = []
    misplaced: list[bytes] = []
    too_high: list[bytes] = []
    no_version: list[bytes] = []
    sessions: dict[int, bytes] = {}
    rules = Equivalence(pair.source, pair.target)
    with open_reader(pair.source, pair.access) as reader:
        for batch in reader.scan(part):
            for record in batch:
                if isinstance(record, Unreadable):
                    unreadable.append(record.path)
                elif not migrates(record):
                    ephemerals += bool(record.owner)
                    if record.owner and len(sessions) < _SESSIONS and is_recreated(record.path):
                        sessions.setdefault(record.owner, record.path)
                else:
                    records += 1
                    value_bytes += len(record.value)
                    largest = max(largest, (len(record.value), record.path))
                    if rules.raise_needed(record) > MAX_RAISE:
                        too_high.append(record.path)
                    if rules.has_no_version(record):
                        no_version.append(record.path)
            misplaced += _misplaced(reader, part, batch)
    return Surveyed(
        records,
        value_bytes,
        ephemerals,
        largest,
        Some.of(unreadable),
        Some.of(misplaced),
        Some.of(too_high),
        Some.of(no_version),
        sessions,
    )


def digest(record: Record, numbers: tuple[int, int]) -> int:
    """64-bit digest of path, value, version and count."""
    head = _NUMBERS.pack(numbers[0], numbers[1], len(record.path))
    return xxh3_64_intdigest(head + record.path + record.value)


def bucket(path: bytes, buckets: int) -> int:
    """The bucket of a path; `buckets` is a power of two."""
    return xxh3_64_intdigest(path) & (buckets - 1)


def sum_part(pair: Pair, buckets: int, side: SidePart) -> Side:
    """Add up the digests of one part of one side, by bucket."""
    rules = Equivalence(pair.source, pair.target)
    numbers = rules.source_numbers if side.of_source else rules.target_numbers
    sums = array("Q", bytes(8 * buckets))
    records = 0
    ephemerals: list[bytes] = []
    counters: list[tuple[bytes, int]] = []
    collect = side.of_source and rules.target_is_zookeeper
    for record in _records(pair, side):
        if not migrates(record):
            if record.owner:
                ephemerals.append(record.path)
            continue
        index = bucket(record.path, buckets)
        # Added up and not chained, so that parts can be read in any order, by any task.
        sums[index] = (sums[index] + digest(record, numbers(record))) & _UINT64_MAX
        records += 1
        if collect and (least := rules.counter(record)):
            counters.append((record.path, least))
    return Side(sums.tobytes(), records, tuple(ephemerals), tuple(counters))


def list_part(pair: Pair, buckets: int, wanted: frozenset[int], side: SidePart) -> list[tuple[bytes, int]]:
    """Path and digest of the records of one part of one side that fall into the wanted buckets."""
    rules = Equivalence(pair.source, pair.target)
    numbers = rules.source_numbers if side.of_source else rules.target_numbers
    return [
        (record.path, digest(record, numbers(record)))
        for record in _records(pair, side)
        if migrates(record) and bucket(record.path, buckets) in wanted
    ]


def changed_part(pair: Pair, since: int, part: Partition) -> Changed:
    """What changed in one part of a ZooKeeper source after a transaction id, as its records tell themselves.

    A node's own transaction ids tell that it was created or set; that of its last child, that children came or went.
    """
    paths: list[bytes] = []
    parents: list[bytes] = []
    for record in _records(pair, SidePart(part, of_source=True)):
        if max(record.changed, record.children_changed) > since and not is_coordination(record.path):
            paths.append(record.path)
            if record.children_changed > since:
                parents.append(record.path)
    return Changed(paths, parents)


def gone_part(pair: Pair, parents: Sequence[bytes]) -> list[bytes]:
    """Paths beneath these parents that stand in the target, and in the source no more.

    A deleted node leaves nothing in the source but a later transaction id of its parent; the target knows its name.
    """
    with open_reader(pair.source, pair.access) as source, open_reader(pair.target, pair.access) as target:
        found = set(target.children_of(parents)).difference(source.children_of(parents))
        gone: list[bytes] = []
        while found:
            gone += found
            found = set(target.children_of(list(found)))
    return [path for path in gone if not is_coordination(path)]


def ephemeral_part(pair: Pair, part: Partition) -> list[bytes]:
    """Paths of the ephemerals in one part of the source."""
    return [record.path for record in _records(pair, SidePart(part, of_source=True)) if record.owner]


def clear_part(pair: Pair, store: str, limit: int, part: Partition) -> tuple[int, int]:
    """Delete up to `limit` persistent records of one part of the `source` or the `target`, children first.

    Ephemerals, the coordinator's subtree and znodes that carry either stay. Returns how many were deleted, and how many
    are left.
    """
    with open_reader(pair.source if store == "source" else pair.target, pair.access) as reader:
        doomed = [
            Seen(record.path, record.version)
            for batch in reader.scan(part)
            for record in batch
            if isinstance(record, Record) and migrates(record)
        ]
        # The deepest first: ZooKeeper deletes no node that has children.
        doomed.sort(key=lambda seen: seen.path.count(b"/"), reverse=True)
        with open_remover(reader.url, pair.access, _fence(pair, reader).look) as remover:
            return remover.remove(doomed[:limit]), max(len(doomed) - limit, 0)


def _fence(pair: Pair, store: StoreReader) -> WriteFence:
    """Of tasks that write to a store, by the claim in that store."""
    claim = partial(claim_in, store, CLAIM, PacedClaim)
    return WriteFence(
        claim, attempt=pair.attempt, what=str(store.url), parallelism=pair.parallelism, paced=not pair.urgent
    )


def _records(pair: Pair, side: SidePart) -> Iterator[Record]:
    with open_reader(pair.source if side.of_source else pair.target, pair.access) as reader:
        for batch in reader.scan(side.part):
            for record in batch:
                if isinstance(record, Unreadable):
                    raise _unreadable(record)
                yield record


def _unreadable(record: Unreadable) -> StoreDenied:
    return StoreDenied(f"{record.path.decode(errors='replace')} cannot be read: {record.reason}", path=record.path)


def _misplaced(reader: StoreReader, part: Partition, batch: list[Record | Unreadable]) -> list[bytes]:
    if not isinstance(reader, OxiaReader):
        return []
    return [record.path for record in batch if isinstance(record, Record) and reader.misplaced(record, part.shard)]
