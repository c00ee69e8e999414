"""Old topics on the cluster to which a failback returns, and which of them it may delete."""

from __future__ import annotations

import pytest

from activities.blue_green import cluster
from activities.blue_green.batch import load
from activities.blue_green.checks.green import check_failback
from activities.blue_green.topics import check_topic
from activities.lifecycle.precheck import Findings
from activities.pulsar.stored_topics import stored
from clients.errors import StoreConflict
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.blue_green.environment import Clusters
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
    there = Steps(clusters, namespace)
    there.move()
    there.finish()
    # As after the restart of its brokers, which a failback asks for.
    blue.topics.unload(topic)
    wait_for("the topic out of memory", lambda: check_topic(blue, topic).blocked, 20)

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
    assert clusters.blue_admin.topics.names(namespace) == []


def _blockers(steps: Steps, namespace: str) -> dict[str, str]:
    findings = Findings()
    with steps.task() as task:
        check_failback(task, findings, [namespace])
    return {blocker.code: blocker.cause for blocker in findings.blockers}


def _is_ended(clusters: Clusters, topic: TopicName) -> bool:
    info = stored(clusters.blue_admin, topic)
    return info is not None and info.terminated_position is not None
