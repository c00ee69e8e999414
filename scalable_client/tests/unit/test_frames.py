"""Frames as a broker of 5.0.1 sent them, and as they arrive in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalable_client.tests.support.fake_broker import NONE

from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.layout import Segment
from pulsar_scalable.native.watch import layout_of
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.frames import Command, FrameBuffer, decode, encode

# Recorded from a broker of 5.0.1, without the frames' sizes.
CONNECTED = "0000002d08031a290a1250756c73617220536572766572352e302e311015188080c002220c200128013001380140014801"
LAYOUT = (
    "000001190847ba049302080312e601080112240800100018ffff0120013002300338004001489ae29ce6a13450def39ce6a134608080021219"
    "08011080800218ffff0320003800489ae29ce6a1346080800212140802100018ff7f20002800380148def39ce6a134121708031080800118ff"
    "ff0120002800380148def39ce6a1341a1c0803121870756c7361723a2f2f3132372e302e302e313a32323330391a1c0802121870756c736172"
    "3a2f2f3132372e302e302e313a32323330391a1c0801121870756c7361723a2f2f3132372e302e302e313a3232333039221870756c7361723a"
    "2f2f3132372e302e302e313a32323330392a26746f7069633a2f2f7075626c69632f64656661756c742f6e61746976652d636c69656e742d33"
)
ASSIGNMENT = (
    "0000005d084ad2045808012254080012500800100018ffff0122347365676d656e743a2f2f7075626c69632f64656661756c742f6e61746976"
    "652d636c69656e742d332f303030302d376666662d302a06080010ffff012a080880800210ffff03"
)
ANSWERS: list[tuple[str, Command]] = [
    (
        "0000002008118a011b080512086465762d302d313418ffffffffffffffffff0122003001",
        api.CommandProducerSuccess(request_id=5, producer_name="dev-0-14", last_sequence_id=-1, producer_ready=True),
    ),
    (
        "0000001908073a15080210001a04081f100020ffffffffffffffffff01",
        api.CommandSendReceipt(producer_id=2, sequence_id=0, message_id=api.MessageIdData(ledgerId=31, entryId=0)),
    ),
    ("00000006080d6a02080c", api.CommandSuccess(request_id=12)),
    ("00000011080f7a0d081410ffffffffffffffffff01", api.CommandCloseProducer(producer_id=20, request_id=NONE)),
    ("00000007081bda01020805", api.CommandReachedEndOfTopic(consumer_id=5)),
    ("000000090826b202040807300c", api.CommandAckResponse(consumer_id=7, request_id=12)),
    (
        "000000270818c201220a1870756c7361723a2f2f3132372e302e302e313a32323330391801202728014000",
        api.CommandLookupTopicResponse(
            brokerServiceUrl="pulsar://127.0.0.1:22309",
            response=api.CommandLookupTopicResponse.Connect,
            request_id=39,
            authoritative=True,
            proxy_through_service_url=False,
        ),
    ),
    (
        (
            "00000044081ef2013f0a2c08ffffffffffffffffff0110ffffffffffffffffff0118ffffffffffffffffff0120ffffffffffffffffff0110"
            "031a0d081f10ffffffffffffffffff01"
        ),
        api.CommandGetLastMessageIdResponse(
            last_message_id=api.MessageIdData(ledgerId=NONE, entryId=NONE, partition=-1, batch_index=-1), request_id=3
        ),
    ),
    (
        "00000031080e722d080610051a274578636c757369766520636f6e73756d657220697320616c726561647920636f6e6e6563746564",
        api.CommandError(request_id=6, error=5, message="Exclusive consumer is already connected"),
    ),
    (
        CONNECTED,
        api.CommandConnected(
            server_version="Pulsar Server5.0.1",
            protocol_version=21,
            max_message_size=5 << 20,
            feature_flags=api.FeatureFlags(supports_scalable_topics=True),
        ),
    ),
]


@pytest.mark.parametrize(("recorded", "expected"), ANSWERS, ids=lambda command: type(command).__name__)
def test_what_brokers_send(recorded: str, expected: Command) -> None:
    """Each answer is read as what it means."""
    command = decode(bytes.fromhex(recorded)).command
    assert command is not None
    # Schemas and broker settings, which this package does not name.
    command.DiscardUnknownFields()
    assert command == expected


def test_a_layout_after_a_split() -> None:
    """Segments, their graph, their owners and the leader."""
    update = decode(bytes.fromhex(LAYOUT)).command
    assert isinstance(update, api.CommandScalableTopicUpdate)
    layout = layout_of(update.dag, update.resolved_topic_name)
    assert (layout.topic, layout.epoch, layout.controller) == (
        "topic://public/default/native-client-3",
        1,
        "pulsar://127.0.0.1:22309",
    )
    assert layout.segments == (
        Segment(0, 0, 0x7FFF, active=False, children=(2, 3)),
        Segment(1, 0x8000, 0xFFFF),
        Segment(2, 0, 0x3FFF, parents=(0,)),
        Segment(3, 0x4000, 0x7FFF, parents=(0,)),
    )
    assert dict(layout.brokers)[3] == "pulsar://127.0.0.1:22309"


def test_an_assignment() -> None:
    """The segments of a consumer, one of which it shares by entry buckets."""
    answer = decode(bytes.fromhex(ASSIGNMENT)).command
    assert isinstance(answer, api.CommandScalableTopicSubscribeResponse)
    (segment,) = answer.assignment.segments
    assert segment.segment_topic == "segment://public/default/native-client-3/0000-7fff-0"
    assert [(bucket_range_.start, bucket_range_.end) for bucket_range_ in segment.bucket_ranges] == [
        (0, 0x7FFF),
        (0x8000, 0xFFFF),
    ]


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(1, 7))
def test_frames_in_pieces(bodies: list[bytes], size: int) -> None:
    """However they are cut on their way, the same frames arrive."""
    sent = [encode(api.CommandFlow(consumer_id=number, messagePermits=1), body) for number, body in enumerate(bodies)]
    stream, buffer = b"".join(sent), FrameBuffer()
    frames = [frame for at in range(0, len(stream), size) for frame in buffer.feed(stream[at : at + size])]
    assert [decode(frame) for frame in frames] == [
        (api.CommandFlow(consumer_id=number, messagePermits=1), body) for number, body in enumerate(bodies)
    ]


def test_unknown_commands_are_none() -> None:
    """A command of a later broker is not an error."""
    assert decode(b"\0\0\0\x06\x08\x63\x9a\x06\x01x") == (None, b"")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x09\x08\x02", b"\0\0\0\x02\x10\x02", b"\0\0\0\x04\x08\x03\x1a\x09"])
def test_an_invalid_frame_is_refused(data: bytes) -> None:
    """Invalid frames: cut short, without a type, or with a command that exceeds the frame."""
    with pytest.raises(ProtocolViolation):
        decode(data)


@pytest.mark.parametrize(
    "command",
    [
        api.CommandError(request_id=1, error=1, message="WORD"),
        api.CommandLookupTopicResponse(request_id=1, brokerServiceUrl="WORD"),
        api.CommandScalableTopicUpdate(
            session_id=1,
            dag=api.ScalableTopicDAG(
                epoch=1, segment_brokers=[api.SegmentBrokerAddress(segment_id=1, broker_url="WORD")]
            ),
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_text_that_is_not_utf_8_is_refused(command: Command) -> None:
    """A command whose text is not UTF-8 is none, at whatever depth: protobuf would give bytes in its place."""
    data = encode(command)[4:]
    assert decode(data).command == command
    with pytest.raises(ProtocolViolation, match="UTF-8"):
        decode(data.replace(b"WORD", b"\xff\xfe\xc3("))


def test_a_sequence_id_that_no_message_can_follow_is_refused() -> None:
    """Brokers say -1 where nothing is stored; below that, the next number would be negative."""
    data = encode(api.CommandProducerSuccess(request_id=1, producer_name="p", last_sequence_id=-1))[4:]
    assert decode(data).command is not None
    with pytest.raises(ProtocolViolation, match="last sequence id"):
        decode(encode(api.CommandProducerSuccess(request_id=1, producer_name="p", last_sequence_id=-2))[4:])


def test_a_frame_that_is_too_large_is_refused() -> None:
    """A size that no Pulsar frame has fails immediately."""
    with pytest.raises(ProtocolViolation, match="announced"):
        FrameBuffer().feed(b"HTTP/1.1 400 Bad Request")
