"""Proof of a copy: the regular topic is read completely and compared with what was read from the segments."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import xxhash

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic.operations.copy_out.source import descendants_of
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from models.lifecycle.failures import NAMED, summarize
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.scalable_topic.copies import SegmentFigures
from spark.engine import SparkEngine
from spark.scalable_topic import jobs
from spark.scalable_topic.copy_record import (
    CopyRecord,
    PartRecord,
    RecordVersion,
    SegmentRecord,
    StoredSum,
    part_path,
    position_of,
    read_stored,
    record_path,
    segment_path,
    write_stored,
)
from spark.scalable_topic.spec import CheckedPart, CopyOut, PartCheck


class Proof(NamedTuple):
    """Figures that are equal in the segments and in the regular topic.

    Attributes:
        segments: number of segments.
        messages: number of messages.
        size: bytes of their payloads.
        digest: of all messages.
        certificate: figures of each segment, 100 at most.
    """

    segments: int
    messages: int
    size: int
    digest: str
    certificate: tuple[SegmentFigures, ...]


def prove(engine: SparkEngine, job: CopyOut, store: CasStore, context: ActivityContext, tag: str) -> Proof:
    """Read new messages of the regular topic, and compare the copy segment by segment.

    Args:
        engine: the Spark session.
        job: the copy.
        store: the metadata store, open.
        context: of the activity.
        tag: for `SparkEngine.cancel`.

    Raises:
        StoreConflict: source and target differ.
        StoreError: the first that a task raised.
    """
    copy, _ = read_stored(store, CopyRecord, record_path(job.target))
    segments = _segments(store, job, copy)
    reading = _Reading(job, store, context, copy, sum(segment.entries for segment in segments.values()))
    numbers = range(len(job.parts))
    jobs.check(engine, job, numbers, reading.position, tag=tag, on_part=reading.take, check=context.check)
    parts = {number: reading.record(number) for number in numbers}
    if differences := [*reading.differences, *_differences(job, segments, parts)]:
        raise StoreConflict(
            f"{job.target} is not what was copied: {summarize(differences)}. Another client has sent there, or its "
            "messages were deleted; copy to another target, and keep this one, which may have messages that the source "
            "has lost"
        )
    return _proof(segments)


class _Reading:
    """Partitions of the regular topic and the progress of reading them."""

    def __init__(
        self, job: CopyOut, store: CasStore, context: ActivityContext, copy: CopyRecord | None, entries: int
    ) -> None:
        self._job = job
        self._store = store
        self._context = context
        self._descendants = descendants_of(copy.parents if copy else {})
        self._held: dict[int, RecordVersion] = {}
        self._lock = threading.Lock()
        self._entries, self._total = 0, entries
        self.differences: list[str] = []

    def record(self, number: int) -> PartRecord:
        """Return how far a partition was read."""
        record, held = read_stored(self._store, PartRecord, part_path(self._job.target, number))
        self._held[number] = held
        return record or PartRecord()

    def position(self, number: int) -> PartCheck:
        """Return the position from which to continue reading a partition."""
        record = self.record(number)
        sums = {segment: stored.sum for segment, stored in record.sums.items()}
        return PartCheck(number, position_of(record.after), sums, self._descendants)

    def take(self, number: int, partition: CheckedPart) -> None:
        """Store the result of reading a partition."""
        if partition.difference:
            with self._lock:
                self.differences.append(partition.difference)
            return
        sums = {segment: StoredSum.of(total) for segment, total in partition.sums.items()}
        write_stored(self._store, self._held[number], PartRecord(after=partition.after, sums=sums))
        with self._lock:
            self._entries += partition.entries
            done = self._entries
        self._context.progress(
            ProgressTask.COMPARE,
            ProgressUnit.ENTRIES,
            done,
            max(self._total, done),
            detail=str(self._job.target),
        )


def _segments(store: CasStore, job: CopyOut, copy: CopyRecord | None) -> dict[int, SegmentRecord]:
    numbers = sorted(copy.parents) if copy else []
    records = {number: read_stored(store, SegmentRecord, segment_path(job.target, number))[0] for number in numbers}
    return {number: record for number, record in records.items() if record is not None}


def _differences(job: CopyOut, segments: dict[int, SegmentRecord], parts: dict[int, PartRecord]) -> Iterator[str]:
    for number, partition in parts.items():
        for segment in sorted({*segments, *partition.sums}):
            record = segments.get(segment)
            copied = record.partitions[number].sum if record else StoredSum().sum
            there = partition.sums.get(segment, StoredSum()).sum
            if copied != there:
                yield (
                    f"{job.parts[number]} has {there.messages} messages ({there.size} bytes) of segment {segment}, and "
                    f"{copied.messages} ({copied.size} bytes) were copied"
                    f"{'' if (copied[:2] != there[:2]) else ', with other content or in another order'}"
                )


def _proof(segments: dict[int, SegmentRecord]) -> Proof:
    figures = [_figures(record) for record in segments.values()]
    return Proof(
        segments=len(figures),
        messages=sum(figure.messages for figure in figures),
        size=sum(figure.size for figure in figures),
        digest=_digest(f"{figure.segment}={figure.digest};" for figure in figures),
        certificate=tuple(figures[:NAMED]),
    )


def _figures(record: SegmentRecord) -> SegmentFigures:
    return SegmentFigures(
        segment=record.segment,
        messages=sum(partition.messages for partition in record.partitions),
        size=sum(partition.size for partition in record.partitions),
        digest=_digest(partition.digest for partition in record.partitions),
    )


def _digest(parts: Iterable[str]) -> str:
    return xxhash.xxh3_128_hexdigest("".join(parts).encode())
