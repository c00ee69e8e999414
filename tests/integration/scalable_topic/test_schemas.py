"""Brokers delete the schema of a scalable topic with any segment of it; the migration keeps it (5.0.0-M1)."""

from __future__ import annotations

from contextlib import closing

from activities.scalable_topic import cleanup, flip, one_topic
from activities.scalable_topic import drain as draining
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, controller_of, read_scalable
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.stack import Stack
from deploy.devstack.traffic import quiet_client
from models.segment import SubscriptionKind
from tests.support.scalable_topic.flips import flip_of
from tests.support.scalable_topic.steps import TopicSteps, refused
from tests.support.scalable_topic.topics import (
    QUEUE,
    STREAM,
    drain_all,
    fill,
    pulsar,
    regular_parents_of,
    stream_plan,
)
from tests.support.waiting import wait_for

# Brokers look for parents to drop every 60 s.
_COLLECTED = 150.0
_FIELDS = ['{"name":"number","type":["null","int"]}', '{"name":"price","type":["null","int"],"default":null}']
_VERSIONS = [f'{{"type":"record","name":"Order","fields":[{",".join(_FIELDS[:count])}]}}' for count in (1, 2)]


def test_a_topic_keeps_its_schema(stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram) -> None:
    """Its parents are never dropped, streams begin, and the cleanup leaves it.

    A topic without a schema shows that brokers have looked; one that a broker led too early gets nothing to be dropped.
    """
    ours, led, other = (TopicName.parse(f"persistent://public/default/{name}") for name in ("kept", "led", "bare"))
    before = {name: _with_schema(stack, admin, name) for name in (ours, led)}
    steps = TopicSteps(stack, ours, cleanup="remove", auto_scale={"enabled": False})
    for step in (one_topic.guard, flip.flip, draining.verify, one_topic.complete):
        steps.run(step)
    _led_too_early(admin, store, led)
    _drained(stack, admin, other)
    plain = TopicSteps(stack, other, cleanup="remove")
    for step in (one_topic.guard, flip.flip, one_topic.complete):
        plain.run(step)
    assert clients.attach([stream_plan(name) for name in (ours, led)]) == {led.topic: "TopicDoesNotExistException"}
    wait_for("parents to be dropped", lambda: not regular_parents_of(admin, other), _COLLECTED)
    for name in (ours, led):
        assert len(regular_parents_of(admin, name)) == 2
        assert admin.schemas.versions(name) == before[name]
    (kept,) = steps.run(cleanup.clean_up).kept
    assert "the schema" in kept.reason
    assert admin.schemas.versions(ours) == before[ours]


def test_a_topic_that_stays_regular_keeps_its_schema(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The segments that were made for it are deleted, and what brokers delete with them is there again."""
    name = TopicName.parse("persistent://public/default/stays")
    before = _with_schema(stack, admin, name)
    steps = TopicSteps(stack, name, auto_scale={"enabled": False})
    steps.run(one_topic.guard)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), QUEUE, pulsar.ConsumerType.Shared)
        steps.run(refused)
        consumer.close()
    assert read_scalable(store, name).state is RecordState.ABSENT
    after = admin.schemas.versions(name)
    assert [(one.version, one.type, one.data) for one in after] == [(one.version, one.type, one.data) for one in before]
    assert [one.timestamp for one in after] != [one.timestamp for one in before]
    steps.run(one_topic.undo)


def _with_schema(stack: Stack, admin: PulsarAdmin, name: TopicName) -> list[Schema]:
    """A topic of two partitions whose schema has two versions, and whose messages were consumed; the versions."""
    _drained(stack, admin, name)
    for data in _VERSIONS:
        admin.schemas.add(name, "JSON", data)
    found = admin.schemas.versions(name)
    assert [one.version for one in found] == [0, 1]
    return found


def _drained(stack: Stack, admin: PulsarAdmin, name: TopicName) -> None:
    fill(stack, admin, name, 2)
    drain_all(stack, admin, name)


def _led_too_early(admin: PulsarAdmin, store: CasStore, name: TopicName) -> None:
    admin.scalable_topics.migrate(name)
    for subscription, kind in ((QUEUE, SubscriptionKind.QUEUE), (STREAM, SubscriptionKind.STREAM)):
        admin.scalable_topics.register(name, subscription, kind)
    leader = controller_of(store, name)
    assert leader
    flip = flip_of(admin, store, name, 2)
    (fault,) = flip.run().schema_faults
    assert fault.startswith(f"{leader} leads {name}, and would drop its parents with the schema")
