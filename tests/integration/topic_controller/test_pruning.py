"""Consumed sealed segments leave the layout and are deleted, on real brokers; what a client may still read stays."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import pytest

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.integration.topic_controller.conftest import Control
from tests.integration.topic_controller.test_layout import published
from tests.support.scalable_topic.topics import pulsar
from tests.support.topic_controller.listed_topics import wait_until_none_is_listed
from tests.support.waiting import wait_for

SPACE = "persistent://public/default"


def produce(stack: Stack, topic: TopicName, count: int) -> None:
    """Store messages in a segment."""
    with closing(quiet_client(stack.broker_url)) as client:
        producer: Any = client.create_producer(str(topic), send_timeout_millis=10_000)
        for number in range(count):
            producer.send(b"%d" % number)
        producer.close()


def consume(stack: Stack, admin: PulsarAdmin, topic: TopicName, subscription: str, count: int) -> None:
    """Acknowledge messages of a segment: again where acknowledgements went with the connection.

    pulsar-client breaks it where a broker tells that a sealed segment is at its end.
    """

    def remaining() -> int:
        return admin.topics.stats(topic).subscriptions[subscription].msg_backlog

    wanted, taken = remaining() - count, set[bytes]()
    with closing(quiet_client(stack.broker_url)) as client:
        consumer: Any = client.subscribe(str(topic), subscription, consumer_type=pulsar.ConsumerType.Shared)

        def is_consumed() -> bool:
            with suppress(pulsar.Timeout):
                message = consumer.receive(100)
                if len(taken) < count:
                    taken.add(message.data())
                if message.data() in taken:
                    consumer.acknowledge(message)
            return remaining() == wanted

        wait_for("the messages to be consumed", is_consumed, 90)


def exists(admin: PulsarAdmin, topic: TopicName) -> bool:
    """Return whether a broker has a topic."""
    try:
        admin.topics.internal_stats(topic)
    except AdminNotFound:
        return False
    return True


def test_a_consumed_segment_is_pruned(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A segment is pruned when both kinds of subscription have consumed it; its topic is deleted afterwards."""
    controller = control(f"{SPACE}/goes", pruning={"after": "0s", "delete_after": None})
    name = controller.name
    old = segment_topic(name, "0000-ffff-0")
    controller.subscribe("work", SubscriptionKind.QUEUE)
    controller.subscribe("bill")
    produce(stack, old, 10)
    controller.split(0)
    consume(stack, admin, old, "work", 10)
    consume(stack, admin, old, "bill", 9)
    assert controller.prune().retained == {0: "bill has 1 unacknowledged messages"}
    assert controller.prune(0, force=True).retained == {0: "bill has 1 unacknowledged messages"}
    consume(stack, admin, old, "bill", 1)
    controller.until(lambda status: status.sealed == 0, 90)
    layout = controller.layout()
    assert (layout_faults(layout), [*layout.segments], layout.epoch) == ([], [1, 2], 2)
    assert (published(stack, name)[-1].epoch, [*published(stack, name)[-1].segments]) == (2, [1, 2])
    # A client with the previous layout sees a terminated segment, and stores nothing there.
    with closing(quiet_client(stack.broker_url)) as client, pytest.raises(Exception, match="TopicTerminated"):
        client.create_producer(str(old))
    controller.set_pruning(after="0s", delete_after="0s")
    controller.until(lambda status: status.retired == 0, 90)
    assert not exists(admin, old)
    controller.delete()
    wait_until_none_is_listed(admin, name)


def test_retained_segments_are_not_pruned(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Messages that retention keeps stay, and so does a segment without subscriptions, unless pruning is forced."""
    admin.namespaces.create("public/kept")
    controller = control("persistent://public/kept/orders", segments=2, pruning=None)
    topics = [
        segment_topic(controller.name, segment) for segment in controller.until(lambda status: status.epoch == 0).active
    ]
    for topic in topics:
        produce(stack, topic, 2)
    controller.split(0)
    assert controller.prune().retained == {0: "it has neither a subscription nor retention"}
    admin.namespaces.set_retention("public/kept", Retention(retention_time_in_minutes=60, retention_size_in_m_b=-1))
    controller.subscribe("bill")
    controller.split(1)
    for topic in topics:
        consume(stack, admin, topic, "bill", 2)
    expected = "retention keeps it for 60 minutes"
    assert controller.prune().retained == {0: expected, 1: expected}
    assert controller.prune(1, force=True).removed == (1,)
    assert controller.status().sealed == 1
    controller.delete()
    wait_until_none_is_listed(admin, controller.name)
