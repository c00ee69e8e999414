"""A client looked up `topic://…` too early, so a scalable topic has the name of the regular one."""

from __future__ import annotations

import pytest

from activities.scalable_topic import flip, hold_release, precheck
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreError
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable, recorded_subscriptions
from models.scalable_topic.claims import Stage
from models.scalable_topic.results import Precheck
from models.segments.repair import comes_from
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language, ProducerPlan
from tests.support.scalable_topic.steps import FrozenStep, TopicSteps
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, drain, fill, pulsar, stream_plan
from tests.support.waiting import wait_for

_VERSION = '{"type":"record","name":"Order","fields":[{"name":"number","type":["null","int"]}]}'
_STILL = {"enabled": False}


def _blockers(result: Precheck) -> list[str]:
    return [blocker.code for blocker in result.blockers]


def test_an_empty_topic_of_the_name_is_removed(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """It is a blocker, and stops a flip; with `replace_empty` it goes, and the regular topic loses nothing."""
    name = _drained(stack, admin, "taken-empty")
    admin.schemas.add(name, "JSON", _VERSION)
    schemas = admin.schemas.versions(name)
    steps = TopicSteps(stack, name, auto_scale=_STILL)
    steps.run(hold_release.guard)
    clients.attach([stream_plan(name)])
    clients.close()
    assert read_scalable(store, name).layout is not None
    with pytest.raises(StoreConflict, match="replace_empty"):
        steps.run(flip.flip)
    assert not admin.topics.internal_stats(name).terminated
    steps.run(hold_release.undo)
    blocked = TopicSteps(stack, name, "run-2", auto_scale=_STILL).run(precheck.precheck)
    assert _blockers(blocked) == ["NAME_TAKEN"]

    replacing = TopicSteps(stack, name, "run-3", replace_empty=True, auto_scale=_STILL)
    ready = replacing.run(precheck.precheck)
    assert _blockers(ready) == []
    assert any("is removed before" in warning for warning in ready.warnings)
    replacing.run(hold_release.guard)
    assert replacing.run(flip.flip).flipped
    layout = read_scalable(store, name).layout
    assert layout
    assert comes_from(layout, [str(name)])
    assert admin.schemas.versions(name) == schemas
    assert len(drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)) == MESSAGES
    replacing.run(hold_release.complete)


def test_a_topic_of_the_name_that_holds_messages_stays(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """Its messages are worth as much as those of the regular topic: both stay, and a person must decide."""
    name = _drained(stack, admin, "taken-used")
    admin.scalable_topics.create(name)
    before = admin.scalable_topics.layout(name)
    clients.open_producers([ProducerPlan("producer", f"topic://{name.local_path}", Language.JAVA_V5)])
    clients.start()
    wait_for("a message", lambda: any(record.sent for record in clients.collect()[0]), 30)
    clients.stop_sending(10)
    steps = TopicSteps(stack, name, replace_empty=True)
    result = steps.run(precheck.precheck)
    assert _blockers(result) == ["NAME_TAKEN"]
    assert "producer" in str(result.blockers[0])
    clients.close()
    steps.run(hold_release.guard)
    with pytest.raises(StoreConflict, match="it is not removed"):
        steps.run(flip.flip)
    assert admin.scalable_topics.layout(name) == before
    assert not admin.topics.internal_stats(name).terminated
    steps.run(hold_release.undo)


@pytest.mark.parametrize("after_look", [2, 3], ids=["the segment", "the record"])
def test_a_late_removal(
    stack: Stack, admin: PulsarAdmin, store: CasStore, monkeypatch: pytest.MonkeyPatch, after_look: int
) -> None:
    """An attempt that froze during the removal, and continues when the topic is scalable, takes nothing of it away."""
    name = _drained(stack, admin, f"taken-late-{after_look}")
    admin.scalable_topics.create(name)
    lost = TopicSteps(stack, name, replace_empty=True, auto_scale=_STILL)
    lost.run(hold_release.guard)
    late = FrozenStep(lost, flip.flip, after_look, monkeypatch)
    assert late.freezes()
    lost.running.clear()
    following = TopicSteps(stack, name, "run-2", replace_empty=True, auto_scale=_STILL)
    following.run(hold_release.recover)
    following.run(hold_release.guard)
    assert following.run(flip.flip).flipped
    following.run(hold_release.complete)
    before, recorded = read_scalable(store, name), recorded_subscriptions(store, name)
    assert isinstance(late.resume(), StoreError)
    assert read_scalable(store, name) == before
    assert recorded_subscriptions(store, name) == recorded
    assert len(drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)) == MESSAGES


