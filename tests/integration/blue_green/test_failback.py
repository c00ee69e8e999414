"""Old topics on the cluster to which a failback returns, and which of them it may delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from activities.blue_green import cluster, precheck
from activities.blue_green.batch import load, undo
from activities.blue_green.checks.green import check_failback
from activities.blue_green.copy import backlogs
from activities.blue_green.topics import check_topic
from activities.lifecycle.precheck import Findings
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.pulsar.stored_topics import stored
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.producer import RawProducer
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from spark.blue_green.copy_record import copy_record
from spark.blue_green.spec import PRODUCER
from spark.blue_green.tasks import read_record
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.namespaces import wait_until_listed
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.clients.proxy import Proxy
from tests.support.waiting import wait_for

_KEPT = Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def test_retained_messages_are_deleted_only_on_request(clusters: Clusters) -> None:
    """Messages that exist only on the old cluster survive, even if brokers have their own cursors there.

    Its topics deduplicate, and so have a cursor that no client can consume: that does not block the failback.
    """
    namespace = "failback/retained"
    (topic,) = make_namespace(clusters, namespace, "topic")
    blue = clusters.blue_admin
    blue.namespaces.set_policy(namespace, ("deduplicationEnabled",), True)
    blue.namespaces.set_retention(namespace, _KEPT)
    send_to(clusters.blue.broker_url, 3 * [str(topic)])
    wait_for("the cursor of deduplication", lambda: "pulsar.dedup" in blue.topics.internal_stats(topic).cursors, 20)
    _move_and_unload(clusters, namespace, topic)

    back = Steps(clusters, namespace)
    back.input = clusters.failback_input(namespaces=[namespace])
    blockers = _blockers(back, namespace)
    assert "GREEN_ENDED_TOPICS" not in blockers
    assert "retention keeps 3 entries that green lacks" in blockers["GREEN_RETAINED_MESSAGES"]
    back.whole(cluster.register)
    with pytest.raises(StoreConflict, match=r'must not be deleted.*"discard_retained" is not set'):
        back.batch(load.load)
    assert _is_ended(clusters, topic)

    back.input = clusters.failback_input(namespaces=[namespace], discard_retained=True)
    assert "GREEN_RETAINED_MESSAGES" not in _blockers(back, namespace)
    assert back.batch(load.load).topics == 1
    assert not _is_ended(clusters, topic)
    back.end()


def test_a_rollback_is_not_kept_from_the_redirect_by_its_copies(clusters: Clusters) -> None:
    """Blue redirects clients again, although copies came after the last record; the next run copies again."""
    namespace = "failback/copies"
    topic = _moved_with_backlog(clusters, namespace)
    back = _copied_back(clusters, namespace)
    # As if the last copies had come after the last record, and the worker had been lost since.
    with back.task() as task, task.blue.store() as store:
        path = copy_record(str(topic))
        record, version = read_record(store, topic) or pytest.fail("no record")
        assert len(record.positions) == 3
        store.set(path, record.model_copy(update={"runs": ()}).encode(), version)
    # Each producer gets one message through while writes are held back. It is not copied by a rollback.
    client = quiet_client(clusters.green.broker_url)
    client.create_producer(str(topic)).send(b"late")
    with _our_producer(clusters, topic):
        undone = back.batch(undo.undo)
    client.close()
    assert (undone.undone, undone.notes) == (True, ())
    assert _redirects(clusters, namespace)
    assert clusters.blue_admin.topics.internal_stats(topic).number_of_entries == 3
    wait_for("the end of the topic", lambda: _is_ended(clusters, topic), 20)
    # As after the restart of its brokers, which a failback asks for.
    clusters.blue_admin.topics.unload(topic)
    back.end()

    again = _back(clusters, namespace, run_id="run-2")
    assert "GREEN_ENDED_TOPICS" not in _blockers(again, namespace)
    again.whole(cluster.register)
    again.batch(load.load)
    assert not _is_ended(clusters, topic)
    assert not again.quiesce().busy
    assert again.batch(backlogs.final_copy).proof.unacknowledged == 4
    assert again.batch(undo.undo).undone
    again.end()


def test_messages_of_clients_are_not_taken_for_copies(clusters: Clusters) -> None:
    """A client that found blue without its flag sent a message, and left: both serve, and nothing is deleted."""
    namespace = "failback/sent"
    topic = _moved_with_backlog(clusters, namespace)
    back = _copied_back(clusters, namespace)
    send_to(clusters.blue.broker_url, [str(topic)])
    undone = back.batch(undo.undo)
    assert undone.undone
    assert undone.notes[0].startswith(f"{namespace}: both blue and green serve its clients now: 1 topics")
    assert not _redirects(clusters, namespace)
    # An operator has blue redirect its clients again.
    clusters.blue_admin.namespaces.set_migrated(namespace, migrated=True)
    wait_for("the end of the topic", lambda: _is_ended(clusters, topic), 20)
    back.end()
    again = _back(clusters, namespace, run_id="run-2")
    assert "subscription idle" in _blockers(again, namespace)["GREEN_ENDED_TOPICS"]
    again.whole(cluster.register)
    with pytest.raises(StoreConflict, match="must not be deleted"):
        again.batch(load.load)
    again.end()


def test_topics_that_clients_end_after_their_return(clusters: Clusters) -> None:
    """A later start lets them be: clients read what is in them. Before the flip they are refused."""
    namespace = "failback/ended"
    (topic,) = make_namespace(clusters, namespace, "topic")
    _move_and_unload(clusters, namespace, topic)
    back = _back(clusters, namespace)
    back.move()
    try:
        clusters.blue_admin.topics.terminate(topic)
        assert "a client has terminated it" in _blockers(back, namespace)["GREEN_RETAINED_MESSAGES"]

        result = back.whole(precheck.precheck)
        assert any(f"{namespace} are redirected to blue already" in warning for warning in result.warnings)
        assert {"GREEN_ENDED_TOPICS", "GREEN_RETAINED_MESSAGES"}.isdisjoint(blocker.code for blocker in result.blockers)
        back.end()
    finally:
        # Otherwise other migrations ask for a restart of green's brokers.
        clusters.green_admin.namespaces.set_migrated(namespace, migrated=False)


@pytest.mark.parametrize("ends", [False, True])
def test_deletions_of_a_lost_attempt_are_waited_for(
    ends: bool, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion of LOAD that arrives late finds the old topic or none, and not the one that is created again."""
    namespace = f"failback/late-{ends}".lower()
    topic = _moved_with_backlog(clusters, namespace)
    back = _back(clusters, namespace)
    back.whole(cluster.register)
    waited: list[bool] = []

    def freeze(_self: object, *, fence: Callable[[], object], **_: object) -> None:
        fence()
        raise StoreUnreachable("the worker froze")

    with monkeypatch.context() as patched:
        patched.setattr(PulsarCluster, "change_or_never", freeze)
        with pytest.raises(StoreUnreachable, match="froze"):
            back.batch(load.load)

    def wait(_self: object) -> None:
        waited.append(_is_ended(clusters, topic))
        # The request of the lost attempt.
        clusters.blue_admin.topics.delete(topic)

    monkeypatch.setattr(PulsarCluster, "await_late_requests", wait)
    if ends:
        assert back.batch(undo.undo).undone
    else:
        back.batch(load.load)
        assert clusters.blue_admin.topics.internal_stats(topic).number_of_entries == 0
    back.end()
    assert waited == [True]


