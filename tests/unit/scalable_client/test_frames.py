"""Frames as a broker of 5.0.0-M1 sent them, and as they arrive in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.layout import Segment
from pulsar_scalable.wire import commands, scalable
from pulsar_scalable.wire.commands import Command, FeatureFlags, MessageIdData
from pulsar_scalable.wire.frames import FrameBuffer, decode, encode

# Recorded from a broker of 5.0.0-M1, without the frames' sizes.
CONNECTED = "0000003008031a2c0a1550756c73617220536572766572352e302e302d4d311015188080c002220c200128013001380140014801"
LAYOUT = (
    "000001060847ba048002080112de01080112200800100018ffff0120013002300338004001488fbcbd9fa13450b1bebd9fa134121508011080"
    "800218ffff0320003800488fbcbd9fa13412140802100018ff7f20002800380148b1bebd9fa134121708031080800118ffff01200028003801"
    "48b1bebd9fa1341a1c0803121870756c7361723a2f2f3132372e302e302e313a32393033311a1c0801121870756c7361723a2f2f3132372e30"
    "2e302e313a32393032391a1c0802121870756c7361723a2f2f3132372e302e302e313a3239303331221870756c7361723a2f2f3132372e302e"
    "302e313a32393032392a1b746f7069633a2f2f7075626c69632f64656661756c742f67373834"
)
ASSIGNMENT = (
    "00000077084ad204720801226e080012330800100018ffff0122297365676d656e743a2f2f7075626c69632f64656661756c742f673738342f"
    "303030302d376666662d30123508011080800218ffff0322297365676d656e743a2f2f7075626c69632f64656661756c742f673738342f3830"
    "30302d666666662d31"
)
ANSWERS: list[tuple[str, Command]] = [
    (
        "0000001f08118a011a080212076465762d312d3018ffffffffffffffffff0122003001",
        commands.ProducerSuccess(2, "dev-1-0", -1, producer_ready=True),
    ),
    ("0000001008073a0c080410001a04080910002000", commands.SendReceipt(4, 0, MessageIdData(9, 0))),
    ("00000006080d6a02080f", commands.Success(15)),
    ("00000011080f7a0d080410ffffffffffffffffff01", commands.CloseProducer(4, -1)),
    ("00000007081bda01020805", commands.ReachedEndOfTopic(5)),
    ("000000090826b202040807300c", commands.AckResponse(consumer_id=7, request_id=12)),
    (
        "000000270818c201220a1870756c7361723a2f2f3132372e302e302e313a32393032391801200a28014000",
        commands.LookupTopicResponse(
            broker_service_url="pulsar://127.0.0.1:29029",
            response=1,
            request_id=10,
            authoritative=True,
            proxy_through_service_url=False,
        ),
    ),
    (
        "00000029081ef201240a1a080e100118ffffffffffffffffff0120ffffffffffffffffff01100d1a04080e1000",
        commands.GetLastMessageIdResponse(MessageIdData(14, 1, -1, -1), 13),
    ),
    (
        CONNECTED,
        commands.Connected("Pulsar Server5.0.0-M1", 21, 5 << 20, FeatureFlags(supports_scalable_topics=True)),
    ),
]


@pytest.mark.parametrize(("recorded", "expected"), ANSWERS, ids=lambda one: type(one).__name__)
def test_what_brokers_send(recorded: str, expected: Command) -> None:
    """Each answer is read as what it means."""
    assert decode(bytes.fromhex(recorded)).command == expected


def test_a_layout_after_a_split() -> None:
    """Segments, their graph, their owners and the leader."""
    update = decode(bytes.fromhex(LAYOUT)).command
    assert isinstance(update, scalable.ScalableTopicUpdate)
    assert update.dag is not None
    assert update.resolved_topic_name is not None
    layout = update.dag.layout(update.resolved_topic_name)
    assert (layout.topic, layout.epoch, layout.controller) == (
        "topic://public/default/g784",
        1,
        "pulsar://127.0.0.1:29029",
    )
    assert layout.segments == (
        Segment(0, 0, 0x7FFF, active=False, children=(2, 3)),
        Segment(1, 0x8000, 0xFFFF),
        Segment(2, 0, 0x3FFF, parents=(0,)),
        Segment(3, 0x4000, 0x7FFF, parents=(0,)),
    )
    assert dict(layout.brokers)[3] == "pulsar://127.0.0.1:29031"


def test_an_assignment() -> None:
    """The segments of a consumer."""
    answer = decode(bytes.fromhex(ASSIGNMENT)).command
    assert isinstance(answer, scalable.ScalableTopicSubscribeResponse)
    assert answer.assignment is not None
    assert [one.segment_topic for one in answer.assignment.segments] == [
        "segment://public/default/g784/0000-7fff-0",
        "segment://public/default/g784/8000-ffff-1",
    ]


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(1, 7))
def test_frames_in_pieces(bodies: list[bytes], size: int) -> None:
    """However they are cut on their way, the same frames arrive."""
    sent = [encode(commands.Flow(number, 1), body) for number, body in enumerate(bodies)]
    stream, buffer = b"".join(sent), FrameBuffer()
    found = [one for at in range(0, len(stream), size) for one in buffer.feed(stream[at : at + size])]
    kinds = {commands.Flow.number: commands.Flow}
    assert [decode(one, kinds) for one in found] == [
        (commands.Flow(number, 1), body) for number, body in enumerate(bodies)
    ]


def test_unknown_commands_are_none() -> None:
    """A later broker's news is no error."""
    assert decode(encode(commands.Flow(1, 1))[4:]).command is None


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x09\x08\x02", b"\0\0\0\x02\x10\x02", b"\0\0\0\x04\x08\x03\x1a\x09"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """Cut short, without a type, or with a command that ends behind it."""
    with pytest.raises(ProtocolViolation):
        decode(data)


def test_a_frame_that_is_too_large_is_refused() -> None:
    """Nobody waits for what can only be something else than Pulsar."""
    with pytest.raises(ProtocolViolation, match="announced"):
        FrameBuffer().feed(b"HTTP/1.1 400 Bad Request")
