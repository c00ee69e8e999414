"""The end of one segment does not harm consumers of others."""

from __future__ import annotations

import pytest

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.topics import EARLIEST
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import InitialPosition
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable import ClientOptions, Message, ScalableClient, StreamConsumer
from pulsar_scalable.errors import TimedOut
from tests.integration.topic_controller.conftest import Control
from tests.integration.topic_controller.test_people import clients
from tests.support.topic_controller.registrar import Registrar
from tests.support.waiting import wait_until_equal

TOPIC = "persistent://public/default/drained"
SEGMENTS = 4
KEYS = [str(number) for number in range(40)]
AGAIN = "persistent://public/default/again"
ALONE = "persistent://public/default/alone"
LATER = "persistent://public/default/later"
_COME_AGAIN_MS = 3000


def _received(consumer: StreamConsumer, count: int) -> list[bytes]:
    received: list[bytes] = []
    for _ in range(count):
        consumer.acknowledge(message := consumer.receive(60_000))
        received.append(message.data())
    return received


def test_a_drained_segment_does_not_affect_others(control: Control, stack: Stack) -> None:
    """pulsar-client breaks its connection when a broker reports the end of a sealed segment."""
    controller = control(TOPIC, segments=SEGMENTS)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    with (
        ScalableClient(stack.broker_url) as client,
        client.create_producer(TOPIC) as producer,
        client.subscribe(TOPIC, "work") as consumer,
    ):
        for key in KEYS:
            producer.send(b"", partition_key=key)
        held: dict[int, Message] = {}
        for _ in KEYS:
            message = consumer.receive(30_000)
            if held.setdefault(message.segment_id(), message) is not message or message.segment_id() == 0:
                consumer.acknowledge(message)
        assert len(held) == SEGMENTS, "each segment has keys"
        controller.split(0)
        for key in KEYS:
            producer.send(b"", partition_key=key)
        for _ in KEYS:
            consumer.acknowledge(consumer.receive(30_000))
        with pytest.raises(TimedOut):
            consumer.receive(_COME_AGAIN_MS)
        for number in range(1, SEGMENTS):
            consumer.acknowledge(held[number])
    controller.delete(force=True)


def test_redelivered_messages_of_a_drained_segment_are_read(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A killed broker forgets acknowledgements, and cursors can be reset: the segment is read again."""
    controller = control(AGAIN, segments=1, pruning={"after": "0s", "delete_after": None})
    controller.subscribe("bill")
    # Keeps the segment from being pruned.
    controller.subscribe("audit", SubscriptionKind.QUEUE)
    with clients(stack, controller) as (producer, consumer):
        for key in KEYS:
            producer.send(b"old", partition_key=key)
        controller.split(0)
        for key in KEYS:
            producer.send(b"new", partition_key=key)
        count = len(KEYS)
        assert _received(consumer, 2 * count) == [b"old"] * count + [b"new"] * count
        wait_until_equal("the new segments to be read", lambda: consumer.segments, [1, 2], 90)
        old = segment_topic(controller.name, "0000-ffff-0")
        admin.subscriptions.reset_to(old, "bill", EARLIEST)
        assert _received(consumer, count) == [b"old"] * count
        wait_until_equal("the new segments to be read again", lambda: consumer.segments, [1, 2], 90)
        producer.send(b"last", partition_key="0")
        assert _received(consumer, 1) == [b"last"]
        assert admin.topics.stats(old).subscriptions["bill"].msg_backlog == 0
    admin.subscriptions.skip_all(old, "audit")
    controller.until(lambda status: status.sealed == 0, 90)
    controller.delete()


def test_messages_that_were_not_read_before(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """The first consumer that attaches gets again what was left, before newer messages."""
    controller = control(ALONE, segments=1)
    controller.subscribe("bill")
    with (
        Registrar(lambda: controller) as registrar,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=registrar.base_url)) as client,
        client.create_producer(ALONE) as producer,
    ):

        def send(data: bytes) -> None:
            for key in KEYS:
                producer.send(data, partition_key=key)

        count = len(KEYS)
        with client.subscribe_stream(ALONE, "bill") as consumer:
            send(b"old")
            controller.split(0)
            send(b"new")
            assert _received(consumer, 2 * count) == [b"old"] * count + [b"new"] * count
            wait_until_equal("the new segments to be read", lambda: consumer.segments, [1, 2], 90)
        old = segment_topic(controller.name, "0000-ffff-0")
        admin.subscriptions.reset_to(old, "bill", EARLIEST)
        send(b"last")
        with client.subscribe_stream(ALONE, "bill") as consumer:
            assert _received(consumer, 2 * count) == [b"old"] * count + [b"last"] * count
    controller.delete()


def test_where_a_new_subscription_starts(control: Control, stack: Stack) -> None:
    """An ordered subscription at EARLIEST reads what sealed segments still have, before newer messages; LATEST none."""
    controller = control(LATER, segments=1)
    # Keeps all that is sent.
    controller.subscribe("audit", SubscriptionKind.QUEUE)
    count = len(KEYS)
    with (
        Registrar(lambda: controller) as registrar,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=registrar.base_url)) as client,
        client.create_producer(LATER) as producer,
    ):
        for data, segment in ((b"1", 0), (b"2", 1), (b"3", None)):
            for key in KEYS:
                producer.send(data, partition_key=key)
            if segment is not None:
                controller.split(segment)
        controller.subscribe("early")
        controller.subscribe("late", initial_position=InitialPosition.LATEST)
        # Again, as an attempt that was lost would: no cursor is moved.
        controller.subscribe("late")
        for key in KEYS:
            producer.send(b"4", partition_key=key)
        with client.subscribe_stream(LATER, "early") as consumer:
            by_key: dict[str, list[bytes]] = {}
            for _ in range(4 * count):
                consumer.acknowledge(message := consumer.receive(60_000))
                by_key.setdefault(message.partition_key(), []).append(message.data())
        assert [by_key[key] for key in KEYS] == [[b"1", b"2", b"3", b"4"]] * count
        with client.subscribe_stream(LATER, "late") as consumer:
            assert _received(consumer, count) == [b"4"] * count
            with pytest.raises(TimedOut):
                consumer.receive(_COME_AGAIN_MS)
    controller.delete(force=True)
