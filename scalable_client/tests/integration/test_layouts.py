"""Layouts and registrations on a real broker."""

from __future__ import annotations

import pytest
from scalable_client.tests.support.topics import SUBSCRIPTION, make_scalable, scalable, take_all

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.segments.layout import SegmentLayout
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable import ScalableClient
from pulsar_scalable.errors import ScalableError, TopicNotFound
from pulsar_scalable.layout import Layout
from pulsar_scalable.native import Assignment, ConsumerKind, InitialPosition, NativeClient
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from tests.support.scalable_topic.topics import delete_scalable, layout_of
from tests.support.scalable_topic.topics import make_scalable as migrate
from tests.support.waiting import wait_for, wait_until_equal

_LIMIT = 30.0


def same(layout: Layout, model: SegmentLayout) -> bool:
    """Return whether a layout of the binary protocol is the one in the metadata store."""
    reported = {
        segment.id: (
            segment.start,
            segment.end,
            segment.active,
            segment.parents,
            segment.children,
            segment.legacy_topic,
        )
        for segment in layout.segments
    }
    stored = {
        number: (
            segment.hash_range.start,
            segment.hash_range.end,
            segment.active,
            segment.parent_ids,
            segment.child_ids,
            segment.legacy_topic_name,
        )
        for number, segment in model.segments.items()
    }
    return layout.epoch == model.epoch and reported == stored


def test_splits_and_merges_are_reported(admin: PulsarAdmin, store: CasStore, client: NativeClient) -> None:
    """The whole graph at first, and after each change."""
    name, reported = make_scalable(admin, 3), list[Layout]()
    watch = client.watch(scalable(name), reported.append)
    assert same(watch.layout, layout_of(store, name))
    assert watch.layout.topic == scalable(name)
    admin.scalable_topics.split(name, 1)
    wait_until_equal("the split", lambda: watch.layout.epoch, 1, _LIMIT)
    assert same(watch.layout, layout_of(store, name))
    admin.scalable_topics.merge(name, 3, 4)
    wait_until_equal("the merge", lambda: watch.layout.epoch, 2, _LIMIT)
    assert same(watch.layout, layout_of(store, name))
    wait_for("the lookup", lambda: same(client.look_up(scalable(name)), layout_of(store, name)), _LIMIT)
    assert [layout.epoch for layout in reported] == [0, 1, 2]


