"""When writes are released, who must answer for that, and what becomes of what a flip leaves on blue."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from activities.blue_green import cluster, grace, namespace_redirect, termination
from activities.blue_green.batch import drain, flip, undo, verify
from activities.blue_green.topics import check_topic, is_terminated
from activities.pulsar.pulsar_cluster import PulsarCluster
from clients.errors import StoreConflict
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import set_flag
from models.blue_green.input import IdleSubscriptions
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace, take
from tests.support.clients.dynamic_settings import dynamic_values
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

_SILENT = "http://127.0.0.1:1"


@pytest.fixture
def steps(clusters: Clusters, request: pytest.FixtureRequest) -> Generator[Steps]:
    """The steps of a migration of the namespace `flips/<test>`."""
    name = re.sub(r"\W|_", "-", request.node.name.removeprefix("test_"))[-40:].strip("-")
    ready = Steps(clusters, f"flips/{name}", drain_timeout="PT2S")
    yield ready
    ready.end()


@contextmanager
def _silent_broker(blue: str) -> Generator[None]:
    """Register a broker that does not answer in the metadata store of blue."""
    list_brokers = PulsarCluster.brokers
    with PulsarAdminReader.open(AdminAccess(timeout=1), [_SILENT]) as silent, pytest.MonkeyPatch.context() as patch:

        def with_silent(cluster: PulsarCluster) -> list[tuple[str, PulsarAdminReader]]:
            named = list_brokers(cluster)
            return [*named, (_SILENT, silent)] if cluster.addresses.metadata_url == blue else named

        patch.setattr(PulsarCluster, "brokers", with_silent)
        yield


def test_writes_are_held_back_until_topics_are_ended(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When time is up before all topics are ended, writes stay held back; the rollback releases them after the end."""
    namespace, _ = _quiet(clusters, steps)
    steps.input = steps.input.model_copy(update={"flip_timeout": timedelta(seconds=3)})
    with monkeypatch.context() as patch:
        patch.setattr(termination, "is_terminated", _never)
        with pytest.raises(StoreConflict, match="1 topics are not terminated 3 s after their flags were set"):
            steps.batch(flip.flip)
        assert clusters.blue_admin.namespaces.publish_rate(namespace) is not None
    steps.input = steps.input.model_copy(update={"flip_timeout": timedelta(seconds=30)})
    assert not steps.batch(undo.undo).undone
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


