"""Each call of a copy continues where the previous one ended, unless brokers have deleted messages there."""

from __future__ import annotations

from typing import Any, cast

import pytest

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic.operations.copy_out.rounds import CopyRounds
from activities.scalable_topic.operations.copy_out.source import CopySource
from clients.errors import StoreConflict
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from models.lifecycle.claim import Attempt
from models.scalable_topic.copies import KeyHash
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from models.store_url import parse_store_url
from spark.scalable_topic.copy_record import CopyRecord, PartitionProgress, SegmentRecord, record_path, segment_path
from spark.scalable_topic.spec import CopyOut
from tests.support.clients.memory_store import MemoryStore

SOURCE = TopicName.parse("persistent://shop/orders/new")
TARGET = TopicName.parse("persistent://shop/orders/old")
URL = "pulsar://broker-1:6650"
JOB = CopyOut(parse_store_url("zk:zk-1:2181"), Attempt("copy", "run", 1, 1, 1), URL, (), TARGET, 0, KeyHash.JAVA)


class Segments(CopySource):
    """A source without new entries."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, SOURCE, URL, WireAccess())

    def entries(self, segment: SegmentInfo) -> int:
        """Return some number."""
        return 10

    def has_more(self, segment: SegmentInfo, after: EntryPosition) -> bool:
        """Return that everything is copied."""
        return False


class Engine:
    """An engine that runs nothing."""

    def width(self, *, tag: str) -> int:
        """Return one slot."""
        return 1

    def cancel(self, tag: str) -> None:
        """Cancel nothing."""


@pytest.mark.parametrize(
    ("at", "complete", "ledgers", "is_refused"),
    [
        (EntryPosition(7, 4), False, (7, 9), False),
        (EntryPosition(7, 4), False, (3, 7), False),
        (EntryPosition(7, 4), False, (8, 9), True),
        (EntryPosition(7, 4), True, (8, 9), False),
        (EARLIEST, False, (8, 9), False),
    ],
)
def test_messages_that_were_deleted_since(
    *, at: EntryPosition, complete: bool, ledgers: tuple[int, ...], is_refused: bool
) -> None:
    """A copy that is not complete is refused once the ledger up to which it came is gone: later ones may be as well."""
    store = MemoryStore()
    layout = SegmentLayout.initial(1, 0)
    store.create(SOURCE.scalable_path, layout.encode())
    segments = Segments(store)
    (segment,) = layout.active
    info = ManagedLedgerInfo()
    for ledger in ledgers:
        info.ledgerInfo.add(ledgerId=ledger)
    store.create(segments.topic(segment).managed_ledger_path, info.SerializeToString())
    copied = CopyRecord(source="shop/orders/new", partitions=0, hashing=KeyHash.JAVA, parents={0: ()})
    store.create(record_path(TARGET), copied.encode())
    progress = SegmentRecord(
        segment=segment.descriptor, created_ms=0, at=at, complete=complete, partitions=(PartitionProgress(),)
    )
    store.create(segment_path(TARGET, 0), progress.encode())
    rounds = CopyRounds(cast("Any", Engine()), JOB, segments, store=cast("Any", store), context=ActivityContext())
    if is_refused:
        with pytest.raises(StoreConflict, match=r"was copied up to 7:4\. .* keep \S+/old, .* copy to another target"):
            rounds.run("tag")
    else:
        assert rounds.run("tag").caught_up
