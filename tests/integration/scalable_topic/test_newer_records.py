"""Records of scalable topics that this version cannot read, as those of a newer release."""

from __future__ import annotations

import json

import pytest

from activities.scalable_topic import flip, hold_release, precheck
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import CLAIM
from models.scalable_topic.claims import topic_record
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import make_topic

_HELD = Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)
_NEWER = "use a newer pulsar-migrate"


@pytest.mark.exhaustive
def test_a_record_that_cannot_be_read_keeps_guards_and_lock(
    stack: Stack, admin: PulsarAdmin, store: CasStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as newer: nothing is restored or deleted, no message says to delete it, and a later start completes."""
    name = make_topic(stack, admin, "newer/records")
    steps = TopicSteps(stack, name)
    steps.run(hold_release.guard)
    with monkeypatch.context() as patch:
        patch.setattr(TopicConversion, "_register", _dies)
        with pytest.raises(KeyboardInterrupt):
            steps.run(flip.flip)
    readable = _made_newer(store, name)
    with pytest.raises(StoreConflict, match=_NEWER) as failed:
        steps.run(flip.flip)
    undone = steps.run(hold_release.undo)
    messages = [str(failed.value), *undone.notes]
    assert undone.why == ""
    assert all(_NEWER in message for message in messages)
    assert not [message for message in messages if "elete" in message]
    assert store.get(CLAIM) is None
    assert admin.namespaces.retention(name.namespace_path) == _HELD
    assert store.get(topic_record(f"{name.namespace_path}/{name.topic}"))
    following = TopicSteps(stack, name, run_id="run-2")
    (blocker,) = following.run(precheck.precheck).blockers
    assert (blocker.code, "elete" in str(blocker)) == ("RECORD_BROKEN", False)
    node = store.get(name.scalable_path)
    assert node
    store.set(name.scalable_path, readable, node.version)
    assert (
        f"{name} was left during its flip by an earlier run, and is complete now"
        in following.run(hold_release.guard).notes
    )
    assert following.run(flip.flip).flipped
    following.run(hold_release.complete)
    assert admin.namespaces.retention(name.namespace_path) != _HELD


def _dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _made_newer(store: CasStore, name: TopicName) -> bytes:
    """Give a segment a state that no release has yet; what the record was before."""
    node = store.get(name.scalable_path)
    assert node
    record = json.loads(node.value)
    for segment in record["segments"].values():
        segment["state"] = "SEALING"
    store.set(name.scalable_path, json.dumps(record).encode(), node.version)
    assert read_scalable(store, name).state is RecordState.BROKEN
    return node.value
