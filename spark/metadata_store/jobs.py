"""The bulk jobs of the metadata store migration: survey, copy, compare, find changes, clear."""

from __future__ import annotations

from array import array
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import compress
from math import ceil

from clients.store import Partition
from clients.stores import open_reader, revoke_permits
from models.lifecycle.failures import NAMED
from models.store_url import StoreUrl
from spark.engine import SparkEngine
from spark.metadata_store import tasks
from spark.metadata_store.spec import (
    UINT64_MAX,
    Buckets,
    Comparison,
    Copied,
    Differences,
    Pair,
    PathSample,
    Repaired,
    Side,
    SidePart,
    Surveyed,
)

# Few enough that a differing bucket lists few equal records, many enough that sums stay small: 8 bytes a bucket.
_RECORDS_PER_BUCKET = 64
# Keeps sums small however large the stores are: 512 KiB for each partition.
_MOST_BUCKETS = 1 << 16
# Least number of parts of a store, for a job that may end after some of them.
_SMALL_PARTS = 256


def survey(engine: SparkEngine, pair: Pair, *, tag: str) -> Surveyed:
    """Count records, bytes, ephemerals and unreadable records of the source; read only."""
    results = engine.run(_parts(pair, pair.source), partial(tasks.survey_part, pair), tag=tag, urgent=pair.urgent)
    return Surveyed(
        records=sum(result.records for result in results),
        value_bytes=sum(result.value_bytes for result in results),
        ephemerals=sum(result.ephemerals for result in results),
        largest=max((result.largest for result in results), default=(0, b"")),
        unreadable=PathSample.joined(result.unreadable for result in results),
        misplaced=PathSample.joined(result.misplaced for result in results),
        too_high=PathSample.joined(result.too_high for result in results),
        no_version=PathSample.joined(result.no_version for result in results),
        no_znode=PathSample.joined(result.no_znode for result in results),
        sessions={session: path for result in results for session, path in result.sessions.items()},
        others=sum(result.others for result in results),
        nested=PathSample.joined(result.nested for result in results),
        protected=PathSample.joined(result.protected for result in results),
    )


def copy(engine: SparkEngine, pair: Pair, *, tag: str) -> Copied:
    """Copy all persistent records of the source that the target lacks.

    Raises:
        StoreConflict: another attempt claimed the target.
        StoreError: a store failed; copied records stay, and the job can be repeated.
    """
    pair = replace(pair, parallelism=engine.width(tag=tag))
    with _exclusive_writer(pair, pair.target):
        results = engine.run(_parts(pair, pair.source), partial(tasks.copy_part, pair), tag=tag, urgent=pair.urgent)
    return Copied(
        records=sum(result.records for result in results),
        value_bytes=sum(result.value_bytes for result in results),
        highest=max((result.highest for result in results), default=0),
    )


