"""Selection of the entries of blue that are copied; their source is a double here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import pytest

from clients.errors import StoreUnsupported
from clients.pulsar.names import TopicName
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from models.lifecycle.claim import READ_ONLY
from models.store_url import parse_store_url
from pulsar_wire.pulsar_api_pb2 import MessageMetadata
from spark.blue_green import sources
from spark.blue_green.positions import LedgerLength
from spark.blue_green.sources import BlueSource
from spark.blue_green.spec import CopyEnds, TopicCopy

ENDS = CopyEnds(parse_store_url("zk:127.0.0.1:1"), READ_ONLY, "pulsar://127.0.0.1:1", "pulsar://127.0.0.1:2", ())
COPY = TopicCopy(TopicName.parse("acme/orders/new"), (LedgerLength(4, 2), LedgerLength(6, 1)))
PLAIN = MessageMetadata(producer_name="app")


def _given(monkeypatch: pytest.MonkeyPatch, *entries: tuple[EntryPosition, MessageMetadata]) -> BlueSource:
    """Return a source whose broker gives these entries."""

    class Reader:
        def __init__(self, *_: object, **__: object) -> None:
            self.closed = False

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.closed = True

        def entries(self, last: EntryPosition) -> Iterator[tuple[EntryPosition, Message]]:
            assert last == EntryPosition(6, 0)
            return ((place, Message(b"data", metadata)) for place, metadata in entries)

    monkeypatch.setattr(sources, "RawReader", Reader)
    return BlueSource(ENDS, COPY)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        (MessageMetadata(producer_name="app", marker_type=21), "a marker of the brokers"),
        (MessageMetadata(producer_name="app", txnid_least_bits=0, txnid_most_bits=1), "a message of a transaction"),
    ],
)
def test_transactions_are_refused(monkeypatch: pytest.MonkeyPatch, metadata: MessageMetadata, what: str) -> None:
    """An entry that means nothing on another cluster ends the copy before it is sent, and is named."""
    given = _given(monkeypatch, (EntryPosition(4, 0), PLAIN), (EntryPosition(4, 1), metadata)).entries(EARLIEST)
    assert next(given)[0] == EntryPosition(4, 0)
    with pytest.raises(StoreUnsupported, match=f"entry 4:1 is {what}"):
        next(given)


def test_entries_that_a_broker_withholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a broker does not deliver an entry, that is detected; later entries are not copied."""
    given = _given(monkeypatch, (EntryPosition(4, 0), PLAIN), (EntryPosition(6, 0), PLAIN)).entries(EARLIEST)
    next(given)
    with pytest.raises(StoreUnsupported, match="returned entry 6:0 instead of 4:1"):
        next(given)


def test_whole_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every confirmed entry comes, in order, across ledgers."""
    places = [EntryPosition(4, 0), EntryPosition(4, 1), EntryPosition(6, 0)]
    given = _given(monkeypatch, *((place, PLAIN) for place in places))
    assert [place for place, _ in given.entries(EARLIEST)] == places
    assert list(given.entries(EntryPosition(6, 0))) == []
