"""Acknowledgements and subscriptions of clients hold while connections come and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable import ConsumerOptions, InitialPosition, ScalableClient, StreamConsumer
from tests.integration.topic_controller.conftest import Control
from tests.integration.topic_controller.test_people import clients
from tests.support.waiting import wait_for

LOST = "persistent://public/default/lost-acknowledgement"
LATEST = "persistent://public/default/from-now-on"
_ROUNDS = 3
_NOT_SEEN_AFTER, _POLL = 2.0, 0.002


def _is_connected(consumer: StreamConsumer, segment: int) -> bool:
    """Return whether pulsar-client has a connection for a segment now."""
    receiver = consumer._sources[segment].receiver  # pyright: ignore[reportPrivateUsage]
    return receiver is not None and receiver._inner.is_connected()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def _disconnect(admin: PulsarAdmin, topic: TopicName, is_connected: Callable[[], bool]) -> None:
    """Close the connection of a segment; return while the consumer is without one, which lasts tenths of a second."""

    def is_seen() -> bool:
        admin.topics.unload(topic)
        # It may have been without one only before the answer.
        until = time.monotonic() + _NOT_SEEN_AFTER
        while is_connected():
            if time.monotonic() > until:
                return False
            time.sleep(_POLL)
        return True

    wait_for("a lost connection", is_seen, 60)


def _ignore(*_: object) -> None:
    """Leave the outcome to `flush`."""


def test_a_cumulative_acknowledgement_that_is_lost_at_a_seal(
    control: Control, stack: Stack, admin: PulsarAdmin
) -> None:
    """An acknowledgement that arrives while a segment has no connection does not block the segments that follow it."""
    controller = control(LOST, segments=1)
    controller.subscribe("bill")
    with clients(stack, controller) as (producer, consumer):
        segment = 0
        for number in range(_ROUNDS):
            for count in range(10):
                producer.send(f"{number}-{count}".encode(), partition_key="k")
            last = f"{number}-9".encode()
            while (message := consumer.receive(60_000)).data() != last:
                pass
            [active] = [info for info in controller.layout().active if info.segment_id == segment]
            topic = segment_topic(controller.name, active.descriptor)
            _disconnect(admin, topic, partial(_is_connected, consumer, segment))
            consumer.acknowledge_cumulative(message)
            layout = controller.split(segment)
            child = f"child-{number}".encode()
            producer.send(child, partition_key="k")
            message = consumer.receive(60_000)
            while message.data() != child:
                # The broker did not get the acknowledgement: that is allowed.
                consumer.acknowledge_cumulative(message)
                message = consumer.receive(60_000)
            consumer.acknowledge_cumulative(message)
            segment = message.segment_id()
            assert segment in {info.segment_id for info in layout.active}
    controller.delete(force=True)


def test_a_subscription_at_the_end_gets_all_later_messages(control: Control, stack: Stack) -> None:
    """A subscription exists on every segment when `subscribe` returns."""
    controller = control(LATEST, segments=16)
    # Its answer says that the topic is there.
    controller.subscribe("others")
    with ScalableClient(stack.broker_url) as client, client.create_producer(LATEST) as producer:
        for name in ("first", "second"):
            consumer = client.subscribe(LATEST, name, ConsumerOptions(initial_position=InitialPosition.Latest))
            for number in range(100):
                producer.send_async(f"{name}-{number}".encode(), _ignore, partition_key=str(number))
            producer.flush()
            received = set[str]()
            # One may come twice.
            while len(received) < 100:
                received.add(consumer.receive(20_000).data().decode())
            assert received == {f"{name}-{number}" for number in range(100)}
            consumer.close()
    controller.delete(force=True)
