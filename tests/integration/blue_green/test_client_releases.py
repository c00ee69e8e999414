"""Clients of several releases, whatever the releases of both clusters."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from activities.blue_green.checks.client_versions import is_untested
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.lifecycle.status import Outcome
from models.releases import LINES, TESTED, Behaviour, parse_release
from pulsar_devstack.servers.provision import with_release
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import (
    MOVABLE,
    ConsumerPlan,
    Language,
    ProducerPlan,
    Subscribed,
    TopicPlan,
    mixed_topics,
)
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import pieces
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.namespaces import create_namespace
from tests.support.lifecycle.environment import Environment
from tests.support.releases import sampled_from_older_blue
from tests.support.waiting import wait_for


@sampled_from_older_blue
def test_clients_of_old_and_new_releases_follow(
    clusters: Clusters, environment: Environment, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Java clients of all lines and Python clients follow; nothing is lost, doubled or out of order."""
    plans = {line: mixed_topics(f"clients/java-{line}", 4, 20) for line in LINES}
    with ExitStack() as opened:
        traffics: list[Traffic] = []
        for line, topics in plans.items():
            clusters.two.prepare(f"clients/java-{line}", topics, on_green=False)
            (folder := tmp_path / line).mkdir()
            traffic = Traffic.in_programs(clusters.blue.broker_url, topics, folder, with_release(toolchain, line))
            traffics.append(opened.enter_context(traffic))
        for traffic in traffics:
            traffic.wait_for_more(20)
        report = environment.operator.run(
            clusters.input(
                namespaces=["clients/*"],
                waves={"gate": "none", "canary": 0, "batch_size": 2},
                grace_window="PT0S",
                complete_cluster=False,
            )
        )
        for traffic in traffics:
            traffic.wait_for_more(20)
        versions = {
            client.client_version
            for topics in plans.values()
            for stats in _on_green(clusters, topics)
            for client in stats.publishers
        }
        accounts = [traffic.stop() for traffic in traffics]
    assert report.outcome is Outcome.DONE, report.summary
    assert (report.certificate["missing_clients"], report.certificate["faults"]) == (0, 0)
    assert [audit.faults() for audit in accounts] == [[]] * len(LINES)
    assert {f"Pulsar-Java-v{release}" for release in TESTED} <= versions
    assert not any(map(is_untested, filter(None, versions)))


def test_clients_of_topics_that_are_not_stored_follow(
    clusters: Clusters, environment: Environment, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Producers and consumers of non-persistent topics are on green after the flip, and messages flow there."""
    if not parse_release(clusters.blue_admin.brokers.version()).has(Behaviour.REDIRECTS_ALL_CONSUMERS):
        pytest.skip("brokers of this release do not send consumers of non-persistent topics on (#26075)")
    plans = [_passing(language) for language in MOVABLE]
    create_namespace(clusters.blue_admin, "passing/one")
    with Traffic.in_programs(clusters.blue.broker_url, plans, tmp_path, toolchain) as traffic:
        traffic.wait_for_more(20)
        report = environment.operator.run(
            clusters.input(
                namespaces=["passing/*"], waves={"gate": "none"}, grace_window="PT0S", complete_cluster=False
            )
        )
        topics = [TopicName.parse(plan.topic) for plan in plans]
        wait_for("the clients on green", lambda: all(_is_served(clusters.green_admin, topic) for topic in topics), 60)
        traffic.wait_for_more(20)
        received = _received(traffic)
        wait_for("messages", lambda: _received(traffic) > received + 20, 30)
    assert report.outcome is Outcome.DONE, report.summary


def _passing(language: Language) -> TopicPlan:
    topic = f"non-persistent://passing/one/{language.value}"
    producer = ProducerPlan(f"passing-{language.value}", topic, language)
    return TopicPlan(topic, 0, (producer,), (ConsumerPlan(f"{topic}-c", topic, language, Subscribed.SHARED),))


def _is_served(admin: PulsarAdmin, topic: TopicName) -> bool:
    try:
        stats = admin.topics.stats(topic)
    except AdminNotFound:
        return False
    return bool(stats.publishers) and any(subscription.consumers for subscription in stats.subscriptions.values())


def _received(traffic: Traffic) -> int:
    return sum(subscription.received for subscription in traffic.audit().subscriptions)


def _on_green(clusters: Clusters, topics: list[TopicPlan]) -> list[TopicStats]:
    return [clusters.green_admin.topics.stats(name) for topic in topics for name in pieces(topic)]
