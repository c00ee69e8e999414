"""Policies that a regular topic has of its own, and segments do not have."""

from __future__ import annotations

from contextlib import closing

import pytest

from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.scalable_topic import cleanup, flip, hold_release, precheck
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.creation_locks import bar_path
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import MESSAGES, drain_all, fill, pulsar
from tests.support.waiting import wait_until_equal

_FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
_KNOWN = 30.0


def test_own_retention_is_a_blocker(stack: Stack, admin: PulsarAdmin) -> None:
    """With `cleanup: remove` the consumed messages that a policy of the topic keeps would be deleted."""
    name = TopicName.parse("persistent://public/default/retained")
    fill(stack, admin, name, 0)
    _retain(admin, name)
    codes = [blocker.code for blocker in TopicSteps(stack, name, cleanup="remove").run(precheck.precheck).blockers]
    assert codes == ["OWN_RETENTION"]
    assert TopicSteps(stack, name).run(precheck.precheck).blockers == ()


def test_own_retention_keeps_the_regular_topic(stack: Stack, admin: PulsarAdmin) -> None:
    """A policy that came after PRECHECK keeps the regular topic, with all that was consumed, from the cleanup."""
    name = TopicName.parse("persistent://public/default/retained-later")
    fill(stack, admin, name, 0)
    drain_all(stack, admin, name)
    steps = TopicSteps(stack, name, cleanup="remove")
    for step in (hold_release.guard, flip.flip, hold_release.complete):
        steps.run(step)
    _retain(admin, name)
    cleaned = steps.run(cleanup.clean_up)
    assert cleaned.deleted == 0
    (item,) = cleaned.remaining
    assert item.reason.startswith("policies of its own keep its messages (retention)")
    with closing(quiet_client(stack.broker_url)) as client:
        reader = client.create_reader(str(name), pulsar.MessageId.earliest)
        numbers = [int(reader.read_next(30_000).data()) for _ in range(MESSAGES)]
        reader.close()
    assert numbers == [*range(MESSAGES)]


def test_what_changes_after_a_flip_died_is_looked_at(
    stack: Stack, admin: PulsarAdmin, store: CasStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks of PRECHECK are repeated, however long ago an attempt died before its call, and all is undone."""
    name = TopicName.parse("persistent://public/default/retained-changed")
    fill(stack, admin, name, 0)
    drain_all(stack, admin, name)
    steps = TopicSteps(stack, name, cleanup="remove")
    steps.run(hold_release.guard)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def nothing(_task: TopicTask) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr(TopicConversion, "_migrate", dies)
        with pytest.raises(KeyboardInterrupt):
            steps.run(flip.flip)
    _retain(admin, name)
    monkeypatch.setattr(PulsarCluster, "await_late_requests", nothing)
    with pytest.raises(StoreConflict, match="OWN_RETENTION"):
        steps.run(flip.flip)
    assert store.children("/managed-ledgers/public/default/segment/retained-changed") == []
    assert read_scalable(store, name).state is RecordState.ABSENT
    assert store.get(bar_path(name)) is None
    steps.run(hold_release.undo)


def _retain(admin: PulsarAdmin, name: TopicName) -> None:
    admin.topic_policies.set(name, "retention", _FOR_EVER)
    wait_until_equal("the policy", lambda: admin.topic_policies.get(name, "retention"), _FOR_EVER, _KNOWN)
