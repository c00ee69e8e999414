"""What the end of one segment does to consumers of others."""

from __future__ import annotations

import pytest

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.topics import EARLIEST
from deploy.devstack.stack import Stack
from models.segment import SubscriptionKind
from pulsar_scalable import InitialPosition, Message, ScalableClient, StreamConsumer
from pulsar_scalable.errors import TimedOut
from tests.integration.topic_controller.conftest import Control
from tests.integration.topic_controller.test_people import clients
from tests.support.topic_controller.registrar import Registrar
from tests.support.waiting import wait_for

TOPIC = "persistent://public/default/drained"
SEGMENTS = 4
KEYS = [str(number) for number in range(40)]
AGAIN = "persistent://public/default/again"
ALONE = "persistent://public/default/alone"
_COME_AGAIN_MS = 3000


def _received(consumer: StreamConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(count):
        consumer.acknowledge(message := consumer.receive(60_000))
        found.append(message.data())
    return found


def test_a_drained_segment_disturbs_no_other_one(control: Control, stack: Stack) -> None:
    """pulsar-client breaks its connection when a broker tells it that a sealed segment is at its end."""
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


def test_what_is_left_again_of_a_drained_segment_is_read_again(
    control: Control, stack: Stack, admin: PulsarAdmin
) -> None:
    """A broker that is killed forgets acknowledgements, and cursors can be set back: the segment is read again."""
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
        wait_for("the new segments to be read", lambda: consumer.segments == [1, 2], 30)
        old = segment_topic(controller.name, "0000-ffff-0")
        admin.subscriptions.reset_to(old, "bill", EARLIEST)
        assert _received(consumer, count) == [b"old"] * count
        wait_for("the new segments to be read again", lambda: consumer.segments == [1, 2], 30)
        producer.send(b"last", partition_key="0")
        assert _received(consumer, 1) == [b"last"]
        assert admin.topics.stats(old).subscriptions["bill"].msg_backlog == 0
    admin.subscriptions.skip_all(old, "audit")
    controller.until(lambda status: status.sealed == 0, 90)
    controller.delete()


def test_what_nobody_looked_at(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Whoever comes first gets what was left again meanwhile before newer messages; a late subscription nothing old."""
    controller = control(ALONE, segments=1)
    controller.subscribe("bill")
    with (
        Registrar(lambda: controller) as registrar,
        ScalableClient(stack.broker_url, controller_url=registrar.base_url) as client,
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
            wait_for("the new segments to be read", lambda: consumer.segments == [1, 2], 30)
        old = segment_topic(controller.name, "0000-ffff-0")
        admin.subscriptions.reset_to(old, "bill", EARLIEST)
        send(b"last")
        with client.subscribe_stream(ALONE, "bill") as consumer:
            assert _received(consumer, 2 * count) == [b"old"] * count + [b"last"] * count

        controller.subscribe("late")
        earliest = InitialPosition.Earliest
        with client.subscribe_stream(ALONE, "late", initial_position=earliest) as consumer:
            assert sorted(_received(consumer, 2 * count)) == [b"last"] * count + [b"new"] * count
        assert admin.topics.stats(old).subscriptions["late"].msg_backlog == 0
    controller.delete()
