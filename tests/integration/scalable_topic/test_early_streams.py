"""Stream consumers that come as soon as their topic is scalable, before their subscription has a record (5.0.1)."""

from __future__ import annotations

import pytest

from clients.cas.store import CasStore, Check
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import keep_subscription, recorded_subscriptions
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, drain, fill, make_scalable, pulsar
from tests.support.waiting import wait_for, wait_until_equal

# A broker waits for 60 s until a consumer is gone for good, and ZooKeeper looks every 60 s.
_FORGOTTEN = 180.0
_KINDS = {QUEUE: SubscriptionKind.QUEUE, STREAM: SubscriptionKind.STREAM}


def test_a_consumer_that_was_faster_gets_its_subscription_a_record(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """Brokers confirm its record and write none; a lasting record replaces it, and the consumer continues."""
    name = _early_consumer(stack, admin, clients, "early")
    assert recorded_subscriptions(store, name) == {**_KINDS, STREAM: None}
    for subscription, kind in _KINDS.items():
        keep_subscription(store, name, subscription, kind, lambda: Check("/admin", -1))
    assert recorded_subscriptions(store, name) == _KINDS
    clients.open_producers([ProducerPlan("producer", str(name), Language.JAVA_V5)])
    clients.start()
    wait_for("messages", lambda: len(_received(clients)) > MESSAGES, 30)
    clients.stop_sending(10)
    wait_until_equal("all messages", lambda: _received(clients), _sent(clients), 30)
    assert recorded_subscriptions(store, name) == _KINDS


@pytest.mark.exhaustive
def test_a_subscription_without_a_record_is_forgotten_with_its_consumer(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """Within two minutes brokers do not know it any more; one that was given a record in time stays."""
    recorded, forgotten = (_early_consumer(stack, admin, clients, which) for which in ("kept", "left"))
    keep_subscription(store, recorded, STREAM, SubscriptionKind.STREAM, lambda: Check("/admin", -1))
    clients.close()
    wait_for("it to be forgotten", lambda: STREAM not in recorded_subscriptions(store, forgotten), _FORGOTTEN)
    assert recorded_subscriptions(store, recorded) == _KINDS


def _early_consumer(stack: Stack, admin: PulsarAdmin, clients: ClientProgram, topic: str) -> TopicName:
    """Return a scalable topic, one of whose subscriptions had a consumer before it was registered."""
    name = TopicName.parse(f"persistent://public/default/{topic}")
    fill(stack, admin, name, 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    stream = ConsumerPlan(topic, f"topic://{name.local_path}", Language.JAVA_V5, Subscribed.FAILOVER, named=STREAM)
    make_scalable(stack, admin, name)
    assert clients.attach([stream]) == {}
    for subscription, kind in _KINDS.items():
        admin.scalable_topics.register(name, subscription, kind)
    return name


def _sent(clients: ClientProgram) -> list[tuple[str, int]]:
    producers, _ = clients.collect()
    return sorted((message.key, message.number) for record in producers for message in record.sent)


def _received(clients: ClientProgram) -> list[tuple[str, int]]:
    _, consumers = clients.collect()
    return sorted((message.key, message.number) for record in consumers for message in record.received)
