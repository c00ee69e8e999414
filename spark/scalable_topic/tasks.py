"""Tasks of a copy of a scalable topic on an executor."""

from __future__ import annotations

from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreError
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.reader import RawReader
from clients.stores import open_cas
from spark.fence import WriteFence, write_fence
from spark.scalable_topic.copy_record import (
    RecordVersion,
    SegmentRecord,
    position_of,
    read_stored,
    segment_path,
    write_stored,
)
from spark.scalable_topic.partition_producers import PartitionProducers
from spark.scalable_topic.routing import Router
from spark.scalable_topic.spec import CheckedPart, CopyOut, CopyPart, PartCheck, SegmentCopy, segment_of
from spark.scalable_topic.sums import Sum, print_of

# A task that dies leaves copies without a record since the last one; the next task finds them in the target.
_RECORD_EVERY = 16 << 20


def copy_unit(job: CopyOut, unit: SegmentCopy) -> CopyPart:
    """Copy the next part of a segment; find and keep what an earlier attempt copied.

    Args:
        job: the copy.
        unit: the segment.

    Raises:
        StoreContention: another attempt copies the segment.
        StoreError: a store or a broker failed, or an entry cannot be copied.
    """
    with (
        write_fence(job.store, job.access, job.claim, job.attempt, parallelism=job.parallelism) as fence,
        open_cas(job.store, job.access) as store,
    ):
        fence.read_claim()
        with PartitionProducers(job, unit.segment_id) as producers:
            # Only now: from here on no other task copies this segment. A task that froze before must not start.
            fence.read_claim()
            return _SegmentCopier(job, unit, fence, store, producers).run()


def check_unit(job: CopyOut, unit: PartCheck) -> CheckedPart:
    """Read the next part of the regular topic, or of one partition, and sum its messages by segment; read only."""
    router, topic = Router(job.partitions, job.hashing), job.parts[unit.number]
    sums = dict(unit.sums)
    at, entries, size, last_segment = unit.after, 0, 0, -1
    with RawReader(job.brokers_url, topic, job.wire, after=unit.after, notes=job.notes) as reader:
        end = reader.last()
        for position, message in reader.entries(end) if end else ():
            segment = segment_of(message.metadata.producer_name)
            if segment is None:
                difference = f"{topic}: the message at {position}, of {message.metadata.producer_name}, is not a copy"
                return CheckedPart(at, sums, entries, difference=difference)
            if segment != last_segment and (late := unit.descendants.get(segment, frozenset()).intersection(sums)):
                difference = f"{topic}: at {position} segment {segment} comes after segment {min(late)}, its child"
                return CheckedPart(at, sums, entries, difference=difference)
            sums[segment] = sums.get(segment, Sum()).plus(print_of(message, router.singles(message)))
            at, last_segment = position, segment
            entries += 1
            size += len(message.data)
            if size >= unit.most:
                break
    return CheckedPart(at, sums, entries, remaining=end is not None and at < end)


class _SegmentCopier:
    def __init__(
        self, job: CopyOut, unit: SegmentCopy, fence: WriteFence, store: CasStore, producers: PartitionProducers
    ) -> None:
        self._job = job
        self._unit = unit
        self._fence = fence
        self._store = store
        self._producers = producers
        self._router = Router(job.partitions, job.hashing)
        self._already_copied = 0
        self._record, self._version = self._recorded()
        self._at = position_of(self._record.at)

    def run(self) -> CopyPart:
        """Copy one part."""
        job, unit, record = self._job, self._unit, self._record
        entries = size = unrecorded = 0
        sequence = record.sequence
        self._producers.resume(record.partitions, sequence)
        with RawReader(job.brokers_url, unit.topic, job.wire, after=self._at, notes=job.notes) as reader:
            end = reader.last() or self._at
            for position, message in reader.entries(end) if end > self._at else ():
                self._fence.check(len(message.data))
                sequence = self._take(position, message, sequence)
                entries += 1
                size += len(message.data)
                unrecorded += len(message.data)
                if size >= unit.most:
                    break
                if unrecorded >= _RECORD_EVERY:
                    self._note(sequence, entries, complete=False)
                    unrecorded = 0
        remaining = self._at < end
        self._note(sequence, entries, complete=unit.ended and not remaining)
        return CopyPart(entries, self._already_copied, remaining)

    def _recorded(self) -> tuple[SegmentRecord, RecordVersion]:
        unit, target = self._unit, self._job.target
        record, version = read_stored(self._store, SegmentRecord, segment_path(target, unit.segment_id))
        if record is None:
            # Before the first message: without a record the target has nothing of this segment.
            partitions = tuple(self._producers.ends())
            record = SegmentRecord(segment=unit.descriptor, created_ms=unit.created_ms, partitions=partitions)
            version = write_stored(self._store, version, record)
        if record.created_ms != unit.created_ms:
            raise StoreConflict(f"{unit.topic} was created again since it was copied to {target}; copy it elsewhere")
        return record, version

    def _take(self, position: EntryPosition, message: Message, sequence: int) -> int:
        try:
            pieces = self._router.pieces(message, sequence)
        except StoreError as cause:
            raise cause.saying(f"{self._unit.topic}, entry {position}: {cause}") from cause
        already = [self._producers.take(piece, number) for number, piece in enumerate(pieces, sequence)]
        self._already_copied += any(already)
        self._at = position
        return sequence + len(pieces)

    def _note(self, sequence: int, entries: int, *, complete: bool) -> None:
        """Wait until everything is stored, then record it."""
        partitions = self._producers.flush()
        self._fence.read_claim()
        changed = self._record.model_copy(
            update={
                "at": self._at,
                "sequence": sequence,
                "entries": self._record.entries + entries,
                "complete": complete,
                "partitions": partitions,
            }
        )
        self._version = write_stored(self._store, self._version, changed)
