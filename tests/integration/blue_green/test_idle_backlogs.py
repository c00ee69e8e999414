"""Subscriptions without consumers whose backlog is copied, in whole migrations on two real clusters, under traffic."""

from __future__ import annotations

import pytest

from activities.blue_green.batch import drain, flip, undo, verify
from activities.blue_green.copy import backlogs
from activities.blue_green.topics import check_topic
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import set_flag
from clients.stores import Access, open_cas_reader
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.store_url import parse_store_url
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, send_to
from pulsar_devstack.traffic.runner import Traffic
from spark.blue_green.copy_record import recorded_copies
from tests.support.blue_green.backlogs import received, require_sent, sent
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.blue_green.namespaces import KEPT
from tests.support.blue_green.steps import Steps
from tests.support.lifecycle.environment import Environment
from tests.support.waiting import wait_for


@pytest.mark.parametrize("green", ["clusters", pytest.param("clusters_to_oxia", marks=pytest.mark.exhaustive)])
def test_backlogs_come_to_green(green: str, request: pytest.FixtureRequest, environment: Environment) -> None:
    """Each subscription continues with all its remaining messages, holes included, and with those sent later."""
    clusters: Clusters = request.getfixturevalue(green)
    tenant = f"copied-{clusters.green.state.spec.metadata}"
    plain, parts = _topics(clusters, tenant)
    topics = [str(plain), *(str(parts.of_partition(number)) for number in range(2))]
    for topic in (plain, parts):
        clusters.blue_admin.subscriptions.create(topic, "idle")
    clusters.blue_admin.subscriptions.create(plain, "holes")
    with Traffic.here(clusters.blue.broker_url, topics) as traffic:
        traffic.wait_for_more(30)
        acknowledged = _acknowledge(clusters.blue.broker_url, plain, "holes", every=3, of=30)
        report = environment.operator.run(_input(clusters, tenant))
        traffic.wait_for_more(20)
        traffic.verify()
    assert report.outcome is Outcome.DONE, report.summary
    assert report.certificate["subscriptions_copied"] == 4
    assert report.certificate["entries_compared"] == report.figures["copied_messages"] > 3 * 30
    for topic in topics:
        expected = sent(traffic, topic)
        backlog = received(clusters.green.broker_url, topic, "idle", least=len(expected))
        require_sent(backlog, expected, traffic)
    expected = [message for number, message in enumerate(sent(traffic, plain)) if number not in acknowledged]
    backlog = received(clusters.green.broker_url, str(plain), "holes", least=len(expected))
    require_sent(backlog, expected, traffic)
    assert _copies(clusters, f"{tenant}/one") == []


@pytest.mark.exhaustive
def test_the_next_run_continues_the_copy(clusters: Clusters, environment: Environment) -> None:
    """A batch that is undone leaves its copy on green; the next migration continues with it, and doubles nothing."""
    plain, parts = _topics(clusters, "again")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    with Traffic.here(clusters.blue.broker_url, [str(plain), str(parts.of_partition(0))]) as traffic:
        traffic.wait_for_more(30)
        # A limit that holds no writes back.
        never_quiet = {"throttle_bytes": 10_000, "quiesce_timeout": "PT3S"}
        waves = {"canary": 0, "gate": "none", "when_held": "stop", "attempts": 1}
        undone = environment.operator.refusal(_input(clusters, "again", **never_quiet, waves=waves))
        assert "topics still took messages" in undone.message
        assert _copies(clusters, "again/one") == [plain]
        refused = environment.operator.refusal(_input(clusters, "again", idle_subscriptions="wait"))
        assert refused.type == FailureKind.PRECHECK_FAILED
        assert f"topic {plain} green has messages" in refused.message
        report = environment.operator.run(_input(clusters, "again"))
        traffic.wait_for_more(10)
        traffic.verify()
    assert report.outcome is Outcome.DONE, report.summary
    expected = sent(traffic, plain)
    backlog = received(clusters.green.broker_url, str(plain), "idle", least=len(expected))
    require_sent(backlog, expected, traffic)


