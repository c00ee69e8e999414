"""V5 clients through a migration by the broker's own command, with what that forgets done right after it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from models.store_url import parse_store_url
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import Tolerated
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed, TopicPlan
from pulsar_devstack.traffic.runner import Traffic
from tests.support.scalable_topic.flips import flip_of
from tests.support.scalable_topic.topics import make_scalable
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """One broker."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1))


@pytest.mark.parametrize("partitions", [pytest.param(0, marks=pytest.mark.exhaustive), 3])
def test_clients_go_on_when_their_topic_becomes_scalable(
    stack: Stack, toolchain: Toolchain, tmp_path: Path, partitions: int
) -> None:
    """With a record of each subscription nothing is lost or doubled, and producers do not notice."""
    plan = _plan(f"persistent://public/default/live-{partitions}", partitions)
    topic = TopicName.parse(plan.topic)
    tools = with_scalable_clients(toolchain)
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        if partitions:
            admin.topics.create_partitioned(topic, partitions)
        else:
            admin.topics.create(topic)
        with Traffic.in_programs(stack.broker_url, [plan], tmp_path, tools) as traffic:
            traffic.wait_for_more(20)
            make_scalable(stack, admin, topic)
            admin.scalable_topics.register(topic, Subscribed.SHARED.value, SubscriptionKind.QUEUE)
            since = time.time()
            traffic.wait_for_more(20)
            wait_for("messages for each consumer", lambda: _all_receive(traffic, since), 60)
            audit = traffic.stop()
        # A broker that stalled may give all of the last messages to the same consumer.
        assert audit.faults(Tolerated.DEAD_CONSUMERS) == []
        assert layout_faults(admin.scalable_topics.layout(topic)) == []


def test_consumers_that_begin_at_the_end_see_messages_of_the_flip(
    stack: Stack, toolchain: Toolchain, tmp_path: Path
) -> None:
    """New segments have cursors of subscriptions before any client knows of them, so `Latest` skips nothing."""
    tools = with_scalable_clients(toolchain)
    with (
        PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin,
        open_cas(parse_store_url(stack.metadata_url), Access()) as store,
    ):
        names = [TopicName.parse(f"persistent://public/default/during-{number}") for number in range(4)]
        for name in names:
            admin.topics.create_partitioned(name, 3)
        plans = [_plan(str(name), 3, latest=True, interval=0.005) for name in names]
        with Traffic.in_programs(stack.broker_url, plans, tmp_path, tools, shared=True) as traffic:
            traffic.wait_for_more(20)
            for name in names:
                assert flip_of(admin, store, name, 3).run().faults == ()
            traffic.wait_for_more(20)
            assert traffic.stop().faults() == []


def _all_receive(traffic: Traffic, since: float) -> bool:
    """Return whether every consumer has received a message since a time."""
    return all(record.received and record.received[-1].at > since for record in traffic.records()[1])


def _plan(topic: str, partitions: int, *, latest: bool = False, interval: float = 0.02) -> TopicPlan:
    label = topic.rpartition("/")[2]
    producers = tuple(
        ProducerPlan(f"{label}-producer-{number}", topic, Language.JAVA_V5, interval=interval) for number in range(2)
    )
    consumers = tuple(
        ConsumerPlan(f"{label}-consumer-{number}", topic, Language.JAVA_V5, Subscribed.SHARED, latest=latest)
        for number in range(2)
    )
    return TopicPlan(topic, partitions, producers, consumers)
