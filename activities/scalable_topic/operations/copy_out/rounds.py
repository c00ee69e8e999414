"""Rounds of a copy: each copies all segments up to their ends, until a round finds nothing new."""

from __future__ import annotations

import threading
from typing import NamedTuple

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic.operations.copy_out.source import CopySource, parents_of
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from models.lifecycle.failures import summarize
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from spark.engine import SparkEngine
from spark.scalable_topic import jobs
from spark.scalable_topic.copy_record import (
    CopyRecord,
    SegmentRecord,
    position_of,
    read_stored,
    record_path,
    segment_path,
    write_stored,
)
from spark.scalable_topic.spec import CopyOut, CopyPart, SegmentCopy

# Messages that arrive during a round are copied by the next one; constant traffic never catches up.
_ROUNDS = 5


class Copied(NamedTuple):
    """Result of the rounds of one call.

    Attributes:
        entries: number of copied entries.
        already_copied: number of these entries that a previous attempt had copied.
        caught_up: true if the last round found nothing new.
    """

    entries: int
    already_copied: int
    caught_up: bool


class CopyRounds:
    """Copy rounds of one call.

    Args:
        engine: the Spark session.
        job: the copy.
        source: the segments.
        store: the metadata store, open.
        context: of the activity.
    """

    def __init__(
        self, engine: SparkEngine, job: CopyOut, source: CopySource, *, store: CasStore, context: ActivityContext
    ) -> None:
        self._engine = engine
        self._job = job
        self._source = source
        self._store = store
        self._context = context
        self._lock = threading.Lock()
        self._done = self._total = self._entries = self._already_copied = 0

    def run(self, tag: str) -> Copied:
        """Copy in a limited number of rounds, until a round finds nothing new.

        Args:
            tag: for `SparkEngine.cancel`.

        Raises:
            StoreConflict: a segment was pruned before it was copied, or messages of it were deleted since the last run.
            StoreError: the first that a task raised.
        """
        for _ in range(_ROUNDS):
            before = self._entries
            layout = self._source.layout()
            self._follow(layout)
            self._measure(layout)
            jobs.copy(
                self._engine,
                self._job,
                parents_of(layout),
                lambda segment_id, layout=layout: self._next_copy(layout, segment_id),
                tag=tag,
                on_part=self._take,
                check=self._context.check,
            )
            if self._entries == before:
                return Copied(self._entries, self._already_copied, caught_up=True)
        return Copied(self._entries, self._already_copied, caught_up=False)

    def _follow(self, layout: SegmentLayout) -> None:
        """Record new segments, and check pruned ones.

        Raises:
            StoreConflict: a segment was pruned before it was completely copied.
        """
        target = self._job.target
        record, held = read_stored(self._store, CopyRecord, record_path(target))
        if record is None:
            raise StoreConflict(f"the record of the copy to {target} was deleted; start it again")
        gone = {*range(layout.next_segment_id)} - {*layout.segments} - {*record.pruned}
        lost = [number for number in sorted(gone) if not self._complete(number)]
        if lost:
            raise StoreConflict(
                f"brokers have pruned segments {summarize(lost)} before they were copied completely, and deleted their "
                f"messages; {self._elsewhere}"
            )
        parents = {**parents_of(layout), **record.parents}
        if parents != record.parents:
            write_stored(self._store, held, record.model_copy(update={"parents": parents}))

    def _measure(self, layout: SegmentLayout) -> None:
        """Count the entries, for the progress."""
        done = total = 0
        for number, segment in layout.segments.items():
            self._context.check()
            record = self._record(number)
            done += record.entries if record else 0
            total += self._source.entries(segment)
        self._done, self._total = done, total
        self._show()

    def _next_copy(self, layout: SegmentLayout, segment_id: int) -> SegmentCopy | None:
        segment = layout.segments[segment_id]
        # Check for the end first, then for more entries: a terminated segment stays terminated.
        ended = self._source.ended(segment)
        record = self._record(segment_id)
        # The task refuses a segment that was created again, whose ledgers are others.
        if record is not None and not record.complete and record.created_ms == segment.created_at_ms:
            # mutant: scalable-topic/a-copy-continues-after-deleted-messages
            self._require_unbroken(segment, position_of(record.at))
        at = position_of(record.at) if record else EARLIEST
        if ended or not self._source.has_more(segment, at):
            # Messages that readers get from now on are found by the next check for more, here or in the task.
            # mutant: scalable-topic/a-copy-lacks-what-readers-do-not-get
            self._source.require_readable(segment)
        up_to_date = record is not None and (record.complete or not ended)
        if up_to_date and not self._source.has_more(segment, at):
            return None
        return SegmentCopy(segment_id, segment.descriptor, self._source.topic(segment), segment.created_at_ms, ended)

    def _require_unbroken(self, segment: SegmentInfo, at: EntryPosition) -> None:
        if not self._source.has_all_since(segment, at):
            raise StoreConflict(
                f"{self._source.topic(segment)} was copied up to {at}. Brokers have deleted that ledger since, and may "
                "have deleted later messages, which the copy would lack. If none were sent, the copy is complete; else "
                f"{self._elsewhere}"
            )

    @property
    def _elsewhere(self) -> str:
        return (
            f"keep {self._job.target}, which may have messages that the source has lost, and copy to another target "
            "with the namespace's retention held"
        )

    def _take(self, _segment_id: int, copied: CopyPart) -> None:
        with self._lock:
            self._entries += copied.entries
            self._already_copied += copied.already_copied
            self._done += copied.entries
        self._show()

    def _show(self) -> None:
        total = max(self._total, self._done)
        self._context.progress(
            ProgressTask.COPY, ProgressUnit.ENTRIES, self._done, total, detail=f"to {self._job.target}"
        )

    def _complete(self, segment_id: int) -> bool:
        record = self._record(segment_id)
        return record is not None and record.complete

    def _record(self, segment_id: int) -> SegmentRecord | None:
        return read_stored(self._store, SegmentRecord, segment_path(self._job.target, segment_id))[0]
