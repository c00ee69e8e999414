"""Each call of a copy continues where the previous one ended, unless brokers have deleted messages there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic.operations.copy_out.rounds import CopyRounds
from activities.scalable_topic.operations.copy_out.source import CopySource
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.names import SegmentName, TopicName
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
LAYOUT = SegmentLayout.initial(1, 0)
(SEGMENT,) = LAYOUT.active
TOPIC = SegmentName(SOURCE, SEGMENT.descriptor)
JOB = CopyOut(parse_store_url("zk:zk-1:2181"), Attempt("copy", "run", 1, 1, 1), URL, (), TARGET, 0, KeyHash.JAVA)


class Segments(CopySource):
    """A source of one segment that is copied; its broker names the last message.

    Args:
        store: the metadata store, which gets the records of the segment.
        ledgers: of the segment.
        last: the last message.
    """

    def __init__(self, store: MemoryStore, ledgers: Iterable[int], last: EntryPosition | None = None) -> None:
        super().__init__(store, SOURCE, URL, WireAccess())
        self._end = last
        info = ManagedLedgerInfo()
        for ledger in ledgers:
            info.ledgerInfo.add(ledgerId=ledger)
        store.create(SOURCE.scalable_path, LAYOUT.encode())
        store.create(TOPIC.managed_ledger_path, info.SerializeToString())
        copied = CopyRecord(source="shop/orders/new", partitions=0, hashing=KeyHash.JAVA, parents={0: ()})
        store.create(record_path(TARGET), copied.encode())

    def entries(self, segment: SegmentInfo) -> int:
        """Return some number."""
        return 10

    def _last(self, segment: SegmentInfo, after: EntryPosition) -> EntryPosition | None:
        return self._end if self._end and self._end > after else None


class Engine:
    """An engine that runs nothing."""

    def width(self, *, tag: str) -> int:
        """Return one slot."""
        return 1

    def cancel(self, tag: str) -> None:
        """Cancel nothing."""


def rounds_of(segments: Segments, store: MemoryStore) -> CopyRounds:
    """Return the rounds of a copy."""
    return CopyRounds(cast("Any", Engine()), JOB, segments, store=cast("Any", store), context=ActivityContext())


def record(store: MemoryStore, at: EntryPosition, *, complete: bool = False) -> None:
    """Record that the segment is copied up to a position."""
    partitions = (PartitionProgress(),)
    progress = SegmentRecord(segment=SEGMENT.descriptor, created_ms=0, at=at, complete=complete, partitions=partitions)
    store.create(segment_path(TARGET, 0), progress.encode())


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
    segments = Segments(store, ledgers)
    record(store, at, complete=complete)
    rounds = rounds_of(segments, store)
    if is_refused:
        with pytest.raises(StoreConflict, match=r"was copied up to 7:4\. .* keep \S+/old, .* copy to another target"):
            rounds.run("tag")
    else:
        assert rounds.run("tag").caught_up


@pytest.mark.parametrize(
    ("last", "readable", "ledgers", "is_refused"),
    [
        (EntryPosition(7, 4), 1, (7, 9), True),
        (None, 1, (7, 9), True),
        (EntryPosition(9, 1), 1, (7, 9), False),
        (EntryPosition(9, 2), 1, (7, 9), False),
        (None, -1, (9,), False),
        # What consumers could read then is deleted.
        (None, 1, (11,), False),
    ],
)
def test_messages_that_readers_do_not_get(
    *, last: EntryPosition | None, readable: int, ledgers: tuple[int, ...], is_refused: bool
) -> None:
    """A segment is not copied completely while its broker names a message as the last one that is not the last."""
    store = MemoryStore()
    store.create(TOPIC.watermark_path, b'{"ledgerId":9,"entryId":%d}' % readable)
    segments = Segments(store, ledgers, last)
    record(store, last or EARLIEST)
    rounds = rounds_of(segments, store)
    if is_refused:
        with pytest.raises(
            StoreConflict,
            match=r"/0000-ffff-0 names (7:4|none) as its last message, .* up to 9:1: .* Stop producers; .*",
        ):
            rounds.run("tag")
    else:
        assert rounds.run("tag").caught_up


@pytest.mark.parametrize(
    ("operations", "is_open"),
    [
        ({}, False),
        ({"1_0-00000000000000000001": {"kind": "WRITE", "segment": str(TOPIC), "ledgerId": 0, "entryId": 0}}, True),
        ({"1_0-00000000000000000001": {"kind": "ACK", "segment": str(TOPIC), "subscription": "s"}}, False),
        ({"1_0-00000000000000000001": {"kind": "WRITE", "segment": f"{TOPIC}0"}}, False),
    ],
)
def test_open_transactions(*, operations: dict[str, object], is_open: bool) -> None:
    """A segment is not copied completely while a transaction that has written to it is open."""
    store = MemoryStore()
    for name, operation in operations.items():
        store.create(f"/txn/op/{name}", json.dumps(operation).encode())
    store.create("/txn/op/1_0__seq_counter__", bytes(8))
    segments = Segments(store, (7,))
    if is_open:
        with pytest.raises(StoreContention, match=r"transactions that have written to .* are open"):
            segments.require_readable(SEGMENT)
    else:
        segments.require_readable(SEGMENT)


@pytest.mark.parametrize("path", ["/txn/op/1_0-00000000000000000001", TOPIC.watermark_path])
def test_records_of_transactions_that_cannot_be_read(path: str) -> None:
    """They are refused with their path, and what to do."""
    store = MemoryStore()
    store.create(path, b"\x00")
    segments = Segments(store, (7,))
    with pytest.raises(StoreConflict, match=rf"{path} in .* that this version can read .*; copy with a version"):
        segments.require_readable(SEGMENT)


def test_a_segment_that_was_a_regular_topic() -> None:
    """Its transactions are not those of segments, and have ended before its migration."""
    layout = SegmentLayout.migrated(["persistent://shop/orders/new"], 0)
    store = MemoryStore()
    segments = Segments(store, (7,))
    (legacy,) = (segment for segment in layout.segments.values() if segment.legacy)
    segments.require_readable(legacy)
