"""Deletions of the cleanup on blue, and topics that it must not delete."""

from __future__ import annotations

import pytest

from activities.blue_green import cluster, grace
from activities.blue_green.batch import verify
from clients.cas.claims import read_claim
from clients.errors import StoreUnreachable
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from models.blue_green.claims import BlueGreenClaim
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.namespaces import wait_until_listed
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.clients.dynamic_settings import dynamic_values
from tests.support.waiting import wait_for, wait_until_equal


def test_refused_topics_do_not_block_others(clusters: Clusters) -> None:
    """If more topics are refused than one step deletes, the topics after them are still deleted."""
    namespace = "cleaned/stay"
    topics = make_namespace(clusters, namespace, *"abcde")
    steps = _moved(clusters, namespace, cleanup_limit=2)
    for topic in topics[:3]:
        clusters.green_admin.topics.delete(topic)
    step = steps.whole(grace.clean_up)
    assert (step.deleted, step.remaining) == (2, 0)
    assert [(item.path, item.reason) for item in step.refused] == [
        (str(topic), "green has no such topic") for topic in topics[:3]
    ]
    wait_until_listed(clusters.blue_admin, namespace, map(str, topics[:3]))
    assert clusters.blue_admin.namespaces.inactive_topics(namespace) is not None
    steps.end()


@pytest.mark.exhaustive
def test_a_partitioned_topic_that_is_new_on_blue_stays(clusters: Clusters) -> None:
    """A topic that was created on blue after the flip, and that green does not have, is not deleted."""
    namespace = "cleaned/new"
    make_namespace(clusters, namespace)
    moved, new = (TopicName.parse(f"{namespace}/{name}") for name in ("moved", "new"))
    clusters.blue_admin.topics.create_partitioned(moved, 2)
    steps = _moved(clusters, namespace)
    assert steps.whole(grace.census).more_partitions == ()
    clusters.green_admin.topics.grow(moved, 3)
    assert steps.whole(grace.census).more_partitions == (f"{moved} has 3 partitions on green, and 2 on blue",)
    clusters.blue_admin.topics.grow(moved, 4)
    assert steps.whole(grace.census).fewer_partitions == (f"{moved} has 3 partitions on green, and 4 on blue",)
    clusters.blue_admin.topics.create_partitioned(new, 1)
    step = steps.whole(grace.clean_up)
    grown = [*map(moved.of_partition, (2, 3)), new.of_partition(0)]
    assert [item.path for item in step.refused] == [*map(str, grown)]
    for topic in grown:
        clusters.blue_admin.topics.delete(topic)
    step = steps.whole(grace.clean_up)
    assert [item.path for item in step.refused] == [str(new)]
    wait_until_equal("the topics", lambda: clusters.blue_admin.topics.partitioned_names(namespace), [str(new)], 30)
    steps.end()


@pytest.mark.parametrize("opted_in", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_messages_that_retention_keeps(clusters: Clusters, *, opted_in: bool) -> None:
    """Green has none of them, so their topic stays, unless the operator gives them up."""
    namespace = f"cleaned/{'given-up' if opted_in else 'retained'}"
    topics = make_namespace(clusters, namespace, "empty", "kept")
    parts = TopicName.parse(f"{namespace}/parts")
    clusters.blue_admin.topics.create_partitioned(parts, 2)
    clusters.blue_admin.namespaces.set_retention(
        namespace, Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)
    )
    full = [str(topics[1]), str(parts.of_partition(1))]
    send_to(clusters.blue.broker_url, 3 * full)
    steps = _moved(clusters, namespace)
    steps.input = steps.input.model_copy(update={"cleanup_retained": opted_in})
    step = steps.whole(grace.clean_up)
    refused = [] if opted_in else full
    assert (step.deleted, [item.path for item in step.refused]) == (4 - len(refused), refused)
    wait_until_listed(clusters.blue_admin, namespace, refused)
    assert all("retention keeps 3 entries" in item.reason for item in step.refused)
    steps.end()


def test_a_compacted_table(clusters: Clusters) -> None:
    """Readers use it as the state of a topic, and green has none, so the topic stays, unless the operator gives it up.

    No retention keeps messages of the topic. Some came after the compaction: brokers of blue delete a table that is up
    to date when they have terminated its topic.
    """
    namespace = "cleaned/table"
    plain, table = make_namespace(clusters, namespace, "plain", "table")
    topics = clusters.blue_admin.topics
    send_to(clusters.blue.broker_url, 3 * [str(plain), str(table)])
    topics.compact(table)
    wait_for("the compaction", lambda: topics.compaction(table).status == "SUCCESS", 30)
    send_to(clusters.blue.broker_url, 2 * [str(table)])
    steps = _moved(clusters, namespace)
    # As after the restart of its broker.
    topics.unload(table)
    step = steps.whole(grace.clean_up)
    assert (step.deleted, [item.path for item in step.refused]) == (1, [str(table)])
    assert "green lacks the table of its compaction" in step.refused[0].reason
    steps.input = steps.input.model_copy(update={"cleanup_retained": True})
    assert steps.whole(grace.clean_up).deleted == 1
    steps.end()


