"""Topics that a broker of Pulsar 5 scales: producers and consumers while it splits and merges."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from itertools import count, pairwise

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.keyed_traffic import Receiving, Sending
from pulsar_scalable import ScalableClient, errors
from pulsar_scalable.aio import AsyncScalableClient
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from tests.support.scalable_topic.topics import layout_of
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

OPERATIONS = 20
NAMESPACE = "public/upper"
_numbers = count(1)


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Admin interface of the brokers."""
    with PulsarAdmin.open(AdminAccess(timeout=60), stack.admin_urls) as admin:
        admin.namespaces.create(NAMESPACE)
        # Consumers with checkpoints get what is kept.
        admin.namespaces.set_retention(NAMESPACE, Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1))
        yield admin


@pytest.fixture
def client(stack: Stack) -> Generator[ScalableClient]:
    """A client of them."""
    with ScalableClient(stack.broker_url) as client:
        yield client


@pytest.fixture
def topic(admin: PulsarAdmin) -> TopicName:
    """A scalable topic that brokers leave as it is, with a recorded subscription of each kind."""
    name = TopicName.parse(f"{NAMESPACE}/scaled-{next(_numbers)}")
    admin.scalable_topics.create(name, 2)
    admin.scalable_topics.set_auto_scale_policy(name, AutoScalePolicy(enabled=False))
    admin.scalable_topics.register(name, "bill", SubscriptionKind.STREAM)
    admin.scalable_topics.register(name, "work", SubscriptionKind.QUEUE)
    return name


def change(admin: PulsarAdmin, store: CasStore, name: TopicName, dice: random.Random) -> None:
    """Apply a random split or merge."""
    active = layout_of(store, name).active
    if len(active) > 2 and (len(active) > 6 or dice.random() < 0.5):
        first, other = dice.choice(list(pairwise(active)))
        admin.scalable_topics.merge(name, first.segment_id, other.segment_id)
    else:
        admin.scalable_topics.split(name, dice.choice(active).segment_id)


def test_traffic(
    admin: PulsarAdmin,
    store: CasStore,
    client: ScalableClient,
    topic: TopicName,
    record_property: Callable[[str, object], None],
) -> None:
    """No message or callback is lost, and keys keep their order, while segments are split and merged under load."""
    dice = random.Random(5)
    native = f"topic://{topic.local_path}"
    sending = Sending(
        client.create_producer(native, ProducerOptions(block_if_queue_full=True, max_pending_messages=20_000)), 0.004
    )
    stream = client.subscribe_stream(native, "bill", ConsumerOptions(consumer_name="one"))
    queue = client.subscribe(native, "work")
    # A short name finds a native topic as well.
    check = client.create_checkpoint_consumer(topic.local_path)
    all_of_them = [Receiving(reading) for reading in (stream, queue, check)]
    for _ in range(OPERATIONS):
        change(admin, store, topic, dice)
        time.sleep(dice.random() / 2)
    sending.stop()
    for reading in all_of_them:
        wait_for("all has come", lambda reading=reading: reading.received.distinct >= sending.count, 90)
        reading.stop()
    figures = {"sent": sending.count, "again": [reading.received.repeated for reading in all_of_them]}
    record_property("figures", figures)
    print(figures)
    assert sending.faults() == []
    assert [reading.received.reordered() for reading in (all_of_them[0], all_of_them[2])] == [[], []]
    assert all_of_them[1].received.reordered_in_segments() == []
    active = sorted(segment.segment_id for segment in admin.scalable_topics.layout(topic).active)
    wait_until_equal("segments that are read when all sealed ones are left", lambda: queue.segments, active, 30)


async def test_asyncio(stack: Stack, topic: TopicName) -> None:
    """Messages of asyncio programs arrive at each of their consumers, in order."""
    native = f"topic://{topic.local_path}"
    async with (
        AsyncScalableClient(stack.broker_url) as client,
        await client.subscribe_stream(native, "bill") as stream,
        await client.subscribe(native, "work") as queue,
        await client.create_checkpoint_consumer(native) as check,
    ):
        async with await client.create_producer(native, ProducerOptions(max_pending_messages=2)) as producer:
            sent = [await producer.send(str(number).encode(), partition_key="k") for number in range(10)]
        assert sorted(sent, key=lambda message_id: message_id.position) == sent
        for consumer in (check, queue, stream):
            got = [await consumer.receive(10_000) for _ in range(10)]
            assert [message.message_id() for message in got] == sent
        await stream.acknowledge_cumulative(sent[-1])
        with pytest.raises(errors.TimedOut):
            await queue.receive(300)
        assert len(check.checkpoint().positions) == 1
