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

# Few enough that a difference lists few others, and many enough that a part's sums stay small: 8 bytes a bucket.
_RECORDS_PER_BUCKET = 64
# Sums stay small however large the stores are: 512 KiB for each part.
_MOST_BUCKETS = 1 << 16
# Parts of a store, at least, where a job ends after some of them.
_SMALL_PARTS = 256


def survey(engine: SparkEngine, pair: Pair, *, tag: str) -> Surveyed:
    """Count records, bytes, ephemerals and unreadable records of the source; only reads."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.survey_part, pair), tag=tag, urgent=pair.urgent)
    return Surveyed(
        records=sum(one.records for one in found),
        value_bytes=sum(one.value_bytes for one in found),
        ephemerals=sum(one.ephemerals for one in found),
        largest=max((one.largest for one in found), default=(0, b"")),
        unreadable=PathSample.joined(one.unreadable for one in found),
        misplaced=PathSample.joined(one.misplaced for one in found),
        too_high=PathSample.joined(one.too_high for one in found),
        no_version=PathSample.joined(one.no_version for one in found),
        no_znode=PathSample.joined(one.no_znode for one in found),
        sessions={session: path for one in found for session, path in one.sessions.items()},
        others=sum(one.others for one in found),
        nested=PathSample.joined(one.nested for one in found),
        protected=PathSample.joined(one.protected for one in found),
    )


def copy(engine: SparkEngine, pair: Pair, *, tag: str) -> Copied:
    """Copy all persistent records of the source that the target lacks.

    Raises:
        StoreConflict: another attempt claimed the target.
        StoreError: a store failed; what was copied stays, and the job can be repeated.
    """
    pair = replace(pair, parallelism=engine.width(tag=tag))
    with _alone(pair, pair.target):
        found = engine.run(_parts(pair, pair.source), partial(tasks.copy_part, pair), tag=tag, urgent=pair.urgent)
    return Copied(
        records=sum(one.records for one in found),
        value_bytes=sum(one.value_bytes for one in found),
        highest=max((one.highest for one in found), default=0),
    )


def compare(engine: SparkEngine, pair: Pair, *, records: int, tag: str) -> Comparison:
    """Compare both stores whole: path set, values, versions and counters.

    First both sides are added up by buckets of paths; only in buckets whose sums differ records are compared one by
    one, by the tasks. This process gets sums, counts and at most 100 names, however large the stores are.

    Args:
        engine: the session.
        pair: both stores.
        records: about how many records there are; sets the number of buckets.
        tag: for `SparkEngine.cancel`.
    """
    buckets = min(_MOST_BUCKETS, 1 << max(10, (records // _RECORDS_PER_BUCKET).bit_length()))
    # The longest parts first, those of the target, so that no core waits for the last one.
    sides = _sides(pair, of_source=False) + _sides(pair, of_source=True)
    sums = _Sums(buckets)
    engine.fold(sides, partial(tasks.sum_part, pair, buckets), sums.add, tag=tag, urgent=pair.urgent)
    differing = sums.differing()
    found = _Found()
    if differing:
        # Read again for this: what changes in between shows as different and is written again, which does no harm.
        task = partial(tasks.difference_part, pair, differing)
        engine.fold(sides, task, lambda _, one: found.add(one), tag=tag, urgent=pair.urgent)
    return Comparison(sums.records, found.differences(), tuple(sums.ephemerals), differing)


def repair(engine: SparkEngine, pair: Pair, comparison: Comparison, *, tag: str) -> Repaired:
    """Bring in line what a compare found different, however much that is.

    The attempt must hold the claim of the target.

    Raises:
        StoreConflict: another attempt claimed the target.
        StoreError: a store failed; the job can be repeated.
    """
    pair = replace(pair, parallelism=engine.width(tag=tag))
    found, records, highest = _Found(), 0, 0

    def take(_: SidePart, one: Repaired) -> None:
        nonlocal records, highest
        records, highest = records + one.records, max(highest, one.highest)
        found.add(one.left)

    task = partial(tasks.repair_part, pair, comparison.buckets)
    with _alone(pair, pair.target):
        # One side after the other: no two tasks write the same record.
        for of_source in (True, False):
            engine.fold(_sides(pair, of_source=of_source), task, take, tag=tag, urgent=pair.urgent)
    return Repaired(records, found.differences(), highest)


def changed_since(engine: SparkEngine, pair: Pair, zxid: int, *, tag: str) -> set[bytes]:
    """Paths of a ZooKeeper source that were created, set or deleted after a transaction id; reads the whole source."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.changed_part, pair, zxid), tag=tag, urgent=pair.urgent)
    # The root is no record, and does not tell whether its children changed.
    parents = [b"/", *(path for one in found for path in one.parents)]
    # To find many parents, Oxia is asked for all names: once, and not in each task.
    lanes = 1 if pair.target.scheme == "oxia" else engine.width(tag=tag)
    shares = [parents[lane::lanes] for lane in range(lanes)]
    gone = engine.run(shares, partial(tasks.gone_part, pair), tag=tag, urgent=pair.urgent)
    # mutant: metadata-store/a-scan-finds-nothing-changed, metadata-store/a-scan-finds-nothing-deleted
    return {path for one in found for path in one.paths}.union(*gone)


