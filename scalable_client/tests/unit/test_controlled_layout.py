"""Clients read the layouts and names that controllers publish, and checkpoints."""

from __future__ import annotations

import pytest

from activities.topic_controller.names import layout_topic, segment_topic
from clients.pulsar.names import TopicName as OurName
from models.topic_controller.record import ControlledLayout as Record
from models.topic_controller.record import PublishedLayout
from models.topic_controller.sessions import assignment_of
from pulsar_scalable import Checkpoint, errors
from pulsar_scalable.controlled.layout import assignment_key, parse_assignment, parse_layout
from pulsar_scalable.controlled.rest import ConsumerKey
from pulsar_scalable.layout import Segment
from pulsar_scalable.names import TopicName
from pulsar_scalable.native import MessageId

ORDERS = TopicName("public/default/orders")


def published(record: Record) -> bytes:
    """Return a layout as the controller publishes it."""
    return PublishedLayout.of(record).encode()


def test_a_layout() -> None:
    """The controller's own layouts are read, and the names of topics are the controller's."""
    record = Record.created(2, {}, 1000)
    layout = parse_layout(ORDERS, published(record))
    assert layout.active == (Segment(0, 0, 0x7FFF), Segment(1, 0x8000, 0xFFFF))
    assert (layout.epoch, layout.created_ms, layout.is_deleted, layout.controller_urls) == (0, 1000, False, ())
    ours = OurName.parse("orders")
    assert layout.topic_of(layout.active[0]) == str(segment_topic(ours, "0000-7fff-0"))
    assert ORDERS.layout_topic == str(layout_topic(ours))
    assert not layout.synthetic


def test_order_of_layouts() -> None:
    """An epoch never decreases, a deletion ends it, and a later topic of the same name starts again."""
    old = Record.created(1, {}, 1000)
    split = old.model_copy(update={"epoch": 1})
    deleted = split.model_copy(update={"deleting": True})
    later = Record.created(1, {}, 2000)
    courses = [parse_layout(ORDERS, published(layout)) for layout in (old, split, deleted, later)]
    for place, layout in enumerate(courses):
        assert layout.supersedes(None)
        assert [layout.supersedes(other) for other in courses] == [number < place for number in range(4)]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"epoch": 1}', b'{"epoch":1,"createdMs":1,"segments":{"0":{}}}'])
def test_invalid_layouts(data: bytes) -> None:
    """Anything else is refused with its name."""
    with pytest.raises(errors.ProtocolViolation, match=r"invalid layout in .*orders\.scalable\.layout"):
        parse_layout(ORDERS, data)
    with pytest.raises(errors.ProtocolViolation, match="invalid assignment"):
        parse_assignment(data)


def test_an_assignment() -> None:
    """The controller's own assignments are read, and places of consumers are encoded."""
    record = Record.created(2, {}, 1000).split(1, 2000)
    given = assignment_of("persistent://public/default/orders", record, 7, (0, 3))
    message = parse_assignment(given.model_dump_json(by_alias=True).encode())
    assert (message.created_ms, message.generation, message.evicted, message.assignment.epoch) == (1000, 7, False, 1)
    layout = parse_layout(ORDERS, published(record))
    assert [(segment.id, segment.start, segment.end, segment.topic) for segment in message.assignment.segments] == [
        (segment.id, segment.start, segment.end, layout.topic_of(segment))
        for segment in (layout.by_id[0], layout.by_id[3])
    ]
    ended = given.model_copy(update={"evicted": True, "segments": ()})
    assert parse_assignment(ended.model_dump_json(by_alias=True).encode()).evicted
    assert assignment_key("bill", "one") == "assignment/bill/one"
    assert ConsumerKey(ORDERS, "a/b", "c d").path.endswith("/public/default/orders/subscriptions/a%2Fb/consumers/c%20d")


@pytest.mark.parametrize(
    ("text", "expected_name"),
    [
        ("orders", ORDERS),
        ("a/b/c", TopicName("a/b/c")),
        ("persistent://a/b/c/d", TopicName("a/b/c/d")),
        ("topic://a/b/c", TopicName("a/b/c", native=True)),
    ],
)
def test_names(text: str, expected_name: TopicName) -> None:
    """Names are read as clients of Pulsar read them."""
    assert TopicName.parse(text) == expected_name


@pytest.mark.parametrize("text", ["", "a/b", "segment://a/b/c", "persistent://a/b", "topic://orders", "a//c"])
def test_invalid_names(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(errors.Unsupported, match="invalid scalable topic"):
        TopicName.parse(text)


def test_checkpoints() -> None:
    """A checkpoint survives its bytes, and other bytes are refused."""
    saved = Checkpoint(5, {0: "done", 3: MessageId(7, 1).serialize().hex(), 4: ""})
    assert Checkpoint.deserialize(saved.serialize()) == saved
    places = [b'{"incarnation":1,"positions":{"0":"%s"}}' % place for place in (b"no hex", b"0a0b", b"ff")]
    for data in (b"", b"{}", b"[]", *places):
        with pytest.raises(errors.ProtocolViolation, match="invalid checkpoint"):
            Checkpoint.deserialize(data)
