"""The bulk jobs of the metadata store migration: survey, copy, compare, find changes, clear."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from clients.equivalence import Equivalence
from clients.store import Partition, Record
from clients.stores import open_reader, revoke_permits
from models.store_url import StoreUrl
from spark.engine import SparkEngine
from spark.metadata_store import tasks
from spark.metadata_store.spec import Comparison, Copied, Pair, Side, SidePart, Some, Surveyed

# Few enough that a difference lists few others, and many enough that a part's sums stay small: 8 bytes a bucket.
_RECORDS_PER_BUCKET = 64
# Sums stay small however large the stores are: 512 KiB for each part.
_MOST_BUCKETS = 1 << 16
_UINT64_MAX = (1 << 64) - 1
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
        unreadable=Some.joined(one.unreadable for one in found),
        misplaced=Some.joined(one.misplaced for one in found),
        too_high=Some.joined(one.too_high for one in found),
        no_version=Some.joined(one.no_version for one in found),
        sessions={session: path for one in found for session, path in one.sessions.items()},
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

    First both sides are added up by buckets of paths; only buckets whose sums differ are listed record by record.

    Args:
        engine: the session.
        pair: both stores.
        records: about how many records there are; sets the number of buckets.
        tag: for `SparkEngine.cancel`.
    """
    buckets = min(_MOST_BUCKETS, 1 << max(10, (records // _RECORDS_PER_BUCKET).bit_length()))
    # The longest parts first, those of the target, so that no core waits for the last one.
    sides = [SidePart(part, of_source=False) for part in _parts(pair, pair.target)]
    sides += [SidePart(part, of_source=True) for part in _parts(pair, pair.source)]
    found = engine.run(sides, partial(tasks.sum_part, pair, buckets), tag=tag, urgent=pair.urgent)
    source = _add([sums for sums, side in zip(found, sides, strict=True) if side.of_source], buckets)
    target = _add([sums for sums, side in zip(found, sides, strict=True) if not side.of_source], buckets)
    differing = frozenset(
        index for index, (mine, theirs) in enumerate(zip(*_words(source, target), strict=True)) if mine != theirs
    )
    # Read again for this: what changes in between shows as different and is written again, which does no harm.
    different = _list_differences(engine, pair, buckets, differing, sides, tag=tag) if differing else []
    # Apart from the sums: a target's count may be higher than wanted, and cannot be lowered.
    different += _lagging_counters(pair, source.counters)
    return Comparison(source.records, tuple(dict.fromkeys(different)), source.ephemerals)


def changed_since(engine: SparkEngine, pair: Pair, zxid: int, *, tag: str) -> set[bytes]:
    """Paths of a ZooKeeper source that were created, set or deleted after a transaction id; reads the whole source."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.changed_part, pair, zxid), tag=tag, urgent=pair.urgent)
    # The root is no record, and does not tell whether its children changed.
    parents = [b"/", *(path for one in found for path in one.parents)]
    # To find many parents, Oxia is asked for all names: once, and not in each task.
    lanes = 1 if pair.target.scheme == "oxia" else engine.width(tag=tag)
    shares = [parents[lane::lanes] for lane in range(lanes)]
    gone = engine.run(shares, partial(tasks.gone_part, pair), tag=tag, urgent=pair.urgent)
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
    # A call with a limit reads what it deletes and little more: it takes small parts, as many as it needs.
    parts = _parts(pair if limit is None else replace(pair, parts=max(pair.parts, _SMALL_PARTS)), url)
    lanes = max(1, len(parts)) if limit is None else engine.width(tag=tag)
    subtrees = [part._replace(singles=()) for part in parts if part.subtrees or part.shard >= 0]
    removed = left = 0
    with _alone(pair, url):
        # A part of which nothing can be deleted does not keep the others from their turn.
        while subtrees and removed < most:
            group, subtrees = subtrees[:lanes], subtrees[lanes:]
            share = max(1, (most - removed) // len(group))
            found = engine.run(group, partial(tasks.clear_part, pair, store, share), tag=tag, urgent=pair.urgent)
            removed += sum(one[0] for one in found)
            left += sum(one[1] for one in found)
        left += len(subtrees)
        singles = tuple(path for part in parts for path in part.singles)
        # The tops last and in one task: what is beneath them was deleted by several others.
        if singles and not left:
            tops = Partition(singles=singles, subtrees=(), shard=-1, start=b"", end=b"")
            removed += tasks.clear_part(pair, store, 1 << 62, tops)[0]
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


def _add(sides: list[Side], buckets: int) -> Side:
    total = array("Q", bytes(8 * buckets))
    for side in sides:
        part = array("Q", side.sums)
        total = array("Q", [(mine + more) & _UINT64_MAX for mine, more in zip(total, part, strict=True)])
    return Side(
        total.tobytes(),
        sum(side.records for side in sides),
        tuple(path for side in sides for path in side.ephemerals),
        tuple(counter for side in sides for counter in side.counters),
    )


def _words(*sides: Side) -> Iterable[array[int]]:
    return (array("Q", side.sums) for side in sides)


def _list_differences(
    engine: SparkEngine,
    pair: Pair,
    buckets: int,
    differing: frozenset[int],
    sides: list[SidePart],
    *,
    tag: str,
) -> list[bytes]:
    found = engine.run(sides, partial(tasks.list_part, pair, buckets, differing), tag=tag, urgent=pair.urgent)
    source: dict[bytes, int] = {}
    target: dict[bytes, int] = {}
    for entries, side in zip(found, sides, strict=True):
        (source if side.of_source else target).update(entries)
    different = [path for path, mine in source.items() if target.get(path) != mine]
    excess = [path for path in target if path not in source]
    return different + _not_carriers(pair, excess)


def _not_carriers(pair: Pair, excess: list[bytes]) -> list[bytes]:
    """Leave out what only carries children: ZooKeeper needs parents that Oxia does without."""
    rules = Equivalence(pair.source, pair.target)
    found = _read(pair, pair.target, excess)
    return [
        path
        for path, record in zip(excess, found, strict=True)
        if not (isinstance(record, Record) and rules.may_stand_alone(record))
    ]


def _lagging_counters(pair: Pair, counters: tuple[tuple[bytes, int], ...]) -> list[bytes]:
    """Paths whose next number in the target is lower than it must be."""
    found = _read(pair, pair.target, [path for path, _ in counters])
    return [
        path
        for (path, least), record in zip(counters, found, strict=True)
        if not (isinstance(record, Record) and record.count >= least)
    ]


def _read(pair: Pair, url: StoreUrl, paths: list[bytes]) -> list[object]:
    if not paths:
        return []
    with open_reader(url, pair.access) as reader:
        return list(reader.read(paths))
