"""The limit that holds writes back, on brokers that read connections late after it was removed (#25502)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest

from activities.blue_green.batch import undo
from clients.pulsar.names import TopicName
from models.defects import has_defect
from models.releases import parse_release
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.waiting import wait_for

_LARGE, _COUNT, _SMALL, _PAUSE_SECONDS = 500_000, 20, 100, 0.1


@pytest.mark.exhaustive
def test_a_topic_that_had_large_messages_becomes_quiet(clusters: Clusters) -> None:
    """The limit is chosen by the sizes of messages that are sent now, not by earlier ones."""
    release = parse_release(clusters.blue_admin.brokers.version())
    if not has_defect(release, "LIMIT_LIFTED_LATE"):
        pytest.skip(f"Pulsar {release} has one limit for all; set PULSAR_MIGRATE_BLUE=4.0")
    (topic,) = make_namespace(clusters, "sizes/history", "topic")
    clusters.blue_admin.subscriptions.create(topic, "s")
    end = threading.Event()
    with closing(quiet_client(clusters.blue.broker_url)) as client, ThreadPoolExecutor(1) as pool:
        large = client.create_producer(str(topic))
        for _ in range(_COUNT):
            large.send(b"x" * _LARGE)
        large.close()
        try:
            pool.submit(_send_until, end, client, topic)
            # Brokers count them once a minute.
            wait_for("the rate of the producer", lambda: _rate(clusters, topic) > 1, 130)
            steps = Steps(clusters, "sizes/history")
            steps.begin()
            quiet = steps.quiesce()
        finally:
            end.set()
        limit = clusters.blue_admin.namespaces.publish_rate("sizes/history")
        assert steps.batch(undo.undo).undone
        steps.end()
    assert quiet.busy == ()
    assert limit is not None
    assert limit.publish_throttling_rate_in_byte < _SMALL


def _send_until(end: threading.Event, client: Any, topic: TopicName) -> None:
    producer = client.create_producer(str(topic), send_timeout_millis=5_000)
    with suppress(pulsar.PulsarException):
        while not end.wait(_PAUSE_SECONDS):
            producer.send(b"x" * _SMALL)


def _rate(clusters: Clusters, topic: TopicName) -> float:
    return sum(client.msg_rate_in for client in clusters.blue_admin.topics.stats(topic).publishers)
