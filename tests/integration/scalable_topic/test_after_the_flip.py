"""Events between the flip of topics and the end of their migration, step by step on a real broker."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic import cleanup, cluster, flip, hold_release
from activities.scalable_topic import drain as draining
from activities.scalable_topic.conversion.topic import conversion_of
from clients.cas.store import CasStore
from clients.errors import StoreUnreachable
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, recorded_subscriptions
from models.scalable_topic.claims import Stage
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.existing_topics import TopicsSnapshot, read_snapshot, topic_faults
from tests.support.scalable_topic.faulty_broker_proxy import FaultyBrokerProxy, failed, hung_up
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import (
    MESSAGES,
    QUEUE,
    STREAM,
    drain,
    drain_all,
    fill,
    forget_parents,
    make_scalable,
    make_topic,
    pulsar,
)

_TRIES = 3
"""Requests for the state of a topic before it counts as one that no broker can load."""
_ENOUGH = 20
"""More requests of one kind than a step sends."""


class Topics:
    """Topics that can become scalable, each in a namespace with policies of its own, and steps of their migrations."""

    def __init__(self, stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
        self.stack, self.admin, self.store = stack, admin, store

    def make(self, namespace: str) -> TopicName:
        """Return one whose ordered subscription has nothing left."""
        return make_topic(self.stack, self.admin, namespace)

    def snapshot(self, name: TopicName) -> TopicsSnapshot:
        """Return a snapshot of topics, policies and records."""
        return read_snapshot(self.admin, self.store, self.stack.admin_urls, name.namespace_path, [name])

    def is_whole(self, name: TopicName) -> bool:
        """Return whether a topic is scalable with all that belongs to it."""
        return topic_faults(self.admin, self.store, name, partitions=0, subscriptions=(QUEUE, STREAM)) == []

    def steps(self, name: TopicName, **fields: object) -> TopicSteps:
        """Return the steps of a run that takes over from the others, which have ended."""
        return TopicSteps(self.stack, name, run_id=f"run of {name}", **fields)

    def flipped(self, name: TopicName, **fields: object) -> TopicSteps:
        """Return the same, once the topic is scalable."""
        steps = self.steps(name, **fields)
        steps.run(hold_release.guard)
        assert steps.run(flip.flip).flipped
        return steps

    def leave_during_its_flip(self, name: TopicName) -> None:
        """Lose a run when brokers have made the topic scalable, and nothing else was done."""
        lost = self.steps(name)
        lost.run(hold_release.guard)
        with lost.task() as task, task.cluster.store() as store:
            guard = task.topic_guard(store, name)
            guard.take()
            guard.note(stage=Stage.FLIPPING)
        make_scalable(self.stack, self.admin, name)


@pytest.fixture
def topics(stack: Stack, admin: PulsarAdmin, store: CasStore) -> Topics:
    """Makes topics."""
    return Topics(stack, admin, store)


@pytest.fixture
def proxy(stack: Stack) -> Generator[FaultyBrokerProxy]:
    """Yield a proxy between the steps and the broker."""
    with FaultyBrokerProxy(stack.admin_urls[0]) as proxy:
        yield proxy


def test_what_no_broker_can_load_is_not_consumed(
    topics: Topics, proxy: FaultyBrokerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRAIN continues while the topic's state cannot be had, and VERIFY says so."""
    name = topics.make("after/unloadable")
    steps = topics.flipped(name, admin_urls=[proxy.url])
    for _ in range(_TRIES):
        proxy.once("GET", f"/{name.local_path}/stats", failed)
    proxy.once("GET", f"/{name.local_path}/stats", lambda ask: ask())
    until = datetime.now(UTC)
    with monkeypatch.context() as patch:
        # The time is up with the first answer that has the state, however long the others took.
        clock = property(lambda _: until - timedelta(seconds=proxy.waits))
        patch.setattr(ActivityContext, "server_time", clock)
        assert steps.run(lambda task: draining.drain(task, until)).backlogs == {QUEUE: MESSAGES}
    assert proxy.waits == 0
    assert steps.run(draining.verify).faults == ()
    for _ in range(_ENOUGH):
        proxy.once("GET", f"/{name.local_path}/stats", failed)
    (fault,) = steps.run(draining.verify).faults
    assert f"no broker can load {name}" in fault
    assert "what is consumed of it is unknown" in fault
    steps.run(hold_release.complete)


def test_a_regular_topic_that_is_deleted_before_it_is_consumed(topics: Topics) -> None:
    """VERIFY reports it, and nothing is left of the migration."""
    name = topics.make("after/deleted")
    before = topics.snapshot(name)
    steps = topics.flipped(name)
    topics.admin.topics.delete(name, force=True)
    assert steps.run(lambda task: draining.drain(task, datetime.now(UTC))).backlogs == {}
    faults = steps.run(draining.verify).faults
    assert any("the regular topic is gone with its unconsumed messages" in fault for fault in faults), faults
    assert steps.run(hold_release.complete).notes == ()
    after = topics.snapshot(name)
    assert (after.policies, after.reported, after.notes) == (before.policies, before.reported, {})
    assert after.topics[str(name)].record is RecordState.GOOD


