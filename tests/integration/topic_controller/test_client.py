"""The Python client at topics of a controller, in what applications do with it."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress

import pytest

from clients.pulsar.admin.client import PulsarAdmin
from models.defects import Product, defects_of
from models.releases import parse_release
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import KIND
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable import (
    ClientOptions,
    ConsumerOptions,
    Message,
    MessageId,
    ProducerOptions,
    QueueConsumer,
    ScalableClient,
    ScalableProducer,
    StreamConsumer,
)
from pulsar_scalable.errors import ScalableError, TimedOut, TopicNotFound
from tests.integration.topic_controller.conftest import Control
from tests.support.releases import with_sample
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.registrar import Registrar
from tests.support.waiting import wait_for, wait_until_equal

# A sample of `make test-releases`.
pytestmark = pytest.mark.parametrize("stack", with_sample("4.0"), indirect=True, scope="module")

SPACE = "persistent://public/default"
BATCH = 10
_LONG_DELAY_MS = 20_000
# Computed with the Java client of 5.0.1, for four equal segments.
SEGMENT_OF = {"": 0, "a": 0, "b": 2, "key-1": 2, "key-2": 3, "order-17": 0, "Ünïcode": 3, "日本語": 2, "😀": 2}


@pytest.fixture
def client(stack: Stack) -> Generator[ScalableClient]:
    """A client of the brokers."""
    with ScalableClient(stack.broker_url) as client:
        yield client


def test_a_batch_with_a_negative_acknowledgement(control: Control, client: ScalableClient) -> None:
    """A batch whose messages are all acknowledged leaves nothing, also of the messages that were redelivered."""
    controller = control(f"{SPACE}/batches", segments=1)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    with (
        client.create_producer(
            controller.input.topic,
            # It waits for all of them, however long this process takes.
            ProducerOptions(
                batching_enabled=True, batching_max_messages=BATCH, batching_max_publish_delay_ms=_LONG_DELAY_MS
            ),
        ) as producer,
        client.subscribe(
            controller.input.topic, "work", ConsumerOptions(negative_ack_redelivery_delay_ms=500)
        ) as consumer,
    ):
        for number in range(BATCH):
            producer.send_async(str(number).encode(), _ignore, partition_key="k")
        first = consumer.receive(30_000)
        consumer.negative_acknowledge(first)
        # The application is slow: the others came again while they waited, and the first one is queued after them.
        waiting = consumer._queue._items  # pyright: ignore[reportPrivateUsage] - nothing else tells what waits
        wait_until_equal("the first one again", lambda: len(waiting), BATCH, 30)
        messages = [consumer.receive(30_000) for _ in range(BATCH)]
        assert messages[-1].message_id() == first.message_id()
        assert {message.message_id().entry_id() for message in messages} == {first.message_id().entry_id()}, (
            "it is one batch"
        )
        for message in messages:
            consumer.acknowledge(message)
        wait_until_equal("nothing is left", lambda: controller.stats().subscriptions["work"], 0, 30)
    controller.delete(force=True)


def test_known_defects_are_named(control: Control, admin: PulsarAdmin) -> None:
    """The status of a topic names each known defect of the brokers' release that matters to it."""
    release, settings = parse_release(admin.brokers.version()), admin.brokers.runtime_configuration()
    expected = [defect.id for defect in defects_of(KIND, Product.PULSAR) if defect.affects(release, settings)]
    controller = control(f"{SPACE}/defects", segments=1)
    notes = controller.until(lambda status: status.epoch == 0).notes
    named = [text.partition(" ")[0] for note in notes if (text := note.partition("known defect ")[2])]
    assert named == expected
    controller.delete()


def test_the_segment_of_a_key(control: Control, client: ScalableClient) -> None:
    """A key goes to the segment that Java clients of Pulsar 5.0 choose for it; an empty key is a key."""
    controller = control(f"{SPACE}/keys", segments=4)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    topic = controller.input.topic
    with client.create_producer(topic) as producer, client.subscribe(topic, "work") as consumer:
        for key in SEGMENT_OF:
            for _ in range(2):
                producer.send(key.encode(), partition_key=key)
        received = [consumer.receive(30_000) for _ in range(2 * len(SEGMENT_OF))]
        assert {(message.data().decode(), message.segment_id()) for message in received} == {*SEGMENT_OF.items()}
    controller.delete(force=True)


def test_a_topic_that_is_created_again(control: Control, stack: Stack) -> None:
    """Producers and consumers with subscriptions continue with a topic that was deleted and created again."""
    controllers = [control(f"{SPACE}/created-again", segments=1)]
    topic = controllers[0].input.topic
    _subscribe(controllers[0])
    with (
        Registrar(lambda: controllers[-1]) as registrar,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=registrar.base_url)) as client,
        client.subscribe_stream(topic, "bill") as stream,
        client.subscribe(topic, "work") as queue,
        client.create_producer(topic) as producer,
    ):
        producer.send(b"old", partition_key="k")
        stream.acknowledge(stream.receive(30_000))
        queue.acknowledge(queue.receive(30_000))
        controllers[0].delete(force=True)
        for receive in (stream.receive, queue.receive):
            with pytest.raises(TopicNotFound):
                receive(30_000)
        controllers.append(control(topic, segments=2))
        _subscribe(controllers[1])
        wait_for("the producer to continue", lambda: _is_sent(producer, b"new"), 60)
        # Each sees the new layout by itself, and says until then that the topic was deleted.
        for consumer in (stream, queue):
            assert wait_for("it to continue", lambda consumer=consumer: _received(consumer), 60).data() == b"new"
        # The message came from one of them.
        wait_until_equal("both segments", lambda: (stream.segments, queue.segments), ([0, 1], [0, 1]), 60)
    controllers[1].delete(force=True)


def test_bad_messages(control: Control, client: ScalableClient) -> None:
    """A refused message is reported at once, and the others of the segment are stored."""
    controller = control(f"{SPACE}/bad-messages", segments=1)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    with client.create_producer(controller.input.topic, ProducerOptions(send_timeout_millis=180_000)) as producer:
        for said in ({"properties": {"n": 1}}, {"partition_key": b"k"}, {"event_timestamp": 1.5}):
            with pytest.raises(TypeError, match="must be"):
                producer.send(b"bad", **said)  # pyright: ignore[reportArgumentType] - what is tested
        begun = time.monotonic()
        with pytest.raises(ScalableError, match="MessageTooBig"):
            producer.send(bytes(20_000_000), partition_key="k")
        producer.send(b"good", partition_key="k")
        # Long before the time for a message is over.
        assert time.monotonic() - begun < 60
    controller.delete(force=True)


def _ignore(_: ScalableError | None, __: MessageId | None) -> None:
    """Ignore the outcome: the subscription shows what is stored."""


def _subscribe(controller: Controller) -> None:
    controller.subscribe("work", SubscriptionKind.QUEUE)
    controller.subscribe("bill")


def _received(consumer: QueueConsumer | StreamConsumer) -> Message | None:
    with suppress(TopicNotFound, TimedOut):
        return consumer.receive(1000)
    return None


def _is_sent(producer: ScalableProducer, content: bytes) -> bool:
    try:
        producer.send(content, partition_key="k")
    except TopicNotFound:
        return False
    return True
