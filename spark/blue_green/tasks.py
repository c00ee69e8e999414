"""Tasks of a copy of topics on an executor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from clients.cas.store import CasReader, CasStore, write_alone
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.topics import InternalStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.reader import RawReader
from clients.stores import open_cas
from spark.blue_green.copy_record import CopyRecord, copy_record
from spark.blue_green.positions import LedgerLength, PositionMap, count_after, positions_after
from spark.blue_green.sources import BlueSource, Entries
from spark.blue_green.spec import PRODUCER, CopyEnds, CopyPart, TopicCopy
from spark.fence import WriteFence, write_fence

# A task that dies leaves copies without a record since the last one; the next task reads them back.
_RECORD_EVERY = 16 << 20


class Recorded(NamedTuple):
    """Record of a copy, with its version.

    Attributes:
        record: the stored record.
        version: version that the next change compares.
    """

    record: CopyRecord
    version: int


def read_record(store: CasReader, topic: TopicName) -> Recorded | None:
    """Return the progress of the copy of a topic; None if it has not started."""
    node = store.get(copy_record(str(topic)))
    return Recorded(CopyRecord.model_validate_json(node.value), node.version) if node else None


def ledger_lengths(stats: InternalStats) -> tuple[LedgerLength, ...]:
    """Return the ledgers of a topic as its broker reports them, with their confirmed entries."""
    last = EntryPosition.parse(stats.last_confirmed_entry)
    lengths = [
        # The broker reports the entries of the ledger that it writes to only when it is full.
        LedgerLength(ledger.ledger_id, last.entry_id + 1 if ledger.ledger_id == last.ledger_id else ledger.entries)
        for ledger in stats.ledgers
        if ledger.ledger_id <= last.ledger_id
    ]
    return tuple(length for length in lengths if length.entries > 0)


def copy_unit(ends: CopyEnds, copy: TopicCopy, check: Callable[[], None]) -> CopyPart:
    """Copy the next part of a topic; find, check and keep what an earlier attempt copied.

    Args:
        ends: both clusters.
        copy: the topic; with `most` 0 nothing more is copied.
        check: called with each entry; an exception of it ends the copy.
    """
    with _fence(ends) as fence, open_cas(ends.store, ends.access) as store:
        fence.read_claim()
        return _TopicCopier(ends, copy, fence, store, check).run()


def compare_unit(ends: CopyEnds, copy: TopicCopy, check: Callable[[], None]) -> CopyPart:
    """Compare every byte of what was copied of a topic since the last compare, on both sides; read only.

    Blue is read from its bookies where possible, green through its brokers, as consumers will. Entries that blue has
    deleted since, because all subscriptions had consumed them, are not compared.

    Arguments are those of `copy_unit`.
    """
    with open_cas(ends.store, ends.access) as store:
        recorded = read_record(store, copy.topic)
    positions = recorded.record.positions if recorded else PositionMap()
    if recorded is None or (last := positions.last) is None:
        return CopyPart()
    entries = messages = size = 0
    first = next(positions_after(copy.ledgers, EARLIEST), last[0])
    start = max(positions.up_to_on_blue(first.moved(-1)), recorded.record.compared)
    if start == len(positions):
        return CopyPart()
    after = positions.green_at(start - 1) if start else EARLIEST
    with (
        BlueSource(ends, copy) as blue,
        RawReader(ends.green_url, copy.topic, ends.green_access, after=after, notes=ends.notes) as green,
    ):
        originals = blue.entries(positions.blue_at(start - 1) if start else EntryPosition(*recorded.record.start))
        for position, copied in green.entries(last[1]):
            check()
            number = start + entries
            original = next(originals, None)
            if original is None or positions.number_of(original[0]) != number or positions.green_at(number) != position:
                return CopyPart(
                    entries, messages, size, difference=f"entry {position} of green is not where it should be"
                )
            if original[1].data != copied.data:
                return CopyPart(
                    entries,
                    messages,
                    size,
                    difference=f"entry {original[0]} of blue differs from entry {position} of green",
                )
            entries += 1
            messages += copied.messages
            size += len(copied.data)
    return CopyPart(entries, messages, size)


class _TopicCopier:
    def __init__(
        self, ends: CopyEnds, copy: TopicCopy, fence: WriteFence, store: CasStore, check: Callable[[], None]
    ) -> None:
        self._ends = ends
        self._copy = copy
        self._fence = fence
        self._store = store
        self._check = check
        self._positions = PositionMap()
        self._unstored: list[EntryPosition] = []
        self._stored = 0

    def run(self) -> CopyPart:
        """Copy one part."""
        ends, topic = self._ends, self._copy.topic
        with RawProducer(
            ends.green_url,
            topic,
            ends.green_access,
            name=PRODUCER,
            notes=ends.notes,
            on_stored=self._on_stored,
            keeps_epoch=True,
        ) as producer:
            # A task that froze before this may have fenced the topic's producers long after the flip.
            self._fence.read_claim()
            # Only now: from here on no other producer changes the copy, so that the record stays valid.
            recorded = self._recorded()
            self._positions = recorded.record.positions
            self._at = (
                EntryPosition(*recorded.record.start) if self._positions.last is None else self._positions.last[0]
            )
            with BlueSource(ends, self._copy) as blue:
                entries = blue.entries(self._at)
                earlier = self._adopt_unrecorded(entries, producer)
                return self._send(producer, entries, recorded, earlier)

    def _recorded(self) -> Recorded:
        topic = self._copy.topic
        if stored := read_record(self._store, topic):
            return stored
        record = CopyRecord(start=self._copy.start)
        return Recorded(record, write_alone(self._store, copy_record(str(topic)), record.encode(), None))

    def _adopt_unrecorded(self, originals: Entries, producer: RawProducer) -> CopyPart:
        """Add copies on green without a record to the copy; refuse messages that are not copies."""
        ends, topic = self._ends, self._copy.topic
        with PulsarAdminReader.open(ends.green_access.admin, ends.green_admin) as admin:
            ledgers = ledger_lengths(admin.topics.internal_stats(topic))
        confirmed = self._positions.last[1] if self._positions.last else EARLIEST
        unrecorded = list(positions_after(ledgers, confirmed))
        if not unrecorded:
            return CopyPart()
        messages = size = 0
        with RawReader(ends.green_url, topic, ends.green_access, after=confirmed, notes=ends.notes) as green:
            for position, copied in green.entries(unrecorded[-1]):
                self._check()
                original = next(originals, None)
                if original is None or original[1].data != copied.data:
                    raise StoreConflict(
                        f"{topic} on the new cluster has messages that are not copies (first at {position}); no "
                        "producer may send there before the flip: delete the topic there and provision it again"
                    )
                self._positions.append(original[0], position)
                messages += copied.messages
                size += len(copied.data)
                producer.stay()
        return CopyPart(len(unrecorded), messages, size, already_copied=len(unrecorded))

    def _send(self, producer: RawProducer, entries: Entries, recorded: Recorded, earlier: CopyPart) -> CopyPart:
        record, version = recorded
        _, messages, size, *_ = earlier
        sent = unrecorded = 0
        while size - earlier.size < self._copy.most and (entry := next(entries, None)):
            position, message = entry
            self._check()
            self._fence.check(len(message.data))
            self._unstored.append(position)
            producer.send(message)
            sent += 1
            messages += message.messages
            size += len(message.data)
            unrecorded += len(message.data)
            if sent == 1:
                # Flushed alone: its position shows whether another producer sent before it.
                producer.flush()
            if unrecorded >= _RECORD_EVERY:
                producer.flush()
                version = self._note(record, version, messages, size)
                unrecorded = 0
        producer.flush()
        if sent or earlier.entries:
            self._note(record, version, messages, size)
        last = self._positions.last
        copied_to = last[0] if last else EntryPosition(*record.start)
        remaining = count_after(self._copy.ledgers, copied_to)
        return CopyPart(sent + earlier.entries, messages, size, remaining, earlier.already_copied)

    def _note(self, record: CopyRecord, version: int, messages: int, size: int) -> int:
        path = copy_record(str(self._copy.topic))
        changed = record.with_positions(self._positions, messages=record.messages + messages, size=record.size + size)
        return write_alone(self._store, path, changed.encode(), version)

    def _on_stored(self, position: EntryPosition) -> None:
        original = self._unstored[self._stored]
        self._stored += 1
        if self._stored == len(self._unstored):
            self._unstored, self._stored = [], 0
        last = self._positions.last
        follows = last is None or position in (last[1].moved(1), EntryPosition(position.ledger_id, 0))
        if not follows or (last is not None and position <= last[1]):
            raise StoreConflict(
                f"{self._copy.topic}: the copy of {original} was stored at {position} on the new cluster, not directly "
                f"after {last[1] if last else 'nothing'}: another producer has sent there; delete the topic there and "
                "provision it again"
            )
        self._positions.append(original, position)


def _fence(ends: CopyEnds) -> AbstractContextManager[WriteFence]:
    return write_fence(
        ends.store, ends.access, ends.claim, ends.attempt, parallelism=ends.parallelism, paced=not ends.urgent
    )
