"""Limits of a rollback: the changes that it takes back, and those that it must leave."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import pytest

from activities.blue_green import cluster
from activities.blue_green.batch import drain, flip, undo, verify
from activities.pulsar.stored_topics import stored
from clients.pulsar.admin.topics import Position
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import set_flag
from models.blue_green.claims import Stage
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace, take


def test_a_flip_that_never_began_is_repeated(clusters: Clusters) -> None:
    """A run that was lost right before its flag has flipped nothing: the next one begins with the namespace again."""
    namespace = "undone/never"
    make_namespace(clusters, namespace, "old")
    _lost_before_the_flag(clusters, namespace)
    new = TopicName.parse(f"{namespace}/new")
    clusters.blue_admin.topics.create(new)
    later = Steps(clusters, namespace, run_id="run-2")
    later.begin()
    assert str(new) in clusters.green_admin.topics.names(namespace)
    assert not later.quiesce().busy
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is not None
    later.batch(flip.flip)
    assert _ended(clusters, new)
    later.end()


@pytest.mark.exhaustive
def test_an_attempt_does_not_continue_without_its_limit(clusters: Clusters) -> None:
    """If an operator removes flag and limit during the flip, the next attempt does not flip during writes."""
    namespace = "undone/emergency"
    make_namespace(clusters, namespace, "topic")
    steps = _lost_before_the_flag(clusters, namespace)
    clusters.blue_admin.namespaces.remove_publish_rate(namespace)
    with pytest.raises(Exception, match=r"nothing is flipped: the publish rate of .* was changed during the flip"):
        steps.batch(flip.flip)
    assert steps.batch(undo.undo).undone
    steps.end()


@pytest.mark.parametrize("loaded", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_namespaces_of_an_earlier_run_stay(clusters: Clusters, *, loaded: bool) -> None:
    """A rollback, before its LOAD or after it, leaves the flag of a namespace whose clients are on green."""
    namespace = f"undone/{'loaded' if loaded else 'not-loaded'}"
    (topic,) = make_namespace(clusters, namespace, "topic")
    _moved(clusters, namespace).finish()
    clusters.blue_admin.topics.delete(topic)
    later = Steps(clusters, namespace, run_id="run-2", unterminate=True)
    if loaded:
        later.begin()
    else:
        later.whole(cluster.register)
    undone = later.batch(undo.undo)
    assert not undone.undone
    assert "an earlier run redirected its clients to green" in undone.why
    assert _is_flagged(clusters, namespace)
    later.end()


@pytest.mark.parametrize("terminated", [False, True], ids=["next attempt", "next run"])
def test_subscriptions_are_restored_after_a_lost_attempt(clusters: Clusters, *, terminated: bool) -> None:
    """An attempt that died with a termination taken back, and its subscriptions not yet: they begin where it was."""
    namespace = f"undone/{'terminated' if terminated else 'twice'}"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "drained", replicated=True, properties={"team": "billing"})
    steps = _moved(clusters, namespace, unterminate=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undo, "restore_subscriptions", _die)
        with pytest.raises(ConnectionError):
            steps.batch(undo.undo)
    assert clusters.blue_admin.subscriptions.names(topic) == []
    if terminated:
        steps = Steps(clusters, namespace, run_id="run-2", unterminate=True)
        steps.whole(cluster.register)
    else:
        undone = steps.batch(undo.undo)
        assert (undone.undone, undone.restored) == (True, 1)
    assert clusters.blue_admin.subscriptions.names(topic) == ["drained"]
    send_to(clusters.blue.broker_url, [str(topic)])
    drained = clusters.blue_admin.topics.stats(topic).subscriptions["drained"]
    assert (drained.msg_backlog, drained.is_replicated) == (1, True)
    assert drained.subscription_properties == {"team": "billing"}
    # A later run does not create them again, where a client has deleted them since.
    clusters.blue_admin.subscriptions.delete(topic, "drained")
    following = Steps(clusters, namespace, run_id="run-3")
    following.whole(cluster.register)
    assert clusters.blue_admin.subscriptions.names(topic) == []
    following.end()


def test_a_client_that_comes_to_green_during_the_rollback(clusters: Clusters) -> None:
    """If a client was redirected before the flag was cleared, the whole namespace moves."""
    namespace = "undone/during"
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = _moved(clusters, namespace, unterminate=True)
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patch:
        clear: Any = vars(undo)["_clear_flag"]

        def clear_then_come(*arguments: Any) -> None:
            clear(*arguments)
            client = opened.enter_context(closing(quiet_client(clusters.green.broker_url)))
            client.create_producer(str(topic))

        patch.setattr(undo, "_clear_flag", clear_then_come)
        undone = steps.batch(undo.undo)
    assert not undone.undone
    assert "have clients or messages on green already" in undone.why
    assert _is_flagged(clusters, namespace)
    assert _ended(clusters, topic)
    steps.end()


def test_clients_that_were_redirected_before_the_rollback_are_reported(clusters: Clusters) -> None:
    """Brokers redirect clients of topics that are not loaded, or are new, before any topic is terminated."""
    namespace = "undone/redirected"
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace)
    steps.begin()
    assert not steps.quiesce().busy
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(stage=Stage.FLIPPED, flipped_in="run-1")
        clusters.blue_admin.topics.unload(topic)
        set_flag(store, namespace, guard.require, migrated=True)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        for name in (str(topic), f"{topic}-new"):
            client.create_producer(name).send(b"on green")
        undone = steps.batch(undo.undo)
    assert undone.undone
    assert [note.partition(" stays on blue, and has clients or messages on green")[0] for note in undone.notes] == [
        str(topic),
        f"{topic}-new",
    ]
    steps.end()


def test_a_namespace_that_is_gone(clusters: Clusters) -> None:
    """A namespace deleted during its batch does not keep others throttled, nor the rollback from its end."""
    names = ["undone/deleted", "undone/there"]
    for name in names:
        make_namespace(clusters, name)
    steps = Steps(clusters, *names)
    steps.begin()
    assert not steps.quiesce().busy
    clusters.blue_admin.namespaces.delete(names[0])
    assert steps.batch(undo.undo).undone
    assert clusters.blue_admin.namespaces.publish_rate(names[1]) is None
    steps.end()


def test_a_namespace_that_is_deleted_after_its_flip(clusters: Clusters) -> None:
    """A batch is drained and verified if a client deletes one of its namespaces on blue."""
    names = ["undone/flipped-deleted", "undone/flipped-there"]
    topics = [make_namespace(clusters, name, "topic")[0] for name in names]
    steps = Steps(clusters, *names)
    steps.begin()
    assert not steps.quiesce().busy
    steps.batch(flip.flip)
    clusters.blue_admin.topics.delete(topics[0], force=True)
    clusters.blue_admin.namespaces.delete(names[0])
    assert steps.batch(drain.drain).remaining == ()
    assert steps.batch(verify.verify).faults == ()
    steps.end()


def _moved(clusters: Clusters, namespace: str, *, unterminate: bool = False) -> Steps:
    steps = Steps(clusters, namespace, unterminate=unterminate)
    steps.move()
    return steps


def _lost_before_the_flag(clusters: Clusters, namespace: str) -> Steps:
    """Return a run that has noted the flip, and not begun it."""
    steps = Steps(clusters, namespace)
    steps.begin()
    assert not steps.quiesce().busy
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(stage=Stage.FLIPPED, flipped_in="run-1")
    return steps


def _die(*_: object) -> None:
    raise ConnectionError


def _ended(clusters: Clusters, topic: TopicName) -> Position | None:
    info = stored(clusters.blue_admin, topic)
    return info and info.terminated_position


def _is_flagged(clusters: Clusters, namespace: str) -> bool:
    return clusters.blue_admin.namespaces.policies(namespace).migrated
