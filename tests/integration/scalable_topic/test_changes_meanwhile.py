"""Changes by operators and clients between the steps of a migration: no change leaves a topic partly scalable."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import httpx
import pytest

from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.scalable_topic import drain as draining
from activities.scalable_topic import flip, hold_release, precheck
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from models.segments.repair import NEVER_DROPPED
from pulsar_devstack.servers.stack import Stack
from tests.support.blue_green.namespaces import create_namespace
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import QUEUE, STREAM, drain_all, fill, regular_parents_of

MakeTopic = Callable[[], TopicName]

_NAMESPACE = "changed/space"
_SLASH = "team/billing"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def make_topic(stack: Stack, admin: PulsarAdmin) -> MakeTopic:
    """Makes topics of two partitions whose messages were consumed."""
    create_namespace(admin, _NAMESPACE)

    def make() -> TopicName:
        name = TopicName.parse(f"persistent://{_NAMESPACE}/topic-{next(_NUMBERS)}")
        fill(stack, admin, name, 2)
        drain_all(stack, admin, name)
        return name

    return make


def test_what_precheck_asked_for_is_asked_again(
    stack: Stack, admin: PulsarAdmin, store: CasStore, make_topic: MakeTopic
) -> None:
    """A subscription that brokers cannot record keeps a topic regular that was ready before."""
    name = make_topic()
    steps = TopicSteps(stack, name)
    assert not steps.run(precheck.precheck).blockers
    steps.run(hold_release.guard)
    admin.subscriptions.create(name, _SLASH)
    with pytest.raises(StoreConflict, match=f"of these names: '{_SLASH}'"):
        steps.run(flip.flip)
    assert read_scalable(store, name).state is RecordState.ABSENT
    steps.run(hold_release.undo)


def test_subscription_that_cannot_be_recorded_does_not_affect_others(
    stack: Stack, admin: PulsarAdmin, store: CasStore, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was created after the last look; the others have their records, and a fault names it."""
    name = make_topic()
    steps = TopicSteps(stack, name)
    steps.run(hold_release.guard)
    ready = flip.check_regular_topic

    def ready_and_late(*arguments: object, **more: object) -> None:
        ready(*arguments, **more)  # pyright: ignore[reportArgumentType]
        admin.subscriptions.create(name, _SLASH)

    monkeypatch.setattr(flip, "check_regular_topic", ready_and_late)
    flipped = steps.run(flip.flip).flipped
    assert flipped
    (fault,) = flipped.faults
    assert fault.startswith(f"brokers cannot record {_SLASH!r} of {name}")
    assert recorded_subscriptions(store, name).keys() == {QUEUE, STREAM}
    steps.run(hold_release.complete)


def test_parents_stay(stack: Stack, admin: PulsarAdmin, make_topic: MakeTopic) -> None:
    """With `leave` brokers never drop regular parents, and so do not delete the regular topic."""
    name = make_topic()
    steps = TopicSteps(stack, name)
    for step in (hold_release.guard, flip.flip):
        steps.run(step)
    assert [regular_parent.sealed_at_ms for regular_parent in regular_parents_of(admin, name)] == [NEVER_DROPPED] * 2
    assert steps.run(draining.verify).faults == ()
    steps.run(hold_release.complete)


def test_a_subscription_that_its_owner_deletes_stays_deleted(
    stack: Stack, store: CasStore, make_topic: MakeTopic
) -> None:
    """VERIFY records what has come since the flip, and not what was recorded then and is gone."""
    name = make_topic()
    steps = TopicSteps(stack, name)
    for step in (hold_release.guard, flip.flip):
        steps.run(step)
    path = f"{stack.admin_urls[0]}/admin/v2/scalable/{name.local_path}/subscriptions/{QUEUE}"
    assert httpx.delete(path, timeout=30).is_success
    assert steps.run(draining.verify).faults == ()
    assert recorded_subscriptions(store, name).keys() == {STREAM}
    steps.run(hold_release.complete)


def test_segments_of_an_old_plan_are_taken_back(
    stack: Stack, admin: PulsarAdmin, store: CasStore, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are added between an attempt that died before the brokers' call and the end of its run."""
    name = make_topic()
    steps = TopicSteps(stack, name)
    steps.run(hold_release.guard)

    def nothing(_task: TopicTask) -> None:
        return

    # Nothing of it is on its way: it died before it asked.
    monkeypatch.setattr(PulsarCluster, "await_late_requests", nothing)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TopicConversion, "_migrate", dies)
        with pytest.raises(KeyboardInterrupt):
            steps.run(flip.flip)
    base = f"/managed-ledgers/{name.namespace_path}/segment/{name.topic}"
    assert len(store.children(base)) == 2
    admin.topics.grow(name, 4)
    flipped = steps.run(flip.flip).flipped
    assert flipped
    assert (flipped.segments, flipped.faults) == (4, ())
    parents_and_children = [segment.descriptor for segment in admin.scalable_topics.layout(name).segments.values()]
    assert set(store.children(base)) <= set(parents_and_children)
    steps.run(hold_release.complete)