def test_regular_topic_deleted_after_a_lost_run(topics: Topics) -> None:
    """Nothing can complete it, so the next migration says what to do, and forgets it."""
    name, other = topics.make("after/lost"), topics.make("after/lost-other")
    before = topics.snapshot(name)
    topics.leave_during_its_flip(name)
    topics.admin.topics.delete(name, force=True)
    (note,) = topics.steps(other).run(hold_release.recover).notes
    assert f"{name} was left during its flip, and its regular topic is gone now: run the audit with fix" in note
    after = topics.snapshot(name)
    assert (after.policies, after.reported, after.notes) == (before.policies, before.reported, {})


def test_a_topic_that_cannot_be_completed_blocks_no_other(
    topics: Topics, proxy: FaultyBrokerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others become scalable; its namespace stays held, and the next start completes it."""
    monkeypatch.setattr(cluster, "PAUSE", 0.1)
    name, other = topics.make("after/stuck"), topics.make("after/stuck-other")
    before = topics.snapshot(name)
    topics.leave_during_its_flip(name)
    held = topics.snapshot(name)
    for _ in range(_ENOUGH):
        proxy.once("PUT", f"/{name.local_path}/subscriptions/{QUEUE}", failed)
    next_steps = topics.steps(other, admin_urls=[proxy.url])
    (note,) = next_steps.run(hold_release.guard).notes
    assert f"{name} was left during its flip by an earlier run, and cannot be completed: " in note
    assert next_steps.run(flip.flip).flipped
    next_steps.run(hold_release.complete)
    assert topics.is_whole(other)
    assert topics.snapshot(name).policies == held.policies != before.policies
    last = topics.steps(topics.make("after/stuck-last"))
    assert last.run(hold_release.guard).notes == (
        f"{name} was left during its flip by an earlier run, and is complete now",
    )
    assert topics.is_whole(name)
    assert (topics.snapshot(name).policies, topics.snapshot(name).reported) == (before.policies, before.reported)
    assert last.run(hold_release.undo).why == ""


def test_a_lost_run_keeps_the_segments_of_its_topics(topics: Topics) -> None:
    """The policy that the topic was to get is set before the namespace's counts again, which lets brokers merge."""
    name, other = topics.make("after/policy"), topics.make("after/policy-other")
    before = topics.snapshot(name)
    topics.flipped(name, auto_scale={"enabled": False})
    assert topics.steps(other).run(hold_release.recover).notes == ()
    policy = topics.admin.scalable_topics.auto_scale_policy(name)
    assert policy is not None
    assert policy.enabled is False
    after = topics.snapshot(name)
    assert (after.policies, after.reported, after.notes) == (before.policies, before.reported, {})


def test_nothing_is_taken_from_the_notes_of_a_former_topic(topics: Topics) -> None:
    """A scalable topic was deleted, and a regular one of its name has the same subscriptions."""
    name, other = topics.make("after/remade"), topics.make("after/remade-other")
    former = topics.steps(other)
    former.run(hold_release.guard)
    with former.task() as task, task.cluster.store() as store:
        guard = task.topic_guard(store, name)
        guard.take()
        guard.note(stage=Stage.FLIPPED, registered=(QUEUE, STREAM))
    steps = topics.steps(name)
    steps.run(hold_release.recover)
    assert topics.snapshot(name).notes == {}
    steps.run(hold_release.guard)
    with steps.task() as task, task.cluster.store() as store:
        task.topic_guard(store, name).note(stage=Stage.FLIPPED, registered=(QUEUE, STREAM))
    flipped = steps.run(flip.flip).flipped
    assert flipped
    assert flipped.registered == len((QUEUE, STREAM))
    assert topics.is_whole(name)
    steps.run(hold_release.complete)


def test_a_record_that_was_emptied_keeps_the_regular_topic(topics: Topics) -> None:
    """CLEANUP deletes nothing then, says why, and forgets the topic."""
    name = topics.make("after/emptied")
    steps = topics.flipped(name, cleanup="remove")
    steps.run(hold_release.complete)
    record = topics.store.get(name.scalable_path)
    assert record
    topics.store.set(name.scalable_path, b"", record.version)
    cleaned = steps.run(cleanup.clean_up)
    assert (cleaned.deleted, cleaned.remaining_count) == (0, 1)
    assert cleaned.remaining[0].reason == "its record in the metadata store is empty, and no broker can read it"
    emptied = topics.store.get(name.scalable_path)
    assert emptied
    topics.store.set(name.scalable_path, record.value, emptied.version)
    after = topics.snapshot(name)
    assert after.topics[str(name)].regular
    assert after.notes == {}


def test_a_subscription_that_is_deleted_and_used_again_has_its_record(topics: Topics) -> None:
    """Its consumers have made places on the segments; without a record the next merge would cost it what it has."""
    name = topics.make("after/again")
    steps = topics.flipped(name)
    path = f"/admin/v2/scalable/{name.local_path}/subscriptions/{QUEUE}"
    deleted = httpx.delete(f"{topics.stack.admin_urls[0]}{path}", follow_redirects=True, timeout=30)
    assert deleted.is_success
    for _ in range(2):
        steps.run(draining.verify)
        assert recorded_subscriptions(topics.store, name).keys() == {STREAM}
    layout = topics.admin.scalable_topics.layout(name)
    for segment in layout.active:
        topics.admin.scalable_topics.create_segment(name, segment.descriptor, [QUEUE])
    assert steps.run(draining.verify).faults == ()
    assert topics.is_whole(name)
    steps.run(hold_release.complete)


def _all_flipped(topics: Topics, proxy: FaultyBrokerProxy, namespace: str) -> tuple[TopicSteps, list[TopicName]]:
    """Return a run that has made four topics scalable, as for a namespace; the second one's messages are needed."""
    names = [topics.make(namespace)]
    for other in ("b", "c", "d"):
        names.append(names[0]._replace(topic=f"topic-{other}"))
        fill(topics.stack, topics.admin, names[-1], 0)
        if other == "b":
            drain(topics.stack, topics.admin, names[-1], STREAM, pulsar.ConsumerType.Failover)
        else:
            drain_all(topics.stack, topics.admin, names[-1])
    drain_all(topics.stack, topics.admin, names[0])
    steps = topics.steps(names[0], cleanup="remove", admin_urls=[proxy.url])
    steps.run(hold_release.guard)
    for name in names:
        with steps.task() as task, task.cluster.store() as store:
            guard = task.topic_guard(store, name)
            record = guard.take()
            conversion_of(task, store, guard, name, record, stage=record.stage).run()
            assert cluster.keep_for_grace(task, guard, name) == ()
        if name is not names[1]:
            forget_parents(topics.store, name)
    steps.run(hold_release.complete)
    return steps, names


@pytest.mark.exhaustive
def test_a_topic_that_brokers_fail_for_stops_no_cleanup(
    topics: Topics, proxy: FaultyBrokerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are deleted, and the report says what stays, and why."""
    monkeypatch.setattr(cluster, "PAUSE", 0.1)
    steps, names = _all_flipped(topics, proxy, "after/sick")
    for _ in range(_ENOUGH):
        proxy.once("GET", f"/{names[0].local_path}/partitions", failed)
    cleaned = steps.run(cleanup.clean_up)
    assert (cleaned.deleted, [item.path for item in cleaned.remaining]) == (2, [str(names[0]), str(names[1])])
    assert "so says the test" in cleaned.remaining[0].reason
    assert "its messages are not consumed" in cleaned.remaining[1].reason


def test_what_an_attempt_has_cleaned_the_next_one_reports(topics: Topics, proxy: FaultyBrokerProxy) -> None:
    """An attempt that dies during the cleanup leaves its outcome in the records of topics."""
    steps, names = _all_flipped(topics, proxy, "after/report")
    proxy.once("DELETE", f"/{names[2].local_path}", hung_up)
    with pytest.raises(StoreUnreachable):
        steps.run(cleanup.clean_up)
    cleaned = steps.run(cleanup.clean_up)
    assert (cleaned.deleted, [item.path for item in cleaned.remaining]) == (3, [str(names[1])])
    assert topics.snapshot(names[0]).notes == {}


def test_cleanup_keeps_what_a_client_leaves_during_it(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription gets messages after the first look, and a client connects after the last one."""
    name = topics.make("after/during")
    drain_all(topics.stack, topics.admin, name)
    steps = topics.flipped(name, cleanup="remove")
    forget_parents(topics.store, name)
    steps.run(hold_release.complete)
    why_kept = cleanup.why_kept

    def kept_and_late(*arguments: object, **more: object) -> str:
        topics.admin.subscriptions.create(name, "late")
        return why_kept(*arguments, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(cleanup, "why_kept", kept_and_late)
    cleaned = steps.run(cleanup.clean_up)
    assert cleaned.remaining[0].reason == f"subscriptions have messages in {name}: late ({MESSAGES})"
    assert topics.admin.topics.stats(name).subscriptions["late"].msg_backlog == MESSAGES


def test_seeks_reach_the_regular_topic(topics: Topics, admin: PulsarAdmin, stack: Stack) -> None:
    """`seek` and `skip-all` of the scalable topic move a subscription on the regular topic as well (5.0.1)."""
    name = topics.make("after/seek")
    steps = topics.steps(name)
    for step in (hold_release.guard, flip.flip):
        steps.run(step)
    drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)
    path = f"{stack.admin_urls[0]}/admin/v2/scalable/{name.local_path}/subscriptions/{QUEUE}"

    def backlog() -> int:
        return admin.topics.stats(name).subscriptions[QUEUE].msg_backlog

    assert backlog() == 0
    assert httpx.post(f"{path}/seek", params={"timestamp": 1}, timeout=30).is_success
    assert backlog() == MESSAGES
    assert httpx.post(f"{path}/skip-all", timeout=30).is_success
    assert backlog() == 0
    steps.run(hold_release.complete)
