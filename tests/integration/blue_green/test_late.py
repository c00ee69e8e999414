"""Topics and subscriptions that are created on blue between LOAD and the termination, on two real clusters."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from activities.blue_green import termination
from activities.blue_green.batch import drain, flip, load, undo, verify
from activities.blue_green.copy import backlogs
from activities.blue_green.provisioning.late_topics import create_late
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import LATEST
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import set_flag
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.blue_green.backlogs import received
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace


@pytest.mark.parametrize(
    "held", [pytest.param(False, marks=pytest.mark.exhaustive), True], ids=["after load", "while writes are held back"]
)
def test_late_topics_and_subscriptions_are_on_green_before_the_flag(clusters: Clusters, *, held: bool) -> None:
    """A new topic, a new subscription and schema of an old one: created on green, and looked for there."""
    namespace = f"newcomer/{'held' if held else 'came'}"
    (old,) = make_namespace(clusters, namespace, "old")
    clusters.blue_admin.subscriptions.create(old, "gone")
    steps = Steps(clusters, namespace)
    steps.begin()
    clusters.blue_admin.subscriptions.delete(old, "gone")
    steps.batch(load.load)
    # A client starts at green's address.
    send_to(clusters.green.broker_url, [str(old)])
    if held:
        assert not steps.quiesce().busy
    clusters.blue_admin.schemas.add(old, "STRING", "")
    new = TopicName.parse(f"{namespace}/new")
    clusters.blue_admin.topics.create(new)
    for topic in (old, new):
        clusters.blue_admin.subscriptions.create(topic, "late")
    if not held:
        assert not steps.quiesce().busy
        assert clusters.green_admin.subscriptions.names(new) == ["late"]
    steps.batch(flip.flip)
    assert steps.batch(drain.drain).remaining == ()
    check = steps.batch(verify.verify)
    assert (check.faults, check.unused, check.unused_count) == ((), (f"gone of {old}",), 1)
    assert clusters.green_admin.subscriptions.names(new) == ["late"]
    assert sorted(clusters.green_admin.subscriptions.names(old)) == ["gone", "late"]
    schema = clusters.green_admin.schemas.latest(old)
    assert schema
    assert schema.type == "STRING"
    assert len(received(clusters.green.broker_url, str(old), "late", least=1)) == 1
    # As if it had come between the flag and the end of the topic.
    clusters.green_admin.subscriptions.delete(old, "late")
    (fault,) = steps.batch(verify.verify).faults
    assert "green lacks the subscriptions late" in fault.reason
    steps.end()


def test_a_policy_that_is_changed_after_load_ends_the_flip(clusters: Clusters) -> None:
    """Green had the policies of LOAD: nothing is flipped, the differences are named, and writes continue."""
    namespace = "newcomer/changed"
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace)
    steps.begin()
    clusters.blue_admin.namespaces.set_policy(namespace, ("message_ttl_in_seconds",), 3600)
    clusters.blue_admin.topics.set_properties(topic, {"owner": "another team"})
    with pytest.raises(StoreConflict, match="message_ttl_in_seconds"):
        steps.quiesce()
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None
    aligned = Steps(clusters, namespace, run_id="run-2", align_differences=True)
    aligned.begin()
    clusters.blue_admin.namespaces.set_policy(namespace, ("message_ttl_in_seconds",), 7200)
    assert not aligned.quiesce().busy
    assert clusters.green_admin.namespaces.policies(namespace).raw["message_ttl_in_seconds"] == 7200
    assert clusters.green_admin.topics.properties(topic)["owner"] == "another team"
    # Writes are held back on blue alone.
    assert clusters.green_admin.namespaces.publish_rate(namespace) is None
    # Another attempt of the step finds what this one set, and takes none of it for a difference.
    assert not aligned.quiesce().busy
    assert clusters.green_admin.namespaces.publish_rate(namespace) is None
    aligned.end()


@pytest.mark.parametrize("subscribed", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_late_topics_and_partitions_take_messages(clusters: Clusters, *, subscribed: bool) -> None:
    """Green has all partitions of a topic that grew, and a new topic, though it lets no client create any."""
    namespace = f"newcomer/{'subscribed' if subscribed else 'bare'}"
    make_namespace(clusters, namespace)
    clusters.blue_admin.namespaces.set_policy(
        namespace, ("autoTopicCreationOverride",), {"allowAutoTopicCreation": False}
    )
    parts, new = (TopicName.parse(f"{namespace}/{name}") for name in ("parts", "new"))
    clusters.blue_admin.topics.create_partitioned(parts, 2)
    if subscribed:
        clusters.blue_admin.subscriptions.create(parts, "reads")
        clusters.blue_admin.subscriptions.skip_all(parts.of_partition(0), "reads")
    steps = Steps(clusters, namespace, drain_timeout="PT60S", idle_subscriptions="skip")
    steps.begin()
    clusters.blue_admin.topics.grow(parts, 4)
    clusters.blue_admin.topics.create(new)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        producers = [
            client.create_producer(str(topic), send_timeout_millis=60_000)
            for topic in (*map(parts.of_partition, range(4)), new)
        ]
        assert not steps.quiesce().busy
        steps.batch(flip.flip)
        for producer in producers:
            producer.send(b"after the flip")
        drained = steps.batch(drain.drain)
    assert (drained.remaining, drained.missing) == ((), ())
    assert steps.batch(verify.verify).faults == ()
    assert clusters.green_admin.topics.partitions(parts) == 4
    steps.end()


def test_subscriptions_between_the_flag_and_the_termination(clusters: Clusters) -> None:
    """A subscription that blue has when its topic is terminated, and green has not, is created on green."""
    namespace = "newcomer/after"
    (topic,) = make_namespace(clusters, namespace, "topic")
    send_to(clusters.blue.broker_url, [str(topic)])
    clusters.blue_admin.subscriptions.create(topic, "late")
    steps = Steps(clusters, namespace)
    steps.begin()
    assert not steps.quiesce().busy
    steps.batch(flip.flip)
    clusters.green_admin.subscriptions.delete(topic, "late")
    steps.batch(lambda task: create_late(task, task.guards, task.store))
    assert clusters.green_admin.subscriptions.names(topic) == ["late"]
    clusters.blue_admin.subscriptions.delete(topic, "late", force=True)
    assert steps.batch(drain.drain).remaining == ()
    assert steps.batch(verify.verify).faults == ()
    steps.end()


def test_subscriptions_that_clients_delete_after_load(clusters: Clusters) -> None:
    """They are not looked for on green, and a rollback does not create them; those that came back are both."""
    namespace = "newcomer/deleted"
    (topic,) = make_namespace(clusters, namespace, "topic")
    for name in ("again", "drained"):
        clusters.blue_admin.subscriptions.create(topic, name)
    steps = Steps(clusters, namespace, unterminate=True)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        consumer = client.subscribe(str(topic), "deleted")
        steps.begin()
        consumer.unsubscribe()
    clusters.blue_admin.subscriptions.delete(topic, "again")
    assert not steps.quiesce().busy
    clusters.blue_admin.subscriptions.create(topic, "again")
    steps.batch(flip.flip)
    drained = steps.batch(drain.drain)
    assert (drained.remaining, drained.missing) == ((), ())
    check = steps.batch(verify.verify)
    assert (check.faults, check.unused) == ((), (f"deleted of {topic}",))
    assert clusters.blue_admin.subscriptions.names(topic) == []
    assert steps.batch(undo.undo).undone
    assert sorted(clusters.blue_admin.subscriptions.names(topic)) == ["again", "drained"]
    steps.end()


def test_a_subscription_after_the_flag_gets_no_copies(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its backlog on blue, where its consumers read it: they do not get it again on green."""
    namespace = "newcomer/after-copies"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(topic)])
    steps = Steps(clusters, namespace, idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    steps.batch(backlogs.final_copy)

    def subscribe_first(*arguments: Any, **options: Any) -> None:
        clusters.blue_admin.subscriptions.create(topic, "new")
        set_flag(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(termination, "set_flag", subscribe_first)
        steps.batch(flip.flip)
    assert len(received(clusters.blue.broker_url, str(topic), "new", least=3, acknowledge=True)) == 3
    assert steps.batch(drain.drain).remaining == ()
    send_to(clusters.green.broker_url, [str(topic)])
    subscriptions = clusters.green_admin.topics.stats(topic).subscriptions
    assert {name: sub.msg_backlog for name, sub in subscriptions.items()} == {"idle": 4, "new": 1}
    steps.end()


@pytest.mark.exhaustive
@pytest.mark.parametrize("lost", [False, True])
def test_a_late_subscription_gets_its_position_in_the_copy(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    """A late subscription has the same backlog as the one that was copied, and gets it on green once.

    The same is true for the one that an attempt created on green before it was lost.
    """
    namespace = f"newcomer/{'lost' if lost else 'copied'}"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(topic)])
    steps = Steps(clusters, namespace, idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    assert steps.batch(backlogs.final_copy).proof.subscriptions == 1
    clusters.blue_admin.subscriptions.create(topic, "late")
    clusters.blue_admin.subscriptions.create(topic, "newest", LATEST)
    if lost:
        with monkeypatch.context() as patched:
            patched.setattr(flip, "repeat_final_copy", _die)
            with pytest.raises(ConnectionError):
                steps.batch(flip.flip)
    flipped = steps.batch(flip.flip)
    assert flipped.final_copy
    assert flipped.final_copy.proof.subscriptions == 3
    assert steps.batch(drain.drain).remaining == ()
    steps.end()
    subscriptions = clusters.green_admin.topics.stats(topic).subscriptions
    backlogs_on_green = {name: sub.msg_backlog for name, sub in subscriptions.items()}
    assert backlogs_on_green == {"idle": 3, "late": 3, "newest": 0}
    for name in ("idle", "late"):
        assert len(received(clusters.green.broker_url, str(topic), name, least=3)) == 3


def _die(*_: object) -> None:
    raise ConnectionError
