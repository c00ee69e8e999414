"""A third cluster that replicates to blue and from it, during a migration and after blue is switched off."""

from __future__ import annotations

from contextlib import closing

import pytest

from activities.blue_green.batch import drain, flip
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.blue_green.environment import (
    BLUE,
    BLUE_SPEC,
    GREEN_SPEC,
    KEPT_TOPICS,
    Clusters,
    open_clusters,
    restart_brokers,
)
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

WEST, NAMESPACE = "west", "trip/one"
WEST_SPEC = StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=WEST, broker_settings=KEPT_TOPICS)


@pytest.mark.exhaustive
def test_the_address_of_blue_on_a_third_cluster(make_stack: MakeStack) -> None:
    """It replicates through blue until that is off; with green's address it continues after a restart, not before."""
    specs = BLUE_SPEC.model_copy(update={"brokers": 1}), GREEN_SPEC, WEST_SPEC
    blue, green, west = map(make_stack, specs)
    with (
        open_clusters(blue, green) as clusters,
        PulsarAdmin.open(AdminAccess(timeout=30), west.admin_urls) as third,
    ):
        topic = _replicated(clusters, third, west)

        def arrived_on_green(count: int) -> bool:
            return clusters.green_admin.topics.internal_stats(topic).number_of_entries == count

        _moved(clusters, topic)
        send_to(west.broker_url, [str(topic)])
        send_to(green.broker_url, [str(topic)])
        wait_for("the message through blue", lambda: arrived_on_green(2), 60)
        _wait_for_entries(third, topic, 3)
        for server in blue:
            if server.kind == "broker":
                server.stop()
        send_to(west.broker_url, [str(topic)])
        wait_for("a backlog", lambda: third.topics.stats(topic).replication[BLUE].replication_backlog, 30)
        third.clusters.update(BLUE, clusters.green_urls)
        third.topics.unload(topic)
        with pytest.raises(AssertionError):
            wait_for("a connection", lambda: third.topics.stats(topic).replication[BLUE].connected, 4)
        assert arrived_on_green(2)
        restart_brokers(west)
        # A topic that is not loaded does not replicate.
        third.topics.stats(topic)
        wait_for("its message", lambda: arrived_on_green(3), 60)


def _replicated(clusters: Clusters, third: PulsarAdmin, west: Stack) -> TopicName:
    """Return a topic that blue and the third cluster replicate to each other, and that has one message."""
    blue = clusters.blue_admin
    for admin in (blue, clusters.green_admin):
        admin.clusters.create(WEST, _urls(west))
    third.clusters.create(BLUE, _urls(clusters.blue))
    (topic,) = make_namespace(clusters, NAMESPACE, "topic")
    tenant = Tenant(allowed_clusters=(BLUE, WEST))
    blue.tenants.update("trip", tenant)
    third.tenants.create("trip", tenant)
    third.namespaces.create(NAMESPACE, {"replication_clusters": [WEST]})
    third.topics.create(topic)
    for admin in (blue, third):
        # Without it the messages are deleted.
        admin.subscriptions.create(topic, "s")
        admin.namespaces.set_policy(NAMESPACE, ("replication_clusters",), [BLUE, WEST])
    send_to(clusters.blue.broker_url, [str(topic)])
    _wait_for_entries(third, topic, 1)
    return topic


def _moved(clusters: Clusters, topic: TopicName) -> None:
    steps = Steps(clusters, NAMESPACE)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        consumer = client.subscribe(str(topic), "s")
        consumer.acknowledge(consumer.receive(timeout_millis=30_000))
        steps.begin()
        assert not steps.quiesce().busy
        steps.batch(flip.flip)
        assert steps.batch(drain.drain).remaining == ()


def _wait_for_entries(admin: PulsarAdmin, topic: TopicName, count: int) -> None:
    wait_for("replication", lambda: admin.topics.internal_stats(topic).number_of_entries == count, 60)


def _urls(stack: Stack) -> ClusterUrls:
    return ClusterUrls(service_url=stack.admin_urls[0], broker_service_url=stack.broker_url)
