"""The bulk jobs of the metadata store migration: survey, copy, compare, find changes, clear."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from clients.equivalence import Equivalence
from clients.store import Partition, Record
from clients.stores import open_reader
from models.store_url import StoreUrl
from spark.engine import SparkEngine
from spark.metadata_store import tasks
from spark.metadata_store.spec import Comparison, Copied, Pair, Side, SidePart, Surveyed

# Few enough that a difference lists few others, and many enough that a part's sums stay small: 8 bytes a bucket.
_RECORDS_PER_BUCKET = 64
_UINT64_MAX = (1 << 64) - 1


def survey(engine: SparkEngine, pair: Pair, *, tag: str) -> Surveyed:
    """Count records, bytes, ephemerals and unreadable records of the source; only reads."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.survey_part, pair), tag=tag)
    return Surveyed(
        records=sum(one.records for one in found),
        value_bytes=sum(one.value_bytes for one in found),
        ephemerals=sum(one.ephemerals for one in found),
        largest=max((one.largest for one in found), default=(0, b"")),
        unreadable=tuple(path for one in found for path in one.unreadable)[:100],
        unreadable_count=sum(one.unreadable_count for one in found),
        misplaced=tuple(path for one in found for path in one.misplaced)[:100],
        too_high=tuple(path for one in found for path in one.too_high)[:100],
    )


def copy(engine: SparkEngine, pair: Pair, *, tag: str) -> Copied:
    """Copy all persistent records of the source that the target lacks.

    Raises:
        StoreConflict: another attempt claimed the target.
        StoreError: a store failed; what was copied stays, and the job can be repeated.
    """
    pair = replace(pair, parallelism=engine.parallelism)
    found = engine.run(_parts(pair, pair.source), partial(tasks.copy_part, pair), tag=tag)
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
    buckets = 1 << max(10, (records // _RECORDS_PER_BUCKET).bit_length())
    # The longest parts first, those of the target, so that no core waits for the last one.
    sides = [SidePart(part, of_source=False) for part in _parts(pair, pair.target)]
    sides += [SidePart(part, of_source=True) for part in _parts(pair, pair.source)]
    found = engine.run(sides, partial(tasks.sum_part, pair, buckets), tag=tag)
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
    found = engine.run(_parts(pair, pair.source), partial(tasks.changed_part, pair, zxid), tag=tag)
    return {path for paths in found for path in paths}


def ephemerals(engine: SparkEngine, pair: Pair, *, tag: str) -> set[bytes]:
    """Paths of the source's ephemerals; reads the whole source."""
    found = engine.run(_parts(pair, pair.source), partial(tasks.ephemeral_part, pair), tag=tag)
    return {path for paths in found for path in paths}


def clear(engine: SparkEngine, pair: Pair, store: str, *, limit: int | None = None, tag: str) -> tuple[int, int]:
    """Delete the persistent records of one store; returns how many were deleted, and how many are left.

    Args:
        engine: the session.
        pair: both stores.
        store: `source` or `target`.
        limit: about the most records to delete in this call; None deletes all.
        tag: for `SparkEngine.cancel`.
    """
    parts = _parts(pair, pair.source if store == "source" else pair.target)
    share = (1 << 62) if limit is None else max(1, limit // max(1, len(parts)))
    subtrees = [part._replace(singles=()) for part in parts]
    found = engine.run(subtrees, partial(tasks.clear_part, pair, store, share), tag=tag)
    removed, left = sum(one[0] for one in found), sum(one[1] for one in found)
    singles = tuple(path for part in parts for path in part.singles)
    # The tops last and in one task: what is beneath them was deleted by several others.
    if singles and not left:
        tops = Partition(singles=singles, subtrees=(), shard=-1, start=b"", end=b"")
        removed += tasks.clear_part(pair, store, 1 << 62, tops)[0]
    return removed, left


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
    found = engine.run(sides, partial(tasks.list_part, pair, buckets, differing), tag=tag)
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