def test_deletions_are_sent_to_the_owning_brokers(clusters: Clusters) -> None:
    """A proxy in front of the admin interface, which could keep a request for long, never gets one that removes."""
    namespace = "failback/proxied"
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace)
    with Proxy(clusters.blue.admin_urls[0].removeprefix("http://")) as proxy:
        blue = steps.input.blue.model_copy(update={"admin_urls": (f"http://{proxy.address}",)})
        steps.input = steps.input.model_copy(update={"blue": blue})
        with steps.task() as task:
            assert check_topic(task.blue.admin, topic).stats
            proxy.cut()
            task.blue.change_or_never(
                connect=lambda admin: admin.topics.internal_info(topic),
                fence=lambda: None,
                change=lambda admin: admin.topics.delete(topic),
            )
    wait_until_listed(clusters.blue_admin, namespace, [])


def _move_and_unload(clusters: Clusters, namespace: str, topic: TopicName) -> None:
    """Move a namespace to green, and have its topic as after the restart of brokers that a failback asks for."""
    there = Steps(clusters, namespace)
    there.move()
    there.finish()
    clusters.blue_admin.topics.unload(topic)
    wait_for("the topic out of memory", lambda: check_topic(clusters.blue_admin, topic).blocked, 20)


def _moved_with_backlog(clusters: Clusters, namespace: str) -> TopicName:
    """Move a namespace to green, and send three messages there that an idle subscription needs."""
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "idle")
    there = Steps(clusters, namespace)
    there.move()
    there.finish()
    send_to(clusters.green.broker_url, 3 * [str(topic)])
    return topic


def _back(clusters: Clusters, namespace: str, run_id: str = "run-1") -> Steps:
    back = Steps(clusters, namespace, run_id=run_id)
    back.input = clusters.failback_input(
        namespaces=[namespace], idle_subscriptions="copy", quiesce_timeout="PT1M", complete_cluster=False
    )
    return back


def _copied_back(clusters: Clusters, namespace: str) -> Steps:
    """Return a failback right before its flip, with copies on blue, and blue without its flag."""
    back = _back(clusters, namespace)
    back.whole(cluster.register)
    back.batch(load.load)
    assert not back.quiesce().busy
    assert back.batch(backlogs.final_copy).proof.unacknowledged == 3
    assert not _redirects(clusters, namespace)
    return back


def _our_producer(clusters: Clusters, topic: TopicName) -> RawProducer:
    """Return a producer of copies of an attempt that froze."""
    return RawProducer(
        clusters.blue.broker_url,
        topic,
        WireAccess(),
        name=PRODUCER,
        notes={NOTE: "blue-green/green"},
        on_stored=lambda _: None,
    )


def _redirects(clusters: Clusters, namespace: str) -> bool:
    return clusters.blue_admin.namespaces.policies(namespace).migrated


def _blockers(steps: Steps, namespace: str) -> dict[str, str]:
    findings = Findings()
    with steps.task() as task:
        check_failback(task, findings, [namespace])
    return {blocker.code: blocker.cause for blocker in findings.blockers}


def _is_ended(clusters: Clusters, topic: TopicName) -> bool:
    info = stored(clusters.blue_admin, topic)
    return info is not None and info.terminated_position is not None
