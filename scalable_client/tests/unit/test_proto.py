"""Protocol buffers without their library: what is written is read again, whatever else stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.pulsar.wire import pulsar_api_pb2
from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.wire.commands import Ack, KeyValue, MessageIdData, Producer
from pulsar_scalable.wire.payload import MessageMetadata
from pulsar_scalable.wire.proto import read_varint, varint
from pulsar_scalable.wire.scalable import ScalableTopicDAG, SegmentInfoProto

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
PLACES = st.builds(
    MessageIdData,
    ledger_id=INTEGERS,
    entry_id=INTEGERS,
    partition=st.none() | INTEGERS,
    ack_set=st.lists(INTEGERS, max_size=3).map(tuple),
)
UNKNOWN = (
    b"\xa0\x06\x05",  # a varint
    b"\xa2\x06\x03abc",  # bytes
    b"\xa5\x06abcd",  # 32 bits
    b"\xa1\x06abcdefgh",  # 64 bits
)


@given(INTEGERS)
def test_varints(value: int) -> None:
    """Every integer of 64 bits is read as it was written, without its sign."""
    written = varint(value)
    assert read_varint(written, 0) == (value % (1 << 64), len(written))


@given(st.builds(Ack, INTEGERS, INTEGERS, st.lists(PLACES, max_size=3).map(tuple), st.none() | INTEGERS))
def test_round_trips(command: Ack) -> None:
    """Messages in messages, repeated ones, and fields that are missing."""
    assert Ack.decode(command.encode()) == command


@pytest.mark.parametrize("later", UNKNOWN)
def test_fields_of_later_versions_are_skipped(later: bytes) -> None:
    """In front of those that are known, behind them, and within them."""
    inner = SegmentInfoProto(segment_id=3, hash_end=0xFFFF, parent_ids=(1, 2)).encode() + later
    data = later + ScalableTopicDAG(epoch=7).encode() + b"\x12" + varint(len(inner)) + inner + later
    found = ScalableTopicDAG.decode(data)
    assert found == ScalableTopicDAG(7, (SegmentInfoProto(segment_id=3, hash_end=0xFFFF, parent_ids=(1, 2)),))


def test_packed_integers_are_read() -> None:
    """Writers may pack repeated integers."""
    packed = b"\x2a\x03\x01\x02\x03"
    assert SegmentInfoProto.decode(packed).parent_ids == (1, 2, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # no value behind a tag
        b"\x08" + b"\xff" * 11,  # a varint that does not end
        b"\x12\x05ab",  # fewer bytes than announced
        b"\x0b\x0c",  # a group, which nobody writes any more
        b"\x0a\x00",  # bytes where an integer is due
        b"\x0d\x00\x00\x00",  # 32 bits that are cut
    ],
)
def test_what_is_damaged_is_refused(data: bytes) -> None:
    """Nothing else than the typed error comes of it."""
    with pytest.raises(ProtocolViolation):
        ScalableTopicDAG.decode(data)


@given(st.binary(max_size=60))
def test_anything_else_is_refused_or_read(data: bytes) -> None:
    """No other error comes of random bytes."""
    try:
        ScalableTopicDAG.decode(data)
        MessageMetadata.decode(data)
    except ProtocolViolation:
        return


@given(st.text(max_size=10), st.integers(0, 1 << 40), st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_the_library_reads_the_same(name: str, number: int, properties: dict[str, str]) -> None:
    """What protobuf's own library makes of our bytes, and we of its."""
    ours = Producer(
        topic=name,
        producer_id=number,
        request_id=1,
        metadata=tuple(KeyValue(key, value) for key, value in properties.items()),
        user_provided_producer_name=True,
    )
    theirs = pulsar_api_pb2.CommandProducer.FromString(ours.encode())
    assert (theirs.topic, theirs.producer_id, theirs.user_provided_producer_name) == (name, number, True)
    assert {one.key: one.value for one in theirs.metadata} == properties
    assert Producer.decode(theirs.SerializeToString()) == ours
