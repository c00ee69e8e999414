"""A client looked up `topic://…` too early, so a scalable topic has the name of the regular one."""

from __future__ import annotations

import pytest

from activities.scalable_topic import flip, one_topic, precheck
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import read_scalable
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.moving.plan import Language, ProducerPlan
from deploy.devstack.stack import Stack
from models.scalable_topic.results import Precheck
from models.segment_repair import comes_from
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, drain, fill, pulsar, stream_plan
from tests.support.waiting import wait_for

_VERSION = '{"type":"record","name":"Order","fields":[{"name":"number","type":["null","int"]}]}'


_STILL = {"enabled": False}


def _blockers(found: Precheck) -> list[str]:
    return [blocker.code for blocker in found.blockers]


def test_an_empty_topic_of_the_name_is_removed(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """It is a blocker, and stops a flip; with `replace_empty` it goes, and the regular topic loses nothing."""
    name = TopicName.parse("persistent://public/default/taken-empty")
    fill(stack, admin, name, 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    admin.schemas.add(name, "JSON", _VERSION)
    schemas = admin.schemas.versions(name)
    steps = TopicSteps(stack, name, auto_scale=_STILL)
    steps.run(one_topic.guard)
    clients.attach([stream_plan(name)])
    clients.close()
    assert read_scalable(store, name).layout is not None
    with pytest.raises(StoreConflict, match="replace_empty"):
        steps.run(flip.flip)
    assert not admin.topics.internal_stats(name).terminated
    steps.run(one_topic.undo)
    blocked = TopicSteps(stack, name, "run-2", auto_scale=_STILL).run(precheck.precheck)
    assert _blockers(blocked) == ["NAME_TAKEN"]

    replacing = TopicSteps(stack, name, "run-3", replace_empty=True, auto_scale=_STILL)
    ready = replacing.run(precheck.precheck)
    assert _blockers(ready) == []
    assert any("is removed before" in warning for warning in ready.warnings)
    replacing.run(one_topic.guard)
    assert replacing.run(flip.flip).flipped
    layout = read_scalable(store, name).layout
    assert layout
    assert comes_from(layout, [str(name)])
    assert admin.schemas.versions(name) == schemas
    assert len(drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)) == MESSAGES
    replacing.run(one_topic.complete)


def test_a_topic_of_the_name_that_holds_messages_stays(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """Its messages are worth as much as those of the regular topic: both stay, and a person has to decide."""
    name = TopicName.parse("persistent://public/default/taken-used")
    fill(stack, admin, name, 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    admin.scalable_topics.create(name)
    before = admin.scalable_topics.layout(name)
    clients.open_producers([ProducerPlan("producer", f"topic://{name.local_path}", Language.JAVA_V5)])
    clients.start()
    wait_for("a message", lambda: any(record.sent for record in clients.collect()[0]), 30)
    clients.stop_sending(10)
    steps = TopicSteps(stack, name, replace_empty=True)
    found = steps.run(precheck.precheck)
    assert _blockers(found) == ["NAME_TAKEN"]
    assert "producer" in str(found.blockers[0])
    clients.close()
    steps.run(one_topic.guard)
    with pytest.raises(StoreConflict, match="is not empty"):
        steps.run(flip.flip)
    assert admin.scalable_topics.layout(name) == before
    assert not admin.topics.internal_stats(name).terminated
    steps.run(one_topic.undo)
