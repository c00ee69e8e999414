"""Brokers never drop regular parents of recorded subscriptions, and stream consumers wait for that (5.0.0-M1)."""

from __future__ import annotations

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.moving.plan import Language, ProducerPlan
from deploy.devstack.stack import Stack
from models.segment import SubscriptionKind
from tests.support.scalable_topic.flips import flip_of
from tests.support.scalable_topic.topics import QUEUE, STREAM, drain, fill, pulsar, regular_parents_of, stream_plan
from tests.support.waiting import wait_for

# They look every 60 s.
_COLLECTED = 150.0
_PARTITIONS = 2


@pytest.mark.exhaustive
def test_regular_parents_go_once_a_segment_of_their_name_is_consumed(
    stack: Stack, admin: PulsarAdmin, clients: ClientProgram
) -> None:
    """Brokers ask a segment of the parent's name what is left, which is nowhere; an empty one lets all go on."""
    left, helped = (
        _drained(stack, admin, f"persistent://public/default/parents-{which}") for which in ("left", "done")
    )
    assert clients.attach([stream_plan(left)]) == {left.topic: "TopicDoesNotExistException"}
    for parent in regular_parents_of(admin, helped):
        admin.scalable_topics.create_segment(helped, parent.descriptor, [QUEUE, STREAM])
    clients.subscribe([stream_plan(helped)])
    clients.open_producers([ProducerPlan("producer", str(helped), Language.JAVA_V5)])
    clients.start()
    wait_for("parents to be dropped", lambda: not regular_parents_of(admin, helped), _COLLECTED)
    # The broker has looked at this one before: it was scalable first.
    assert len(regular_parents_of(admin, left)) == _PARTITIONS
    clients.stop_sending(10)
    wait_for("all messages", lambda: _received(clients) == _sent(clients), 30)


def test_a_stream_that_has_something_left_keeps_its_parents(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """No parent gets a segment of its name: the stream's consumer would begin at its end, and be taken for done."""
    name = TopicName.parse("persistent://public/default/parents-waiting")
    fill(stack, admin, name, _PARTITIONS)
    flip = flip_of(admin, store, name, _PARTITIONS)
    flip.run()
    drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)
    flip.run()
    assert clients.attach([stream_plan(name)]) == {name.topic: "TopicDoesNotExistException"}
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    flip.run()
    assert clients.attach([stream_plan(name)]) == {}


def _drained(stack: Stack, admin: PulsarAdmin, topic: str) -> TopicName:
    """A scalable topic with records of its subscriptions, which have consumed all that the regular one had."""
    name = TopicName.parse(topic)
    fill(stack, admin, name, _PARTITIONS)
    admin.scalable_topics.migrate(name)
    for subscription, kind, type_ in (
        (QUEUE, SubscriptionKind.QUEUE, pulsar.ConsumerType.Shared),
        (STREAM, SubscriptionKind.STREAM, pulsar.ConsumerType.Failover),
    ):
        admin.scalable_topics.register(name, subscription, kind)
        drain(stack, admin, name, subscription, type_)
    return name


def _sent(clients: ClientProgram) -> list[tuple[str, int]]:
    producers, _ = clients.collect()
    return sorted((one.key, one.number) for record in producers for one in record.sent)


def _received(clients: ClientProgram) -> list[tuple[str, int]]:
    _, consumers = clients.collect()
    return sorted((one.key, one.number) for record in consumers for one in record.received)
