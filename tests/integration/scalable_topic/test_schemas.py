"""The schema of a topic stays, whatever brokers or the migration delete of its segments and regular topics (5.0.1)."""

from __future__ import annotations

from contextlib import closing

import pytest

from activities.scalable_topic import cleanup, flip, one_topic
from activities.scalable_topic import drain as draining
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, read_scalable
from deploy.devstack.stack import Stack
from deploy.devstack.traffic import quiet_client
from tests.support.scalable_topic.steps import TopicSteps, refused
from tests.support.scalable_topic.topics import QUEUE, drain_all, fill, pulsar, regular_parents_of
from tests.support.waiting import wait_for

# Brokers look for parents to drop every 60 s.
_COLLECTED = 150.0
_FIELDS = ['{"name":"number","type":["null","int"]}', '{"name":"price","type":["null","int"],"default":null}']
_VERSIONS = [f'{{"type":"record","name":"Order","fields":[{",".join(_FIELDS[:count])}]}}' for count in (1, 2)]


def test_a_topic_keeps_its_schema(stack: Stack, admin: PulsarAdmin) -> None:
    """Brokers drop parents and delete regular topics, and the cleanup what is left of these; the schema stays."""
    names = {
        TopicName.parse(f"persistent://public/default/{name}"): count for name, count in (("plain", 0), ("parts", 2))
    }
    before = {name: _with_schema(stack, admin, name, count) for name, count in names.items()}
    runs = {name: TopicSteps(stack, name, f"run-{name.topic}", cleanup="remove") for name in names}
    for steps in runs.values():
        for step in (one_topic.guard, flip.flip, draining.verify, one_topic.complete):
            steps.run(step)
    for name, steps in runs.items():
        wait_for("parents to be dropped", lambda name=name: not regular_parents_of(admin, name), _COLLECTED)
        assert steps.run(cleanup.clean_up).kept == ()
        with pytest.raises(AdminNotFound):
            admin.topics.partitions(name)
        assert admin.schemas.versions(name) == before[name]


def test_a_topic_that_stays_regular_keeps_its_schema(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The segments that were made for it are deleted, and its schema is as it was."""
    name = TopicName.parse("persistent://public/default/stays")
    before = _with_schema(stack, admin, name, 2)
    steps = TopicSteps(stack, name)
    steps.run(one_topic.guard)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), QUEUE, pulsar.ConsumerType.Shared)
        steps.run(refused)
        consumer.close()
    assert read_scalable(store, name).state is RecordState.ABSENT
    assert admin.schemas.versions(name) == before
    steps.run(one_topic.undo)


def _with_schema(stack: Stack, admin: PulsarAdmin, name: TopicName, partitions: int) -> list[Schema]:
    """Make a topic whose schema has two versions, and whose messages were consumed; return the versions."""
    fill(stack, admin, name, partitions)
    drain_all(stack, admin, name)
    for data in _VERSIONS:
        admin.schemas.add(name, "JSON", data)
    found = admin.schemas.versions(name)
    assert [version.version for version in found] == [0, 1]
    return found
