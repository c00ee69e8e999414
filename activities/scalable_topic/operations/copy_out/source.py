"""Source of a copy: the segments of a scalable topic, their ends and their entries."""

from __future__ import annotations

from collections.abc import Mapping

from clients.cas.store import CasReader
from clients.errors import StoreConflict, StoreContention, StoreNotFound, StoreUnreachable
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, StoredTopic, TopicName, stored_topic
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from clients.pulsar.segment_transactions import has_open_transactions, readable_position
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from clients.pulsar.wire.reader import RawReader
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo


def parents_of(layout: SegmentLayout) -> dict[int, tuple[int, ...]]:
    """Return the parents of each segment."""
    return {number: segment.parent_ids for number, segment in layout.segments.items()}


def descendants_of(parents: Mapping[int, tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Return all descendants of each segment."""
    descendants: dict[int, frozenset[int]] = {}
    # A child's id is always the higher one.
    for segment in sorted(parents, reverse=True):
        children = [child for child, parent_ids in parents.items() if segment in parent_ids]
        descendants[segment] = frozenset(children).union(*(descendants[child] for child in children))
    return descendants


class CopySource:
    """Segments of one scalable topic.

    Args:
        store: the metadata store.
        name: the topic.
        brokers_url: addresses of its brokers.
        wire: timeout, TLS and credentials for them.
    """

    def __init__(self, store: CasReader, name: TopicName, brokers_url: str, wire: WireAccess) -> None:
        self._store = store
        self._name = name
        self._brokers_url = brokers_url
        self._wire = wire

    def layout(self) -> SegmentLayout:
        """Return all segments as they are now.

        Raises:
            StoreNotFound: the topic is not scalable.
            StoreConflict: its record cannot be read.
        """
        record = read_scalable(self._store, self._name)
        if record.layout is not None:
            return record.layout
        if record.state is RecordState.ABSENT:
            raise StoreNotFound(f"{self._name} is not a scalable topic, so there is nothing to copy; name one that is")
        raise StoreConflict(f"the record of {self._name} is {record.state}: repair it, then copy")

    def topic(self, segment: SegmentInfo) -> StoredTopic:
        """Return the topic that holds a segment's messages."""
        return stored_topic(segment.topic(f"{self._name.namespace_path}/{self._name.topic}"))

    def ended(self, segment: SegmentInfo) -> bool:
        """Return whether a segment is terminated.

        Raises:
            StoreUnreachable: a sealed segment is not terminated, so that it may still get messages.
        """
        ended = self._ledgers(segment).HasField("terminatedPosition")
        if segment.sealed and not ended:
            raise StoreUnreachable(
                f"{self.topic(segment)} is sealed, and still takes messages, since its broker has not ended it; "
                "terminate it if that does not change"
            )
        return ended

    def has_all_since(self, segment: SegmentInfo, position: EntryPosition) -> bool:
        """Return whether brokers have deleted no entry after a position; True for the start, where none leaves a trace.

        Brokers delete whole ledgers, the oldest first (5.0.1), so later entries are there while this ledger is.
        """
        ledgers = self._ledgers(segment).ledgerInfo
        return position == EARLIEST or any(ledger.ledgerId == position.ledger_id for ledger in ledgers)

    def require_readable(self, segment: SegmentInfo) -> None:
        """Require that readers get all messages that a segment has now.

        Raises:
            StoreContention: a transaction is open, and holds back all later messages.
            StoreConflict: the broker names an earlier message as the last one.
        """
        topic = self.topic(segment)
        if not isinstance(topic, SegmentName):
            return
        if has_open_transactions(self._store, topic):
            raise StoreContention(
                f"transactions that have written to {topic} are open, and consumers get no later messages; commit or "
                "abort them"
            )
        readable = readable_position(self._store, topic)
        if readable is None or not self.has_all_since(segment, readable):
            return
        # With transactions, a broker keeps its first answer until it loads the segment again (5.0.1).
        last = self._last(segment, EARLIEST)
        if last is None or last < readable:
            raise StoreConflict(
                f"the broker of {topic} names {last or 'none'} as its last message, although consumers may read up to "
                f"{readable}: with transactionCoordinatorEnabled it keeps its first answer until it loads the segment "
                "again, and producers have sent since. Stop producers; if an aborted transaction sent the newest "
                f"message, send another one. Then unload the namespace (pulsar-admin namespaces unload "
                f"{self._name.namespace_path}), and copy again"
            )

    def has_more(self, segment: SegmentInfo, after: EntryPosition) -> bool:
        """Return whether a segment has entries after a position."""
        return self._last(segment, after) is not None

    def entries(self, segment: SegmentInfo) -> int:
        """Return the number of entries of a segment, including those that consumers never get."""
        if (last := self._last(segment, EARLIEST)) is None:
            return 0
        before = (ledger.entries for ledger in self._ledgers(segment).ledgerInfo if ledger.ledgerId < last.ledger_id)
        return sum(before) + last.entry_id + 1

    def _last(self, segment: SegmentInfo, after: EntryPosition) -> EntryPosition | None:
        notes = {NOTE: "-"}
        with RawReader(self._brokers_url, self.topic(segment), self._wire, after=after, notes=notes) as reader:
            return reader.last()

    def _ledgers(self, segment: SegmentInfo) -> ManagedLedgerInfo:
        topic = self.topic(segment)
        node = self._store.get(topic.managed_ledger_path)
        if node is None:
            raise StoreNotFound(
                f"{topic} is gone with its messages: it was deleted, or brokers have just pruned it; hold "
                "the namespace's retention, and copy again"
            )
        return decode_ledger_info(node.value)