def test_steps_before_the_flag_do_not_shorten_the_sweep(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flip_timeout` counts from the flags: a long copy right before them does not end the wait for the topics."""
    _, topic = _quiet(clusters, steps)
    # Brokers that are busy need some of it.
    steps.input = steps.input.model_copy(update={"flip_timeout": timedelta(seconds=12)})

    def copy_for_long(*_: object, **__: object) -> None:
        time.sleep(12.5)

    monkeypatch.setattr(flip, "repeat_final_copy", copy_for_long)
    assert steps.batch(flip.flip).topics == 1
    assert is_terminated(clusters.blue_admin, topic)


def test_a_broker_that_does_not_answer_does_not_block_writes(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is flipped while a registered broker is silent, and the rollback names it and does not wait for it."""
    monkeypatch.setattr(namespace_redirect, "_SESSION_ENDS_WITHIN", 1.0)
    namespace, _ = _quiet(clusters, steps)
    with (
        _silent_broker(clusters.blue.metadata_url),
        pytest.raises(StoreConflict, match=f"nothing is flipped: registered brokers .* do not answer: .*{_SILENT}"),
    ):
        steps.batch(flip.flip)
    assert not clusters.blue_admin.namespaces.policies(namespace).migrated
    # As after an attempt that had set the flag, and found the broker silent after that.
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(flipped_in=task.attempt.run_id)
    with _silent_broker(clusters.blue.metadata_url):
        undone = steps.batch(undo.undo)
    assert undone.undone
    assert any(f"{_SILENT} of blue does not answer" in note for note in undone.notes)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


def test_undrained_topics_are_watched(clusters: Clusters, steps: Steps) -> None:
    """Undrained topics stay loaded to the end of the window, and one that is unloaded raises an alarm."""
    (namespace,) = steps.input.namespaces
    (topic,) = make_namespace(clusters, namespace, "idle")
    admin = clusters.blue_admin
    admin.subscriptions.create(topic, "s")
    send_to(clusters.blue.broker_url, [str(topic)])
    steps.input = steps.input.model_copy(update={"complete_cluster": False})
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    assert steps.batch(drain.drain).remaining
    held = dynamic_values(admin)
    assert held
    assert steps.whole(cluster.complete).undrained == (namespace,)
    assert dynamic_values(admin) == held
    assert steps.whole(grace.census).undrainable == ()
    admin.topics.unload(topic)
    wait_for("the topic out of memory", lambda: check_topic(admin, topic).blocked, 20)
    (undrainable,) = steps.whole(grace.census).undrainable
    assert undrainable.startswith(f"{topic} was unloaded before it was drained")
    assert "subscriptions s" in undrainable
    (note,) = steps.whole(cluster.finish).notes
    assert note.startswith(f"{namespace} has topics on blue that are not drained")
    assert dynamic_values(admin) == {}


def test_no_client_creates_a_topic_while_the_flag_is_off(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a flag is off to load topics again, a client of a topic that only green has is not served by blue."""
    namespace, topic = _quiet(clusters, steps)
    steps.batch(flip.flip)
    newcomer = f"persistent://{namespace}/newcomer"

    def load_with_a_client(*_: object) -> None:
        with closing(quiet_client(clusters.blue.broker_url)) as client, pytest.raises(pulsar.PulsarException):
            client.create_producer(newcomer)

    monkeypatch.setattr(termination, "load_topics", load_with_a_client)
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        termination.reload_topics(task, guard, store, [topic])
        assert guard.require().auto_creation is None
    assert newcomer not in clusters.blue_admin.topics.names(namespace)
    assert "autoTopicCreationOverride" not in _set(clusters.blue_admin.namespaces.policies(namespace).raw)


def test_a_new_topic_on_blue_after_the_flip_is_a_fault(clusters: Clusters, steps: Steps) -> None:
    """Messages of a topic that came to blue while the flag was off are on blue alone: VERIFY names it."""
    namespace, _ = _quiet(clusters, steps)
    steps.batch(flip.flip)
    newcomer = TopicName.parse(f"persistent://{namespace}/newcomer")
    clusters.green_admin.topics.create(newcomer)
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        set_flag(store, namespace, guard.require, migrated=False)
        # Either broker may be asked by the client.
        namespace_redirect.wait_until_seen(task, namespace, migrated=False)
        clusters.blue_admin.topics.create(newcomer)
        send_to(clusters.blue.broker_url, 2 * [str(newcomer)])
        set_flag(store, namespace, guard.require, migrated=True)
    wait_for("its end", lambda: is_terminated(clusters.blue_admin, newcomer), 20)
    (fault,) = steps.batch(verify.verify).faults
    assert (fault.path, fault.reason) == (
        str(newcomer),
        "it was created on blue after the flip, and 2 entries are only on blue",
    )


def test_a_subscription_in_use_is_not_skipped(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `skip`, a backlog stays if it had consumers at LOAD, or right before the flag, or came after LOAD."""
    # One round may take as long as the whole drain of this test.
    monkeypatch.setattr(drain, "_IDLE_FOR", 0.0)
    (namespace,) = steps.input.namespaces
    (topic,) = make_namespace(clusters, namespace, "topic")
    for name in ("at-load", "at-flag", "idle"):
        clusters.blue_admin.subscriptions.create(topic, name)
    send_to(clusters.blue.broker_url, [str(topic)])
    steps.input = steps.input.model_copy(update={"idle_subscriptions": IdleSubscriptions.SKIP})
    with ExitStack() as opened:
        early = quiet_client(clusters.blue.broker_url)
        early.subscribe(str(topic), "at-load")
        steps.begin()
        early.close()
        clusters.blue_admin.subscriptions.create(topic, "late")
        late = opened.enter_context(closing(quiet_client(clusters.blue.broker_url)))
        late.subscribe(str(topic), "at-flag")
        steps.quiesce()
        steps.batch(flip.flip)
    drained = steps.batch(drain.drain)
    assert drained.skipped == 1
    (topic,) = drained.remaining
    assert "subscription late has 1 messages left, and no consumer;" in f"{topic.reason};"
    for name in ("at-load", "at-flag"):
        assert f"subscription {name} has 1 messages left, and no consumer; it had 1" in topic.reason


def test_a_topic_that_a_client_terminates_holds_no_writes(clusters: Clusters, steps: Steps) -> None:
    """Brokers do not mark it as migrated: writes are released, its consumers follow to green, and VERIFY names it."""
    (namespace,) = steps.input.namespaces
    topic, _ = make_namespace(clusters, namespace, "ended", "other")
    clusters.blue_admin.subscriptions.create(topic, "s")
    send_to(clusters.blue.broker_url, [str(topic)])
    steps.input = steps.input.model_copy(update={"drain_timeout": timedelta(seconds=60)})
    steps.begin()
    assert not steps.quiesce().busy
    url = f"{clusters.blue.admin_urls[0]}/admin/v2/persistent/{namespace}/{topic.topic}/terminate"
    httpx.post(url, follow_redirects=True, timeout=30).raise_for_status()
    steps.batch(flip.flip)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        consumer = client.subscribe(str(topic), "s")
        consumer.acknowledge(consumer.receive(timeout_millis=20_000))
        assert steps.batch(drain.drain).remaining == ()
        wait_for("the consumer on green", lambda: _consumers(clusters, topic) == 1, 30)
    (fault,) = steps.batch(verify.verify).faults
    assert fault.path == str(topic)
    assert fault.reason.startswith("a client terminated it on blue")


def _consumers(clusters: Clusters, topic: TopicName) -> int:
    stats = check_topic(clusters.green_admin, topic).stats
    return len(stats.subscriptions["s"].consumers) if stats else 0


def _quiet(clusters: Clusters, steps: Steps) -> tuple[str, TopicName]:
    """Return a namespace with one topic, whose writes are held back."""
    (namespace,) = steps.input.namespaces
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps.begin()
    assert not steps.quiesce().busy
    return namespace, topic


def _never(*_: object) -> bool:
    return False


def _set(policies: dict[str, Any]) -> set[str]:
    return {name for name, value in policies.items() if value is not None}