def ephemerals(engine: SparkEngine, pair: Pair, *, tag: str) -> set[bytes]:
    """Paths of the source's ephemerals; reads the whole source."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.ephemeral_part, pair), tag=tag, urgent=pair.urgent)
    return {path for paths in found for path in paths}


def clear(engine: SparkEngine, pair: Pair, store: str, *, limit: int | None = None, tag: str) -> tuple[int, int]:
    """Delete the persistent records of one store; returns how many were deleted, and how many are left.

    With a limit the second number is no more than a hint: it counts each part that was not read as one record. It is 0
    once all was read and no limit stopped the call.

    Args:
        engine: the session.
        pair: both stores.
        store: `source` or `target`.
        limit: about the most records to delete in this call; None deletes all.
        tag: for `SparkEngine.cancel`.
    """
    url = pair.source if store == "source" else pair.target
    most = (1 << 62) if limit is None else limit
    # Small parts: a call with a limit reads what it deletes and little more, and a task holds one part at a time.
    parts = _parts(replace(pair, parts=max(pair.parts, _SMALL_PARTS)), url)
    subtrees = [part._replace(singles=()) for part in parts if part.subtrees or part.shard >= 0]
    # A task opens connections, which costs more than a small part does; without a limit few tasks take them all.
    size = ceil(len(subtrees) / pair.parts) if limit is None else 1
    groups = [subtrees[first : first + size] for first in range(0, len(subtrees), size or 1)]
    lanes = max(1, len(groups)) if limit is None else engine.width(tag=tag)
    removed = left = 0
    with _alone(pair, url):
        # A part of which nothing can be deleted does not keep the others from their turn.
        while groups and removed < most:
            chosen, groups = groups[:lanes], groups[lanes:]
            share = max(1, (most - removed) // len(chosen))
            found = engine.run(chosen, partial(tasks.clear_parts, pair, store, share), tag=tag, urgent=pair.urgent)
            removed += sum(one[0] for one in found)
            # A task holds few records at a time: without a limit it is repeated as long as it gets on.
            again = [limit is None and bool(one[0] and one[1]) for one in found]
            groups += compress(chosen, again)
            left += sum(one[1] for one, more in zip(found, again, strict=True) if not more)
        left += sum(map(len, groups))
        singles = [path for part in parts for path in part.singles]
        # The tops last and in one task: what is beneath them was deleted by several others.
        while singles and not left:
            tops = Partition(singles=tuple(singles), subtrees=(), shard=-1, start=b"", end=b"")
            done, rest = tasks.clear_parts(pair, store, 1 << 62, [tops])
            removed += done
            if not (done and rest):
                break
    return removed, left


@contextmanager
def _alone(pair: Pair, url: StoreUrl) -> Generator[None]:
    """Let the tasks of this job be the only ones that write to a store."""
    # What earlier attempts and runs have on its way must not fall upon what this one does.
    revoke_permits(url, pair.access)
    yield
    # Nor a task of this job, which Spark gave up and repeated, upon what comes after it.
    revoke_permits(url, pair.access)


def _parts(pair: Pair, url: StoreUrl) -> list[Partition]:
    with open_reader(url, pair.access) as reader:
        return reader.partitions(pair.parts)


def _sides(pair: Pair, *, of_source: bool) -> list[SidePart]:
    return [SidePart(part, of_source) for part in _parts(pair, pair.source if of_source else pair.target)]


class _Sums:
    """What tasks add up, the source's sums less the target's."""

    def __init__(self, buckets: int) -> None:
        self.records = 0
        self.ephemerals: list[bytes] = []
        self._buckets = buckets
        self._total = array("Q", bytes(8 * buckets))
        self._lagging: set[int] = set()

    def add(self, side: SidePart, found: Side) -> None:
        """Take what one task found."""
        sign = 1 if side.of_source else -1
        for index, part in enumerate(array("Q", found.sums)):
            if part:
                self._total[index] = (self._total[index] + sign * part) & UINT64_MAX
        self._lagging |= found.lagging
        if side.of_source:
            self.records += found.records
            self.ephemerals += found.ephemerals

    def differing(self) -> Buckets:
        """Where both sides are not the same."""
        return Buckets.of(self._buckets, self._lagging.union(index for index, rest in enumerate(self._total) if rest))


class _Found:
    """Differences of many tasks."""

    def __init__(self) -> None:
        self._paths = 0
        self._named: list[bytes] = []

    def add(self, found: Differences) -> None:
        """Take what one task found."""
        self._paths += found.paths
        self._named += found.named[: NAMED - len(self._named)]

    def differences(self) -> Differences:
        """All together."""
        return Differences(self._paths, tuple(self._named))