@pytest.mark.exhaustive
def test_messages_that_nothing_keeps(clusters: Clusters) -> None:
    """A topic whose messages are acknowledged, and kept by no retention, is deleted, also one of partitions."""
    namespace = "cleaned/read"
    topics = make_namespace(clusters, namespace, "plain")
    parts = TopicName.parse(f"{namespace}/parts")
    clusters.blue_admin.topics.create_partitioned(parts, 2)
    send_to(clusters.blue.broker_url, 3 * [str(topic) for topic in (*topics, *map(parts.of_partition, range(2)))])
    steps = _moved(clusters, namespace)
    step = steps.whole(grace.clean_up)
    assert (step.deleted, step.refused) == (3, ())
    wait_until_equal("the topics", lambda: clusters.blue_admin.topics.partitioned_names(namespace), [], 30)
    steps.end()


def test_a_namespace_with_faults_stays(clusters: Clusters) -> None:
    """A namespace that VERIFY found wrong is not deleted on blue."""
    namespace = "cleaned/faulty"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "gone")
    steps = _moved(clusters, namespace)
    clusters.green_admin.subscriptions.delete(topic, "gone")
    assert steps.batch(verify.verify).faults
    assert steps.whole(grace.clean_up).deleted == 0
    assert clusters.blue_admin.topics.names(namespace) == [str(topic)]
    steps.end()


def test_a_namespace_that_was_deleted(clusters: Clusters) -> None:
    """Neither the watch nor the cleanup stops at a namespace that was deleted in the window."""
    namespace = "cleaned/deleted"
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = _moved(clusters, namespace)
    clusters.blue_admin.topics.delete(topic)
    wait_for("the end of the namespace", lambda: _delete_empty(clusters.blue_admin, namespace), 30)
    assert steps.whole(grace.census).topics == 0
    step = steps.whole(grace.clean_up)
    assert (step.deleted, step.remaining, step.refused) == (0, 0, ())
    steps.finish()


@pytest.mark.exhaustive
def test_green_is_free_when_blue_is_off(clusters: Clusters) -> None:
    """A migration that ends after blue was turned off gives green up all the same."""
    namespace = "cleaned/off"
    make_namespace(clusters, namespace)
    steps = _moved(clusters, namespace)
    both = steps.input
    blue = both.blue.model_copy(update={"metadata_url": "zk:127.0.0.1:1"})
    steps.input = both.model_copy(update={"blue": blue})
    with pytest.raises(StoreUnreachable):
        steps.whole(cluster.finish)
    steps.input = both
    with steps.task() as task, task.green.store() as green:
        assert read_claim(green, BlueGreenClaim) is None
    steps.end()


@pytest.mark.exhaustive
def test_blue_is_as_before_when_green_is_away(clusters: Clusters) -> None:
    """The rollback does not wait for green's store: blue's settings, limits and claim are restored and released."""
    namespace = "cleaned/away"
    make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace)
    steps.begin()
    assert not steps.quiesce().busy
    green = steps.input.green.model_copy(update={"metadata_url": "zk:127.0.0.1:1"})
    steps.input = steps.input.model_copy(update={"green": green})
    released = steps.whole(cluster.release)
    assert released.restored > 0
    assert "the claim on green was not released" in released.not_released
    assert dynamic_values(clusters.blue_admin) == {}
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None
    assert clusters.blue_admin.namespaces.inactive_topics(namespace) is None
    with steps.task() as task, task.blue.store() as blue:
        assert read_claim(blue, BlueGreenClaim) is None
    # The next run takes green again.
    later = Steps(clusters, namespace, run_id="run-2")
    later.begin()
    later.end()


def _delete_empty(admin: PulsarAdmin, namespace: str) -> bool:
    try:
        admin.namespaces.delete(namespace)
    except AdminConflict:
        # Another broker deleted the topic, and this one still has the old list of topics.
        return False
    return True


def _moved(clusters: Clusters, namespace: str, *, cleanup_limit: int = 1_000) -> Steps:
    """Return a namespace whose topics are ended, as it is in the grace window."""
    steps = Steps(clusters, namespace, cleanup="remove", cleanup_limit=cleanup_limit)
    steps.move()
    assert steps.batch(verify.verify).faults == ()
    return steps