@pytest.mark.exhaustive
def test_a_deleted_copy_is_not_used(clusters: Clusters) -> None:
    """A run placed its cursors and was undone; its copy was deleted: the next run, with `wait`, loses no message."""
    plain, _ = _topics(clusters, "gone")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    first = Steps(clusters, "gone/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    first.begin()
    assert not first.quiesce().busy
    carried = first.batch(backlogs.final_copy)
    assert (carried.proof.subscriptions, carried.proof.unacknowledged, carried.in_time) == (1, 3, True)
    assert first.batch(undo.undo).undone
    first.end()
    clusters.green_admin.topics.delete(plain, force=True)
    second = Steps(clusters, "gone/one", run_id="run-2", drain_timeout="PT5S")
    second.begin()
    assert not second.quiesce().busy
    second.batch(flip.flip)
    drained = second.batch(drain.drain)
    assert [topic.reason for topic in drained.remaining] == ["subscription idle has 3 messages left, and no consumer"]
    second.end()
    assert len(received(clusters.blue.broker_url, str(plain), "idle", least=3)) == 3


def test_a_batch_is_not_rolled_back_once_backlogs_are_skipped(clusters: Clusters) -> None:
    """An operator ends the workflow of a batch during DRAIN: the subscription continues on green, with its copies."""
    plain, _ = _topics(clusters, "skipped")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    first = Steps(clusters, "skipped/one", idle_subscriptions="copy", quiesce_timeout="PT1M", unterminate=True)
    first.begin()
    assert not first.quiesce().busy
    first.batch(backlogs.final_copy)
    first.batch(flip.flip)
    assert first.batch(drain.drain).remaining == ()
    undone = first.whole(lambda task: undo.undo_terminated_batch(task, ["skipped/one"]))
    assert (undone.undone, undone.restored) == (False, 0)
    assert "backlogs that were copied to green are skipped on blue" in undone.why
    first.end()
    second = Steps(clusters, "skipped/one", run_id="run-2", idle_subscriptions="copy", quiesce_timeout="PT1M")
    second.move()
    second.end()
    assert len(received(clusters.green.broker_url, str(plain), "idle", least=3)) == 3


@pytest.mark.parametrize("copied", [False, True])
def test_a_deleted_topic_does_not_end_the_copy_of_others(clusters: Clusters, *, copied: bool) -> None:
    """A client deletes a topic with an idle subscription after LOAD, or during the copy: the others are flipped."""
    tenant = f"left-{'copied' if copied else 'loaded'}"
    plain, parts = _topics(clusters, tenant)
    for topic in (plain, parts):
        clusters.blue_admin.subscriptions.create(topic, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain), str(parts.of_partition(0))])
    steps = Steps(clusters, f"{tenant}/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    if copied:
        steps.batch(backlogs.final_copy)
    clusters.blue_admin.topics.delete(plain, force=True)
    copy = steps.batch(backlogs.final_copy)
    assert (copy.proof.subscriptions, copy.proof.unacknowledged, copy.in_time) == (1, 3, True)
    steps.batch(flip.flip)
    assert steps.batch(drain.drain).remaining == ()
    steps.end()


def test_the_next_run_relies_upon_the_copies_of_a_flip(clusters: Clusters) -> None:
    """A migration ends before a namespace is drained, whose policies it did not change: the next run skips on blue."""
    plain, _ = _topics(clusters, "completed")
    policy = {**KEPT, "deleteWhileInactive": False}
    clusters.blue_admin.namespaces.set_policy("completed/one", ("inactive_topic_policies",), policy)
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    first = Steps(clusters, "completed/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    first.begin()
    assert not first.quiesce().busy
    first.batch(backlogs.final_copy)
    first.batch(flip.flip)
    first.end()
    second = Steps(clusters, "completed/one", run_id="run-2", idle_subscriptions="copy", drain_timeout="PT5S")
    second.move()
    second.end()
    assert len(received(clusters.green.broker_url, str(plain), "idle", least=3)) == 3


def test_a_topic_that_is_unloaded_after_its_backlog_was_skipped(clusters: Clusters) -> None:
    """Its broker has not deleted the subscription yet, whose stored position is at the end: nothing is missing."""
    plain, _ = _topics(clusters, "unloaded")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    steps = Steps(clusters, "unloaded/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.move()
    clusters.blue_admin.topics.unload(plain)
    wait_for("the topic out of memory", lambda: check_topic(clusters.blue_admin, plain).blocked, 20)
    assert steps.batch(verify.verify).faults == ()
    steps.end()


def test_copies_that_green_dropped_stay_on_blue(clusters: Clusters) -> None:
    """Green's brokers drop copies before DRAIN skips them on blue, as a quota does: a consumer gets them there."""
    plain, _ = _topics(clusters, "dropped")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    steps = Steps(clusters, "dropped/one", idle_subscriptions="copy", quiesce_timeout="PT1M", drain_timeout="PT5S")
    steps.begin()
    assert not steps.quiesce().busy
    assert steps.batch(backlogs.final_copy).proof.unacknowledged == 3
    steps.batch(flip.flip)
    clusters.green_admin.subscriptions.skip_all(plain, "idle")
    (undrained,) = steps.batch(drain.drain).remaining
    assert "subscription idle has 3 entries left that green dropped from its copy" in undrained.reason
    steps.end()
    assert len(received(clusters.blue.broker_url, str(plain), "idle", least=3)) == 3


def test_messages_after_a_copy_are_copied_before_the_flag(clusters: Clusters) -> None:
    """A producer that connects while writes are quiet gets one message through: it is not left on blue."""
    plain, _ = _topics(clusters, "overdue")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    steps = Steps(clusters, "overdue/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    assert steps.batch(backlogs.final_copy).proof.unacknowledged == 3
    client = quiet_client(clusters.blue.broker_url)
    client.create_producer(str(plain)).send(b"late")
    flipped = steps.batch(flip.flip)
    assert flipped.final_copy
    assert (flipped.final_copy.copied.entries, flipped.final_copy.proof.unacknowledged) == (1, 4)
    assert steps.batch(drain.drain).remaining == ()
    # Not before: the broker does not read its connection while writes are held back.
    client.close()
    steps.end()
    assert len(received(clusters.green.broker_url, str(plain), "idle", least=4)) == 4


def test_an_exclusive_producer_comes_to_a_topic_with_copies(clusters: Clusters) -> None:
    """It comes with the epoch that blue gave it, which green must not take for that of a producer before the copy."""
    plain, _ = _topics(clusters, "fenced")
    clusters.blue_admin.subscriptions.create(plain, "idle")
    client = quiet_client(clusters.blue.broker_url)
    producer = client.create_producer(str(plain), access_mode=pulsar.ProducerAccessMode.Exclusive)
    for _ in range(3):
        producer.send(b"before")
    steps = Steps(clusters, "fenced/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    assert steps.batch(backlogs.final_copy).proof.unacknowledged == 3
    steps.batch(flip.flip)
    assert steps.batch(drain.drain).remaining == ()
    producer.send(b"after")
    client.close()
    steps.end()
    assert len(received(clusters.green.broker_url, str(plain), "idle", least=4)) == 4


@pytest.mark.exhaustive
def test_what_was_terminated_is_not_copied_again(clusters: Clusters) -> None:
    """A run was lost while it had a flag off to load topics again: the next one relies on its copies.

    Clients are on green already, so that no other attempt could place their cursors there.
    """
    plain, _ = _topics(clusters, "ended")
    for name in ("idle", "other"):
        clusters.blue_admin.subscriptions.create(plain, name)
    send_to(clusters.blue.broker_url, 3 * [str(plain)])
    first = Steps(clusters, "ended/one", idle_subscriptions="copy", quiesce_timeout="PT1M")
    first.begin()
    assert not first.quiesce().busy
    first.batch(backlogs.final_copy)
    first.batch(flip.flip)
    with first.task() as task, task.blue.store() as store:
        set_flag(store, "ended/one", lambda: None, migrated=False)
    client = quiet_client(clusters.green.broker_url)
    client.subscribe(str(plain), "other")
    second = Steps(
        clusters, "ended/one", run_id="run-2", idle_subscriptions="copy", quiesce_timeout="PT1M", drain_timeout="PT10S"
    )
    second.begin()
    assert not second.quiesce().busy
    second.batch(flip.flip)
    undone = second.batch(undo.undo)
    assert (undone.undone, "an earlier run redirected its clients" in undone.why) == (False, True)
    assert second.batch(drain.drain).remaining == ()
    client.close()
    second.end()
    assert len(received(clusters.green.broker_url, str(plain), "idle", least=3)) == 3


def _input(clusters: Clusters, tenant: str, **more: object) -> BlueGreenInput:
    fields: dict[str, object] = {
        "namespaces": [f"{tenant}/*"],
        "waves": {"gate": "none"},
        "grace_window": "PT0S",
        "idle_subscriptions": "copy",
        "quiesce_timeout": "PT2M",
        "complete_cluster": False,
    }
    return clusters.input(**{**fields, **more})


def _topics(clusters: Clusters, tenant: str) -> tuple[TopicName, TopicName]:
    """Return a namespace on blue with a plain topic and one of two partitions."""
    admin = clusters.blue_admin
    admin.tenants.create(tenant, Tenant(allowed_clusters=(BLUE,)))
    admin.namespaces.create(f"{tenant}/one", {"replication_clusters": [BLUE], "bundles": {"numBundles": 4}})
    plain, parts = (TopicName(tenant, "one", name) for name in ("plain", "parts"))
    admin.topics.create(plain)
    admin.topics.create_partitioned(parts, 2)
    return plain, parts


def _acknowledge(url: str, topic: TopicName, subscription: str, *, every: int, of: int) -> set[int]:
    """Acknowledge each third message, for example, of the first ones; returns which."""
    client = quiet_client(url)
    consumer = client.subscribe(str(topic), subscription, consumer_type=pulsar.ConsumerType.Shared)
    chosen = set(range(0, of, every))
    for number in range(of):
        message = consumer.receive(30_000)
        if number in chosen:
            consumer.acknowledge(message)
    client.close()
    return chosen


def _copies(clusters: Clusters, namespace: str) -> list[TopicName]:
    with open_cas_reader(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        return recorded_copies(store, namespace)
