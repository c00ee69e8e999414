"""Consumers that start again after the flip, at either cluster's address."""

from __future__ import annotations

from contextlib import closing

from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, send_to
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.waiting import wait_for

SENT = 5


def test_a_consumer_starts_again_at_either_address(clusters: Clusters) -> None:
    """Blue delivers acknowledged messages again to a consumer that starts at the earliest one; green does not."""
    namespace = "restarted/consumers"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "s")
    send_to(clusters.blue.broker_url, SENT * [str(topic)])
    assert _take(clusters.blue.broker_url, topic) == SENT
    steps = Steps(clusters, namespace)
    steps.move()
    wait_for("blue to delete it", lambda: not clusters.blue_admin.subscriptions.names(topic), 20)
    assert _take(clusters.green.broker_url, topic) == 0
    assert _take(clusters.blue.broker_url, topic) == SENT
    steps.end()


def _take(url: str, topic: TopicName) -> int:
    """Acknowledge what a subscription gets at an address, from the earliest message on; return the count."""
    taken = 0
    with closing(quiet_client(url)) as client:
        consumer = client.subscribe(str(topic), "s", initial_position=pulsar.InitialPosition.Earliest)
        while True:
            try:
                message = consumer.receive(3_000)
            except pulsar.Timeout:
                return taken
            consumer.acknowledge(message)
            taken += 1