def test_a_removal_that_ended_early(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A worker that dies before the record stays away leaves one without a value, and the next attempt continues."""
    name = _drained(stack, admin, "taken-dead")
    store.create(name.scalable_path, b"")
    steps = TopicSteps(stack, name, replace_empty=True, auto_scale=_STILL)
    assert _blockers(steps.run(precheck.precheck)) == []
    steps.run(hold_release.guard)
    assert steps.run(flip.flip).flipped
    steps.run(hold_release.complete)


def test_a_topic_of_the_name_with_subscriptions_of_its_own_stays(
    stack: Stack, admin: PulsarAdmin, store: CasStore
) -> None:
    """Its owner has prepared them for consumers to come, who would miss what is sent before."""
    name = _drained(stack, admin, "taken-prepared")
    admin.scalable_topics.create(name)
    admin.scalable_topics.register(name, "prepared", SubscriptionKind.QUEUE)
    steps = TopicSteps(stack, name, replace_empty=True, auto_scale=_STILL)
    _is_refused(admin, steps, name, "prepared")
    assert recorded_subscriptions(store, name) == {"prepared": SubscriptionKind.QUEUE}


def test_a_topic_of_the_name_that_has_lost_its_first_segment(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """It is not taken for the migrated one: the regular topic still takes messages."""
    name = _drained(stack, admin, "taken-grown")
    admin.scalable_topics.create(name)
    admin.scalable_topics.rebucket(name, 0, 2)
    record = read_scalable(store, name)
    assert record.layout
    pruned = record.layout.prune(0)
    store.set(name.scalable_path, pruned.encode(), record.version)
    steps = TopicSteps(stack, name, replace_empty=True, auto_scale=_STILL)
    _is_refused(admin, steps, name, "rebucketed")
    assert read_scalable(store, name).layout == pruned


def test_a_topic_that_took_the_name_of_a_lost_run(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """It does not stop migrations of other topics, which report it."""
    name, other = _drained(stack, admin, "taken-lost"), _drained(stack, admin, "taken-other")
    lost = TopicSteps(stack, name, auto_scale=_STILL)
    lost.run(hold_release.guard)
    with lost.task() as task, task.cluster.store() as held:
        guard = task.topic_guard(held, name)
        guard.take()
        guard.note(stage=Stage.FLIPPING, partitions=0)
    admin.scalable_topics.create(name)
    lost.running.clear()
    following = TopicSteps(stack, other, "run-2", auto_scale=_STILL)
    (note,) = following.run(hold_release.guard).notes
    assert "another scalable topic has the name" in note
    assert read_scalable(store, name).layout
    assert not admin.topics.internal_stats(name).terminated
    following.run(hold_release.undo)


def _is_refused(admin: PulsarAdmin, steps: TopicSteps, name: TopicName, why: str) -> None:
    """Check that PRECHECK and the flip refuse in these words, and the regular topic still takes messages."""
    (blocker,) = steps.run(precheck.precheck).blockers
    assert (blocker.code, why in blocker.cause) == ("NAME_TAKEN", True)
    steps.run(hold_release.guard)
    with pytest.raises(StoreConflict, match=why):
        steps.run(flip.flip)
    assert not admin.topics.internal_stats(name).terminated
    steps.run(hold_release.undo)


def _drained(stack: Stack, admin: PulsarAdmin, topic: str) -> TopicName:
    """Return a regular topic whose ordered subscription has read everything."""
    name = TopicName.parse(f"persistent://public/default/{topic}")
    fill(stack, admin, name, 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    return name