def compare(engine: SparkEngine, pair: Pair, *, records: int, tag: str) -> Comparison:
    """Compare both stores completely: paths, values, versions and counters.

    First both sides are summed by buckets of paths. Only in buckets whose sums differ do tasks compare single records.
    This process gets sums, counts and at most 100 names, however large the stores are.

    Args:
        engine: the Spark engine.
        pair: both stores.
        records: approximate number of records; it sets the number of buckets.
        tag: for `SparkEngine.cancel`.
    """
    buckets = min(_MOST_BUCKETS, 1 << max(10, (records // _RECORDS_PER_BUCKET).bit_length()))
    # The longest parts, those of the target, first, so that no core waits for the last one.
    sides = _sides(pair, of_source=False) + _sides(pair, of_source=True)
    sums = _Sums(buckets)
    engine.fold(sides, partial(tasks.sum_part, pair, buckets), sums.add, tag=tag, urgent=pair.urgent)
    differing = sums.differing()
    total = _DifferenceTotal()
    if differing:
        # Records are read again: one that changed in between counts as different and is repaired, which is harmless.
        task = partial(tasks.difference_part, pair, differing)
        engine.fold(sides, task, lambda _, differences: total.add(differences), tag=tag, urgent=pair.urgent)
    return Comparison(sums.records, total.differences(), tuple(sums.ephemerals), differing)


def repair(engine: SparkEngine, pair: Pair, comparison: Comparison, *, tag: str) -> Repaired:
    """Repair what a compare reported as different, however much it is.

    The attempt must hold the claim of the target.

    Raises:
        StoreConflict: another attempt claimed the target.
        StoreError: a store failed; the job can be repeated.
    """
    pair = replace(pair, parallelism=engine.width(tag=tag))
    task = partial(tasks.repair_part, pair, comparison.buckets)
    records = highest = 0

    def repair_side(*, of_source: bool) -> Differences:
        remaining = _DifferenceTotal()

        def take(_: SidePart, result: Repaired) -> None:
            nonlocal records, highest
            records, highest = records + result.records, max(highest, result.highest)
            remaining.add(result.remaining)

        engine.fold(_sides(pair, of_source=of_source), task, take, tag=tag, urgent=pair.urgent)
        return remaining.differences()

    with _exclusive_writer(pair, pair.target):
        # One side after the other, so that no two tasks write the same record.
        different, excess = repair_side(of_source=True), repair_side(of_source=False)
        progress = True
        # ZooKeeper deletes a node after its children, which may be in a later batch or in another part. So the excess
        # goes level by level.
        while progress and not excess.all_named:  # mutant: metadata-store/excess-parents-stay
            before, excess = excess, repair_side(of_source=False)
            progress = excess.paths < before.paths
    total = _DifferenceTotal()
    total.add(different)
    total.add(excess)
    return Repaired(records, total.differences(), highest)


def changed_since(engine: SparkEngine, pair: Pair, zxid: int, *, tag: str) -> set[bytes]:
    """Return the paths of a ZooKeeper source that changed after a transaction id; read the whole source."""
    results = engine.run(
        _parts(pair, pair.source), partial(tasks.changed_part, pair, zxid), tag=tag, urgent=pair.urgent
    )
    # The root is not a record, so the scan does not report whether its children changed.
    parents = [b"/", *(path for result in results for path in result.parents)]
    # To find many parents, Oxia is asked for all names: once, not in each task.
    share_count = 1 if pair.target.scheme == "oxia" else engine.width(tag=tag)
    shares = [parents[index::share_count] for index in range(share_count)]
    gone = engine.run(shares, partial(tasks.gone_part, pair), tag=tag, urgent=pair.urgent)
    # mutant: metadata-store/a-scan-finds-nothing-changed, metadata-store/a-scan-finds-nothing-deleted
    return {path for result in results for path in result.paths}.union(*gone)


def ephemerals(engine: SparkEngine, pair: Pair, *, tag: str) -> set[bytes]:
    """Return the paths of the source's ephemerals; read the whole source."""
    results = engine.run(_parts(pair, pair.source), partial(tasks.ephemeral_part, pair), tag=tag, urgent=pair.urgent)
    return {path for paths in results for path in paths}


def clear(engine: SparkEngine, pair: Pair, store: str, *, limit: int | None = None, tag: str) -> tuple[int, int]:
    """Delete the persistent records of one store; return how many were deleted, and how many remain.

    With a limit the second number is only a hint: each part that was not read counts as one record. It is 0 once
    everything was read and no limit stopped the call.

    Args:
        engine: the Spark engine.
        pair: both stores.
        store: `source` or `target`.
        limit: approximate maximum of deletions in this call; None deletes everything.
        tag: for `SparkEngine.cancel`.
    """
    url = pair.source if store == "source" else pair.target
    most = (1 << 62) if limit is None else limit
    # Small parts: a call with a limit reads little more than it deletes, and a task holds one part at a time.
    parts = _parts(replace(pair, parts=max(pair.parts, _SMALL_PARTS)), url)
    subtrees = [partition._replace(singles=()) for partition in parts if partition.subtrees or partition.shard >= 0]
    # Opening a task's connections costs more than a small part does, so without a limit few tasks take all parts.
    size = ceil(len(subtrees) / pair.parts) if limit is None else 1
    groups = [subtrees[first : first + size] for first in range(0, len(subtrees), size or 1)]
    batch_size = max(1, len(groups)) if limit is None else engine.width(tag=tag)
    removed = remaining = 0
    with _exclusive_writer(pair, url):
        # A partition in which nothing can be deleted must not keep the others waiting.
        while groups and removed < most:
            chosen, groups = groups[:batch_size], groups[batch_size:]
            share = max(1, (most - removed) // len(chosen))
            results = engine.run(chosen, partial(tasks.clear_parts, pair, store, share), tag=tag, urgent=pair.urgent)
            removed += sum(deleted for deleted, _ in results)
            # A task holds few records at a time: without a limit it is repeated as long as it makes progress.
            again = [limit is None and bool(deleted and rest) for deleted, rest in results]
            groups += compress(chosen, again)
            remaining += sum(rest for (_, rest), more in zip(results, again, strict=True) if not more)
        remaining += sum(map(len, groups))
        singles = [path for partition in parts for path in partition.singles]
        # The top nodes last and in one task: several other tasks deleted what is beneath them.
        while singles and not remaining:
            tops = Partition(singles=tuple(singles), subtrees=(), shard=-1, start=b"", end=b"")
            done, rest = tasks.clear_parts(pair, store, 1 << 62, [tops])
            removed += done
            if not (done and rest):
                break
    return removed, remaining


@contextmanager
def _exclusive_writer(pair: Pair, url: StoreUrl) -> Generator[None]:
    """Keep other writers out of a store while the tasks of this job write to it."""
    # Late writes of earlier attempts and runs must not overwrite what this job does.
    revoke_permits(url, pair.access)
    yield
    # Nor may a task of this job that Spark gave up and repeated overwrite what follows.
    revoke_permits(url, pair.access)


def _parts(pair: Pair, url: StoreUrl) -> list[Partition]:
    with open_reader(url, pair.access) as reader:
        return reader.partitions(pair.parts)


def _sides(pair: Pair, *, of_source: bool) -> list[SidePart]:
    return [SidePart(partition, of_source) for partition in _parts(pair, pair.source if of_source else pair.target)]


class _Sums:
    """Sums of the source less those of the target."""

    def __init__(self, buckets: int) -> None:
        self.records = 0
        self.ephemerals: list[bytes] = []
        self._buckets = buckets
        self._total = array("Q", bytes(8 * buckets))
        self._lagging: set[int] = set()

    def add(self, side: SidePart, result: Side) -> None:
        """Add the result of one task."""
        sign = 1 if side.of_source else -1
        for index, value in enumerate(array("Q", result.sums)):
            if value:
                self._total[index] = (self._total[index] + sign * value) & UINT64_MAX
        self._lagging |= result.lagging
        if side.of_source:
            self.records += result.records
            self.ephemerals += result.ephemerals

    def differing(self) -> Buckets:
        """Return the buckets in which the sides differ."""
        return Buckets.of(self._buckets, self._lagging.union(index for index, rest in enumerate(self._total) if rest))


class _DifferenceTotal:
    """Sum of the differences of many tasks."""

    def __init__(self) -> None:
        self._paths = 0
        self._named: list[bytes] = []

    def add(self, differences: Differences) -> None:
        """Add the differences of one task."""
        self._paths += differences.paths
        self._named += differences.named[: NAMED - len(self._named)]

    def differences(self) -> Differences:
        """Return all differences."""
        return Differences(self._paths, tuple(self._named))
