"""What one task of a copy of topics does on an executor."""

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
from spark.blue_green.positions import LedgerLength, PositionMap, count_after, places_after
from spark.blue_green.sources import BlueSource, Entries
from spark.blue_green.spec import PRODUCER, CopyEnds, CopyPart, TopicCopy
from spark.fence import WriteFence, write_fence

# A task that dies loses the record of what it copied since; the next one reads that back.
_RECORD_EVERY = 16 << 20


class Recorded(NamedTuple):
    """A copy's record as it was read.

    Attributes:
        record: what it says.
        version: what the next change compares.
    """

    record: CopyRecord
    version: int


def read_record(store: CasReader, topic: TopicName) -> Recorded | None:
    """How far the copy of a topic is; None if it has not begun."""
    node = store.get(copy_record(str(topic)))
    return Recorded(CopyRecord.model_validate_json(node.value), node.version) if node else None


def ledger_lengths(stats: InternalStats) -> tuple[LedgerLength, ...]:
    """The ledgers of a topic as its broker has them, with the entries that are confirmed."""
    last = EntryPosition.parse(stats.last_confirmed_entry)
    lengths = [
        # The broker counts the ledger that it writes to only when it is full.
        LedgerLength(ledger.ledger_id, last.entry_id + 1 if ledger.ledger_id == last.ledger_id else ledger.entries)
        for ledger in stats.ledgers
        if ledger.ledger_id <= last.ledger_id
    ]
    return tuple(length for length in lengths if length.entries > 0)


def copy_unit(ends: CopyEnds, copy: TopicCopy, check: Callable[[], None]) -> CopyPart:
    """Copy the next part of a topic; what an earlier attempt copied is found, checked and kept.

    Args:
        ends: both clusters.
        copy: the topic.
        check: called with each entry; what it raises ends the copy.
    """
    with _fence(ends) as fence, open_cas(ends.store, ends.access) as store:
        fence.look()
        return _TopicCopier(ends, copy, fence, store, check).run()


