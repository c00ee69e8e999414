"""Topics that a controller of ours scales: producers and consumers while it splits and merges."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any, cast

import pytest
from scalable_client.tests.support.fake_controller import FakeController

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import Retention
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.keyed_traffic import Arrivals, Receiving, Sending
from pulsar_devstack.traffic.python_clients import NUMBER, body
from pulsar_scalable import Checkpoint, ScalableClient, ScalableProducer, errors
from pulsar_scalable.controlled.layout import ControlledLayout
from pulsar_scalable.layout import Segment
from pulsar_scalable.names import TopicName
from pulsar_scalable.options import ClientOptions, ConsumerOptions, ProducerOptions
from tests.support.lifecycle.environment import Environment
from tests.support.releases import stack_of, with_sample
from tests.support.stacks import MakeStack, SharedStack
from tests.support.topic_controller.controllers import Controller
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive

NAMESPACE = "public/controlled"
SPACE = f"persistent://{NAMESPACE}"
OPERATIONS = 20
Control = Callable[..., Controller]


@pytest.fixture(scope="module", params=with_sample("4.0", exhaustive=True))
def stack(
    request: pytest.FixtureRequest, shared_stack: SharedStack, make_stack: MakeStack, toolchain: Toolchain
) -> Stack:
    """Two brokers."""
    spec = StackSpec(zookeepers=1, bookies=1, brokers=2)
    return stack_of(request.param, spec, shared_stack, make_stack, toolchain)


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Admin interface of the brokers."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        admin.namespaces.create(NAMESPACE)
        # Consumers with checkpoints get what is kept.
        admin.namespaces.set_retention(NAMESPACE, Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1))
        yield admin


@pytest.fixture
def control(environment: Environment, stack: Stack, admin: PulsarAdmin) -> Control:
    """Starts controllers of topics."""

    def control(topic: str, **more: object) -> Controller:
        return Controller.of(environment.operator, stack, topic, **more)

    return control


@pytest.fixture
def client(stack: Stack) -> Generator[ScalableClient]:
    """A client that is quiet."""
    with ScalableClient(stack.broker_url, ClientOptions(logger=quiet())) as client:
        yield client


def quiet() -> Any:
    """Return a logger that logs errors only."""
    from pulsar_scalable.controlled.library import pulsar

    return pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def change(controller: Controller, layout: SegmentLayout, dice: random.Random) -> SegmentLayout:
    """Apply a random split or merge."""
    active = sorted(layout.active, key=lambda segment: segment.hash_range.start)
    if len(active) > 2 and (len(active) > 6 or dice.random() < 0.5):
        first, other = dice.choice(list(pairwise(active)))
        return controller.merge(first.segment_id, other.segment_id)
    return controller.split(dice.choice(active).segment_id)


def more(received: Arrivals, count: int = 100) -> None:
    """Wait until some more messages have come."""
    before = received.distinct
    wait_for("more messages", lambda: received.distinct >= before + count, 30)


def wait_for_delivery(sending: Sending, received: Arrivals, limit: float = 60) -> None:
    """Wait until all sent messages were received."""
    wait_for("all has come", lambda: received.distinct >= sending.count, limit)


@pytest.mark.parametrize("batching", [False, True])
def test_traffic(
    control: Control, client: ScalableClient, record_property: Callable[[str, object], None], *, batching: bool
) -> None:
    """No message or callback is lost, and keys keep their order, while segments are split and merged under load."""
    dice = random.Random(12)
    topic = f"{SPACE}/traffic-{batching}"
    controller = control(topic, segments=2)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    producer = client.create_producer(topic, ProducerOptions(block_if_queue_full=True, batching_enabled=batching))
    sending = Sending(producer, 0.004)
    consumer = client.subscribe(topic, "work")
    queue = Receiving(consumer)
    check = Receiving(client.create_checkpoint_consumer(topic))
    layout = controller.layout()
    for _ in range(OPERATIONS):
        layout = change(controller, layout, dice)
        time.sleep(dice.random() / 2)
    sending.stop()
    for reader in (queue, check):
        wait_for_delivery(sending, reader.received)
        reader.stop()
    figures = {"sent": sending.count, "again": queue.received.repeated, "stored twice": check.received.repeated}
    record_property("figures", figures)
    print(figures)
    assert sending.faults() == []
    assert queue.received.reordered_in_segments() == []
    assert (check.received.reordered(), check.received.repeated) == ([], 0)
    controller.delete(force=True)
    for refused in (lambda: consumer.receive(10_000), lambda: producer.send(b"late")):
        with pytest.raises(errors.TopicNotFound, match="was deleted"):
            refused()


def test_checkpoints(control: Control, client: ScalableClient) -> None:
    """A consumer continues where its checkpoint is, through a split and a merge, and from the end."""
    controller = control(f"{SPACE}/checkpoints", segments=2)
    # Its answer says that the topic is there.
    controller.subscribe("others")
    with client.create_producer(f"{SPACE}/checkpoints", ProducerOptions(batching_enabled=True)) as producer:
        send(producer, 0, 100)
        consumer = client.create_checkpoint_consumer(f"{SPACE}/checkpoints")
        received = Arrivals()
        for _ in range(60):
            received.take(consumer.receive(10_000))
        saved = consumer.checkpoint().serialize()
        consumer.close()
        controller.split(0)
        send(producer, 100, 200)
        latest = client.create_checkpoint_consumer(f"{SPACE}/checkpoints", "latest")
        controller.merge(2, 3)
        send(producer, 200, 300)
    with client.create_checkpoint_consumer(f"{SPACE}/checkpoints", Checkpoint.deserialize(saved)) as consumer:
        for _ in range(240):
            received.take(consumer.receive(10_000))
        with pytest.raises(errors.TimedOut):
            consumer.receive(500)
    assert (received.distinct, received.repeated, received.reordered()) == (300, 0, [])
    assert sorted(int(latest.receive(10_000).properties()[NUMBER]) for _ in range(100)) == [*range(200, 300)]
    controller.delete(force=True)
    with pytest.raises(errors.TopicNotFound, match="the topic was deleted"):
        latest.receive(10_000)


def send(producer: ScalableProducer, first: int, end: int) -> None:
    """Send numbered messages of some keys."""
    for number in range(first, end):
        key, properties = f"k{number % 7}", {NUMBER: str(number)}
        producer.send_async(body(key, number), lambda error, _: None, partition_key=key, properties=properties)
    producer.flush()


def test_streams(control: Control, stack: Stack, client: ScalableClient, admin: PulsarAdmin) -> None:
    """Two consumers share keys in order; one leaves, and another joins. The controller is a fake."""
    controller = control(f"{SPACE}/streams", segments=2)
    controller.subscribe("bill")
    name = TopicName.parse(f"{SPACE}/streams")
    producer = client.create_producer(f"{SPACE}/streams", ProducerOptions(block_if_queue_full=True))

    def layout() -> ControlledLayout:
        # The newest layout that any client has.
        return cast("ControlledLayout", producer._watch.layout)  # pyright: ignore[reportPrivateUsage]

    def is_drained(segment: Segment) -> bool:
        try:
            stats = admin.topics.stats(segment_topic(controller.name, segment.descriptor))
        except AdminNotFound:
            return True
        return stats.subscriptions["bill"].msg_backlog == 0

    with (
        FakeController(stack.broker_url, name, layout, is_drained) as server,
        ScalableClient(stack.broker_url, ClientOptions(logger=quiet(), controller_url=server.url)) as mine,
    ):
        received = Arrivals()
        consumer = mine.subscribe_stream(f"{SPACE}/streams", "bill", ConsumerOptions(consumer_name="one"))
        first = Receiving(consumer, received)
        sending = Sending(producer, 0.005)
        two = mine.subscribe_stream(f"{SPACE}/streams", "bill", ConsumerOptions(consumer_name="two"))
        second = Receiving(two, received)
        for segment in (0, 1, 2):
            controller.split(segment)
            more(received)
        controller.merge(4, 5)
        first.stop()
        consumer.close()
        controller.merge(3, 8)
        three = mine.subscribe_stream(f"{SPACE}/streams", "bill", ConsumerOptions(consumer_name="three/3"))
        third = Receiving(three, received)
        server.evict("two")
        wait_for("it is back", lambda: "two" in server.consumers, 20)
        more(received)
        sending.stop()
        wait_for_delivery(sending, received)
        assert sorted(server.consumers) == ["three/3", "two"]
        for receiving in (second, third):
            receiving.stop()
    assert server.requests[0][:2] == (
        "POST",
        "/admin/v2/scalable/public/controlled/streams/subscriptions/bill/consumers/one",
    )
    assert sending.faults() == []
    assert received.reordered() == []
    controller.delete(force=True)


def test_names(client: ScalableClient, admin: PulsarAdmin) -> None:
    """A topic without a controller is rejected with a remedy, and the lookup creates no topic."""
    with pytest.raises(errors.TopicNotFound, match="start a controller for it"):
        client.create_producer("nobodys")
    with pytest.raises(errors.Unsupported, match="invalid scalable topic"):
        client.subscribe("non-persistent://public/default/one", "work")
    assert not [name for name in admin.topics.names("public/default") if "nobodys" in name]
