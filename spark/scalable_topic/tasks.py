"""What one task of a copy of a scalable topic does on an executor."""

from __future__ import annotations

from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreError
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.reader import RawReader
from clients.stores import open_cas
from spark.fence import WriteFence, write_fence
from spark.scalable_topic.copy_record import Held, SegmentRecord, place_of, read_stored, segment_path, write_stored
from spark.scalable_topic.partition_producers import Lanes
from spark.scalable_topic.routing import Router
from spark.scalable_topic.spec import CheckedPart, CopyOut, CopyPart, PartCheck, SegmentCopy, segment_of
from spark.scalable_topic.sums import Sum, print_of

# A task that dies loses the record of what it copied since; the next one finds that in the target.
_RECORD_EVERY = 16 << 20


def copy_unit(job: CopyOut, unit: SegmentCopy) -> CopyPart:
    """Copy the next part of a segment; what an earlier attempt copied is found and kept.

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
        fence.look()
        with Lanes(job, unit.segment_id) as lanes:
            # Only now: from here on nobody else copies this segment. Who froze before must not begin.
            fence.look()
            return _SegmentCopier(job, unit, fence, store, lanes).run()


def check_unit(job: CopyOut, unit: PartCheck) -> CheckedPart:
    """Read the next part of the regular topic, or of one partition, and add up what is there by segment; only reads."""
    router, topic = Router(job.partitions, job.hashing), job.parts[unit.number]
    sums = dict(unit.sums)
    at, entries, size, last_segment = unit.after, 0, 0, -1
    with RawReader(job.brokers_url, topic, job.wire, after=unit.after, notes=job.notes) as reader:
        end = reader.last()
        for place, one in reader.entries(end) if end else ():
            segment = segment_of(one.metadata.producer_name)
            if segment is None:
                difference = f"{topic}: the message at {place}, of {one.metadata.producer_name}, is no copy"
                return CheckedPart(at, sums, entries, difference=difference)
            if segment != last_segment and (late := unit.descendants.get(segment, frozenset()).intersection(sums)):
                difference = f"{topic}: at {place} segment {segment} comes after segment {min(late)}, its child"
                return CheckedPart(at, sums, entries, difference=difference)
            sums[segment] = sums.get(segment, Sum()).plus(print_of(one, router.singles(one)))
            at, last_segment = place, segment
            entries += 1
            size += len(one.data)
            if size >= unit.most:
                break
    return CheckedPart(at, sums, entries, left=end is not None and at < end)


class _SegmentCopier:
    def __init__(self, job: CopyOut, unit: SegmentCopy, fence: WriteFence, store: CasStore, lanes: Lanes) -> None:
        self._job = job
        self._unit = unit
        self._fence = fence
        self._store = store
        self._lanes = lanes
        self._router = Router(job.partitions, job.hashing)
        self._found = 0
        self._record, self._held = self._recorded()
        self._at = place_of(self._record.at)

    def run(self) -> CopyPart:
        """Copy one part."""
        job, unit, record = self._job, self._unit, self._record
        entries = size = unrecorded = 0
        sequence = record.sequence
        self._lanes.begin(record.lanes, sequence)
        with RawReader(job.brokers_url, unit.topic, job.wire, after=self._at, notes=job.notes) as reader:
            end = reader.last() or self._at
            for place, one in reader.entries(end) if end > self._at else ():
                self._fence.check(len(one.data))
                sequence = self._take(place, one, sequence)
                entries += 1
                size += len(one.data)
                unrecorded += len(one.data)
                if size >= unit.most:
                    break
                if unrecorded >= _RECORD_EVERY:
                    self._note(sequence, entries, complete=False)
                    unrecorded = 0
        left = self._at < end
        self._note(sequence, entries, complete=unit.ended and not left)
        return CopyPart(entries, self._found, left)

    def _recorded(self) -> tuple[SegmentRecord, Held]:
        unit, target = self._unit, self._job.target
        record, held = read_stored(self._store, SegmentRecord, segment_path(target, unit.segment_id))
        if record is None:
            # Before the first message: without a record nothing of this segment is in the target.
            lanes = tuple(self._lanes.ends())
            record = SegmentRecord(segment=unit.descriptor, created_ms=unit.created_ms, lanes=lanes)
            held = write_stored(self._store, held, record)
        if record.created_ms != unit.created_ms:
            raise StoreConflict(f"{unit.topic} was created again since it was copied to {target}; copy it elsewhere")
        return record, held

    def _take(self, place: EntryPosition, one: Message, sequence: int) -> int:
        try:
            pieces = self._router.pieces(one, sequence)
        except StoreError as cause:
            raise cause.saying(f"{self._unit.topic}, entry {place}: {cause}") from cause
        there = [self._lanes.take(piece, number) for number, piece in enumerate(pieces, sequence)]
        self._found += any(there)
        self._at = place
        return sequence + len(pieces)

    def _note(self, sequence: int, entries: int, *, complete: bool) -> None:
        """Record what is stored, once it is."""
        lanes = self._lanes.flush()
        self._fence.look()
        changed = self._record.model_copy(
            update={
                "at": self._at,
                "sequence": sequence,
                "entries": self._record.entries + entries,
                "complete": complete,
                "lanes": lanes,
            }
        )
        self._held = write_stored(self._store, self._held, changed)