def compare_unit(ends: CopyEnds, copy: TopicCopy, check: Callable[[], None]) -> CopyPart:
    """Read what was copied of a topic on both sides since it was compared last, and compare every byte; only reads.

    Blue is read from its bookies where that is possible, green through its brokers, as consumers will. What blue has
    deleted meanwhile, because everybody had consumed it, is not compared.

    Arguments are those of `copy_unit`.
    """
    with open_cas(ends.store, ends.access) as store:
        found = read_record(store, copy.topic)
    positions = found.record.positions if found else PositionMap()
    if found is None or (last := positions.last) is None:
        return CopyPart()
    entries = messages = size = 0
    first = next(places_after(copy.ledgers, EARLIEST), last[0])
    begin = max(positions.up_to_on_blue(first.moved(-1)), found.record.compared)
    if begin == len(positions):
        return CopyPart()
    after = positions.green_at(begin - 1) if begin else EARLIEST
    with (
        BlueSource(ends, copy) as blue,
        RawReader(ends.green_url, copy.topic, ends.green_access, after=after, notes=ends.notes) as green,
    ):
        originals = blue.entries(positions.blue_at(begin - 1) if begin else EntryPosition(*found.record.start))
        for place, theirs in green.entries(last[1]):
            check()
            number = begin + entries
            mine = next(originals, None)
            if mine is None or positions.number_of(mine[0]) != number or positions.green_at(number) != place:
                return CopyPart(entries, messages, size, difference=f"entry {place} of green is not where it should be")
            if mine[1].data != theirs.data:
                return CopyPart(entries, messages, size, difference=f"entry {mine[0]} of blue is not {place} of green")
            entries += 1
            messages += theirs.messages
            size += len(theirs.data)
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
            ends.green_url, topic, ends.green_access, name=PRODUCER, notes=ends.notes, on_stored=self._on_stored
        ) as producer:
            # Who froze before this may have taken the topic from its producers, long after it was flipped.
            self._fence.look()
            # Only now: from here on nobody else changes the copy, so that what is read stays true.
            recorded = self._begin()
            self._positions = recorded.record.positions
            self._at = (
                EntryPosition(*recorded.record.start) if self._positions.last is None else self._positions.last[0]
            )
            with BlueSource(ends, self._copy) as blue:
                entries = blue.entries(self._at)
                found = self._find_again(entries, producer)
                return self._send(producer, entries, recorded, found)

    def _begin(self) -> Recorded:
        topic = self._copy.topic
        if known := read_record(self._store, topic):
            return known
        record = CopyRecord(start=self._copy.start)
        return Recorded(record, write_alone(self._store, copy_record(str(topic)), record.encode(), None))

    def _find_again(self, originals: Entries, producer: RawProducer) -> CopyPart:
        """Take over what is on green without a record; what is not ours is refused."""
        ends, topic = self._ends, self._copy.topic
        with PulsarAdminReader.open(ends.green_access.admin, ends.green_admin) as admin:
            ledgers = ledger_lengths(admin.topics.internal_stats(topic))
        known = self._positions.last[1] if self._positions.last else EARLIEST
        places = list(places_after(ledgers, known))
        if not places:
            return CopyPart()
        messages = size = 0
        with RawReader(ends.green_url, topic, ends.green_access, after=known, notes=ends.notes) as green:
            for place, theirs in green.entries(places[-1]):
                self._check()
                mine = next(originals, None)
                if mine is None or mine[1].data != theirs.data:
                    raise StoreConflict(
                        f"{topic} on the new cluster holds messages that are not copies (first at {place}); nobody "
                        "may send there before the flip: delete the topic there and provision it again"
                    )
                self._positions.append(mine[0], place)
                messages += theirs.messages
                size += len(theirs.data)
                producer.stay()
        return CopyPart(len(places), messages, size, already_copied=len(places))

    def _send(self, producer: RawProducer, entries: Entries, recorded: Recorded, found: CopyPart) -> CopyPart:
        record, version = recorded
        _, messages, size, *_ = found
        sent = unrecorded = 0
        for place, one in entries:
            self._check()
            self._fence.check(len(one.data))
            self._unstored.append(place)
            producer.send(one)
            sent += 1
            messages += one.messages
            size += len(one.data)
            unrecorded += len(one.data)
            if sent == 1:
                # Alone, since its place shows whether anything came between.
                producer.flush()
            if unrecorded >= _RECORD_EVERY:
                producer.flush()
                version = self._note(record, version, messages, size)
                unrecorded = 0
            if size - found.size >= self._copy.most:
                break
        producer.flush()
        if sent or found.entries:
            self._note(record, version, messages, size)
        last = self._positions.last
        at = last[0] if last else EntryPosition(*record.start)
        left = count_after(self._copy.ledgers, at)
        return CopyPart(sent + found.entries, messages, size, left, found.already_copied)

    def _note(self, record: CopyRecord, version: int, messages: int, size: int) -> int:
        path = copy_record(str(self._copy.topic))
        changed = record.with_positions(self._positions, messages=record.messages + messages, size=record.size + size)
        return write_alone(self._store, path, changed.encode(), version)

    def _on_stored(self, place: EntryPosition) -> None:
        mine = self._unstored[self._stored]
        self._stored += 1
        if self._stored == len(self._unstored):
            self._unstored, self._stored = [], 0
        last = self._positions.last
        follows = last is None or place in (last[1].moved(1), EntryPosition(place.ledger_id, 0))
        if not follows or (last is not None and place <= last[1]):
            raise StoreConflict(
                f"{self._copy.topic}: the copy of {mine} came to {place} on the new cluster, and not right behind "
                f"{last[1] if last else 'nothing'}: somebody else has sent there; delete the topic there and provision "
                "it again"
            )
        self._positions.append(mine, place)


def _fence(ends: CopyEnds) -> AbstractContextManager[WriteFence]:
    return write_fence(
        ends.store, ends.access, ends.claim, ends.attempt, parallelism=ends.parallelism, paced=not ends.urgent
    )
