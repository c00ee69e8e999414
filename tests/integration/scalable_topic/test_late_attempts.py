"""Attempts that freeze after a check of the fence, and continue when others have done or undone their work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from activities.lifecycle.context import Cancelled
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.scalable_topic import cleanup, flip, hold_release
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.errors import StoreError, Superseded
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.creation_locks import bar_path
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.scalable_topic.results import CleanedUp
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.existing_topics import TopicsSnapshot, changes, read_snapshot
from tests.support.scalable_topic.steps import FrozenStep, TopicSteps
from tests.support.scalable_topic.topics import make_topic
from tests.support.waiting import wait_for

Look = Callable[[TopicName], TopicsSnapshot]


@pytest.fixture
def snapshot(stack: Stack, admin: PulsarAdmin, store: CasStore) -> Look:
    """Return a function that takes a snapshot of topics, policies and records."""
    return lambda name: read_snapshot(admin, store, stack.admin_urls, name.namespace_path, [name])


def _frozen(steps: TopicSteps, step: Callable[[TopicTask], object], patch: pytest.MonkeyPatch) -> Iterator[FrozenStep]:
    """Yield a step that is frozen after its first check, then one after the second, and so on until it ends."""
    for at in itertools.count(1):
        with patch.context() as mine:
            frozen = FrozenStep(steps, step, at, mine)
            if not frozen.freezes():
                assert at > 1, "it never asks"
                return
            yield frozen


@pytest.mark.exhaustive
def test_a_late_guard_holds_nothing(
    stack: Stack, admin: PulsarAdmin, snapshot: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback during the freeze stays in effect: policies, records and claim."""
    name = make_topic(stack, admin, "late/guard")
    steps, before = TopicSteps(stack, name), snapshot(name)
    for late in _frozen(steps, hold_release.guard, monkeypatch):
        assert steps.run(hold_release.undo).why == ""
        assert changes(before, snapshot(name)) == []
        assert isinstance(late.resume(), Superseded)
        assert changes(before, snapshot(name)) == []
    assert steps.run(hold_release.undo).why == ""


def test_a_guard_of_a_run_that_has_ended_takes_nothing(stack: Stack, admin: PulsarAdmin, snapshot: Look) -> None:
    """It may have frozen after it saw its run continue, and before it took what no run holds."""
    name = make_topic(stack, admin, "late/ended")
    steps, before = TopicSteps(stack, name), snapshot(name)
    steps.running.clear()
    with pytest.raises(Superseded):
        steps.run(hold_release.guard)
    assert changes(before, snapshot(name)) == []
    # Nothing is noted for it, so neither has anything to take.
    late: list[Callable[[TopicTask], CleanedUp]] = [cleanup.clean_up, cleanup.forget]
    for step in late:
        assert steps.run(step) == CleanedUp()
        assert changes(before, snapshot(name)) == []


def test_late_flips_and_completions_change_nothing(
    stack: Stack, admin: PulsarAdmin, snapshot: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt has made the topic scalable, and a third one has ended the migration."""
    name = make_topic(stack, admin, "late/flip")
    steps, before = TopicSteps(stack, name), snapshot(name)
    steps.run(hold_release.guard)
    first = FrozenStep(steps, flip.flip, 1, monkeypatch)
    assert first.freezes()
    answer = steps.run(flip.flip)
    assert answer.flipped
    assert answer.flipped.faults == ()
    scalable = snapshot(name)
    assert isinstance(first.resume(), StoreError)
    assert changes(scalable, snapshot(name)) == []
    for late in _frozen(steps, flip.flip, monkeypatch):
        assert steps.run(flip.flip).flipped
        scalable = snapshot(name)
        assert isinstance(late.resume(), Superseded)
        assert changes(scalable, snapshot(name)) == []
    late = FrozenStep(steps, hold_release.complete, 1, monkeypatch)
    assert late.freezes()
    steps.run(hold_release.complete)
    ended = snapshot(name)
    assert (ended.policies, ended.reported) == (before.policies, before.reported)
    assert ended.topics[str(name)].record is RecordState.GOOD
    late.resume()
    assert changes(ended, snapshot(name)) == []


def test_segments_without_their_topic_go_at_once(
    stack: Stack, admin: PulsarAdmin, store: CasStore, snapshot: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flip that died before its call leaves segments; the next start deletes them before it waits for anything."""
    name = make_topic(stack, admin, "late/died")
    steps, before, waited = TopicSteps(stack, name), snapshot(name), list[list[str]]()
    steps.run(hold_release.guard)
    with monkeypatch.context() as patch:
        patch.setattr(TopicConversion, "_migrate", _raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            steps.run(flip.flip)
    assert _segments(store, name)
    # Their load is reported every ten seconds, and no client finds the regular topic from then on (5.0.1).
    wait_for("a report of load", lambda: read_scalable(store, name).state is RecordState.EMPTY, 60)

    def wait(_cluster: object) -> None:
        waited.append(_segments(store, name))

    monkeypatch.setattr(PulsarCluster, "await_late_requests", wait)
    following = TopicSteps(stack, make_topic(stack, admin, "late/following"), run_id="run-2")
    following.run(hold_release.recover)
    assert waited == [[]]
    after = snapshot(name)
    # Notes of other topics, which earlier tests have left, end with the same step.
    assert changes(before._replace(notes={}), after._replace(notes={})) == []
    assert not [path for path in after.notes if "late%2Fdied" in path]


def test_a_flip_that_is_cancelled_leaves_no_segments(
    stack: Stack, admin: PulsarAdmin, store: CasStore, snapshot: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that it has made are deleted before it ends, and the next attempt makes the topic scalable."""
    name = make_topic(stack, admin, "late/cancelled")
    steps, before = TopicSteps(stack, name), snapshot(name)
    steps.run(hold_release.guard)
    with monkeypatch.context() as patch:
        patch.setattr(TopicConversion, "_migrate", _raising(Cancelled))
        with pytest.raises(Cancelled):
            steps.run(flip.flip)
    assert _segments(store, name) == []
    assert snapshot(name).topics == before.topics

    def never(_cluster: object) -> None:
        pytest.fail("all that it has asked for was answered")

    monkeypatch.setattr(PulsarCluster, "await_late_requests", never)
    flipped = steps.run(flip.flip).flipped
    assert flipped
    assert flipped.faults == ()
    assert store.get(bar_path(name)) is None
    steps.run(hold_release.complete)


def _segments(store: CasStore, name: TopicName) -> list[str]:
    return store.children(f"/managed-ledgers/{name.namespace_path}/segment/{name.topic}")


def _raising(error: type[BaseException]) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
