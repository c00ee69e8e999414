"""Auto-scale policies that brokers refuse, before the flip and after it."""

from __future__ import annotations

import pytest

from activities.scalable_topic import flip, hold_release, precheck
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import CLAIM
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import delete_scalable, make_topic

# The namespace of `make_topic` allows so many.
_MOST = 16
_OWN = Retention(retention_time_in_minutes=7, retention_size_in_m_b=70)


def test_a_policy_that_brokers_would_refuse_is_a_blocker(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """PRECHECK and FLIP ask each broker, with the policy of the namespace, and change nothing."""
    name = make_topic(stack, admin, "refused/before")
    refused, allowed = ({"min_segments": count} for count in (_MOST + 1, _MOST))
    blockers = TopicSteps(stack, name, auto_scale=refused).run(precheck.precheck).blockers
    assert [blocker.code for blocker in blockers] == ["AUTO_SCALE_REFUSED"]
    assert "maxSegments must be >= minSegments" in blockers[0].cause
    assert TopicSteps(stack, name, auto_scale=allowed).run(precheck.precheck).blockers == ()
    assert store.children("/topics/refused/before") == []
    steps = TopicSteps(stack, name, auto_scale=refused)
    steps.run(hold_release.guard)
    with pytest.raises(StoreConflict, match="AUTO_SCALE_REFUSED"):
        steps.run(flip.flip)
    assert read_scalable(store, name).state is RecordState.ABSENT
    steps.run(hold_release.undo)


def test_a_policy_that_brokers_refuse_after_the_flip(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The topic gets one that is safe, the certificate names it, and all else is released."""
    name = _flipped(stack, admin, "refused/after")
    namespace = name.namespace_path
    admin.namespaces.set_policy(namespace, ("scalableTopicAutoScalePolicy",), {"maxSegments": _MOST - 1})
    (fault,) = TopicSteps(stack, name, auto_scale={"min_segments": _MOST}).run(hold_release.complete).faults
    assert "maxSegments must be >= minSegments" in fault
    assert admin.scalable_topics.auto_scale_policy(name) == AutoScalePolicy(enabled=False)
    assert (store.get(CLAIM), admin.namespaces.retention(namespace)) == (None, _OWN)


def test_a_topic_that_its_owner_has_deleted(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A topic that is gone needs no policy: the certificate says so, and all else is released."""
    name = _flipped(stack, admin, "refused/gone")
    delete_scalable(admin, name)
    (fault,) = TopicSteps(stack, name, auto_scale={"min_segments": _MOST}).run(hold_release.complete).faults
    assert f"topic://{name.local_path} was deleted" in fault
    assert (store.get(CLAIM), admin.namespaces.retention(name.namespace_path)) == (None, _OWN)


def _flipped(stack: Stack, admin: PulsarAdmin, namespace: str) -> TopicName:
    name = make_topic(stack, admin, namespace)
    steps = TopicSteps(stack, name, auto_scale={"min_segments": _MOST})
    for step in (hold_release.guard, flip.flip):
        steps.run(step)
    return name