def test_a_topic_that_is_deleted(admin: PulsarAdmin, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers and producers notice it, although brokers of 5.0.1 do not notify the watchers of the topic."""
    monkeypatch.setattr("pulsar_scalable.native.watch._CHECK_INTERVAL", 1.0)
    monkeypatch.setattr("pulsar_scalable.native.watch._MISSING_IS_DELETED", 1.0)
    name = make_scalable(admin, 2)
    topic = scalable(name)
    with (
        ScalableClient(stack.broker_url) as client,
        client.subscribe(topic, "work") as consumer,
        client.create_producer(topic) as producer,
    ):
        producer.send(b"one")
        consumer.acknowledge(consumer.receive(20_000))
        delete_scalable(admin, name)
        with pytest.raises(TopicNotFound, match="was deleted"):
            consumer.receive(40_000)
        with pytest.raises(TopicNotFound, match="was deleted"):
            producer.send(b"two")


def test_a_regular_topic_that_becomes_scalable(
    stack: Stack, admin: PulsarAdmin, store: CasStore, client: NativeClient
) -> None:
    """The same watch reports the partitions, and then the segments."""
    name, reported = TopicName.parse("public/default/native-client-regular"), list[Layout]()
    admin.topics.create_partitioned(name, 3)
    watch = client.watch(str(name), reported.append)
    assert watch.layout.synthetic
    assert [segment.legacy_topic for segment in watch.layout.active] == [
        str(name.of_partition(number)) for number in range(3)
    ]
    migrate(stack, admin, name)
    wait_for("the segments", lambda: not watch.layout.synthetic, _LIMIT)
    assert same(watch.layout, layout_of(store, name))
    assert [layout.synthetic for layout in reported] == [True, False]


def test_topics_that_are_not_there(client: NativeClient) -> None:
    """The broker's refusal is typed, and a topic is created only where that is asked for."""
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            client.watch("topic://public/default/nowhere", lambda _: None)
    with pytest.raises(ScalableError):
        client.register("topic://public/default/nowhere", "sub", "me", ConsumerKind.STREAM, lambda _: None)
    assert len(client.look_up("topic://public/default/created", create=True).active) == 1
    assert len(client.look_up("topic://public/default/created").active) == 1


def ids(assignment: Assignment) -> set[int]:
    """Return the segments of an assignment."""
    return {segment.id for segment in assignment.segments}


def test_stream_consumers_share_segments(admin: PulsarAdmin, client: NativeClient) -> None:
    """A single consumer has all segments, two have half each; children come once their parent is drained."""
    name = make_scalable(admin, 4)
    first = client.register(scalable(name), SUBSCRIPTION, "first", ConsumerKind.STREAM, lambda _: None)
    assert ids(first.assignment) == {0, 1, 2, 3}
    assert first.assignment.segments[0].topic == client.look_up(scalable(name)).segments[0].topic(scalable(name))
    second = client.register(scalable(name), SUBSCRIPTION, "second", ConsumerKind.STREAM, lambda _: None)
    wait_until_equal(
        "the balance", lambda: [len(ids(registration.assignment)) for registration in (first, second)], [2, 2], _LIMIT
    )
    assert ids(first.assignment) | ids(second.assignment) == {0, 1, 2, 3}
    topic = scalable(name)
    segment = client.look_up(topic).segments[0]
    client.create_producer(segment.topic(topic)).send(b"held")
    admin.scalable_topics.split(name, 0)
    wait_until_equal(
        "the parent", lambda: [registration.assignment.epoch for registration in (first, second)], [1, 1], _LIMIT
    )
    assert ids(first.assignment) | ids(second.assignment) == {0, 1, 2, 3}
    consumer = client.subscribe(
        segment.topic(topic), SUBSCRIPTION, SegmentConsumerOptions(initial_position=InitialPosition.Earliest)
    )
    assert [message.data() for message in take_all(consumer, 1)] == [b"held"]
    wait_for("the children", lambda: {4, 5} <= ids(first.assignment) | ids(second.assignment), _LIMIT)


def test_checkpoint_consumers_do_not_wait_for_parents(admin: PulsarAdmin, client: NativeClient) -> None:
    """Checkpoint consumers share segments too, and get children at once."""
    name = make_scalable(admin, 2)
    pair = [
        client.register(scalable(name), "checkpoints", consumer_name, ConsumerKind.CHECKPOINT, lambda _: None)
        for consumer_name in ("one", "two")
    ]
    wait_until_equal(
        "the balance", lambda: [len(ids(registration.assignment)) for registration in pair], [1, 1], _LIMIT
    )
    segment = client.look_up(scalable(name)).segments[0]
    client.create_producer(segment.topic(scalable(name))).send(b"held")
    admin.scalable_topics.split(name, 0)
    wait_until_equal(
        "the children",
        lambda: set[int]().union(*(ids(registration.assignment) for registration in pair)),
        {0, 1, 2, 3},
        _LIMIT,
    )


def test_a_consumer_that_comes_back_keeps_its_segments(admin: PulsarAdmin, client: NativeClient) -> None:
    """Within the controller's grace period, by its name; one that leaves gives them to others at once."""
    name, others = make_scalable(admin, 2), list[Assignment]()
    client.register(scalable(name), SUBSCRIPTION, "other", ConsumerKind.STREAM, others.append)
    leaving = client.register(scalable(name), SUBSCRIPTION, "leaving", ConsumerKind.STREAM, lambda _: None)
    wait_until_equal("the balance", lambda: len(ids(others[-1])), 1, _LIMIT)
    had, seen = ids(leaving.assignment), len(others)
    leaving.detach()
    back = client.register(scalable(name), SUBSCRIPTION, "leaving", ConsumerKind.STREAM, lambda _: None)
    assert ids(back.assignment) == had
    assert len(others) == seen
    back.close()
    # Sooner than after the grace period, which is a minute.
    wait_until_equal("all segments", lambda: len(ids(others[-1])), 2, _LIMIT)
