"""Clients of several releases, whatever the releases of both clusters."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from clients.pulsar.admin.topics import TopicStats
from deploy.devstack.moving.clusters import pieces
from deploy.devstack.moving.plan import TopicPlan, mixed_topics
from deploy.devstack.moving.traffic import MovingTraffic
from deploy.devstack.on_demand import with_release
from deploy.devstack.toolchain import Toolchain
from models.lifecycle.status import Outcome
from tests.support.blue_green.environment import Clusters
from tests.support.lifecycle.environment import Environment

LINES = ("4.0", "5.0")
"""Of the Java clients; next to those of each run Python's."""


def test_clients_of_old_and_new_releases_follow(
    clusters: Clusters, environment: Environment, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Java clients of 4.0 and of 5.0 and Python clients follow; nothing is lost, doubled or out of order."""
    plans = {line: mixed_topics(f"clients/java-{line}", 4, 20) for line in LINES}
    with ExitStack() as opened:
        traffics: list[MovingTraffic] = []
        for line, topics in plans.items():
            clusters.two.prepare(f"clients/java-{line}", topics, on_green=False)
            (folder := tmp_path / line).mkdir()
            traffic = MovingTraffic(clusters.blue.broker_url, topics, folder, with_release(toolchain, line))
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
    assert [account.faults() for account in accounts] == [[], []]
    assert {"Pulsar-Java-v4.0.8", "Pulsar-Java-v5.0.1"} <= versions


def _on_green(clusters: Clusters, topics: list[TopicPlan]) -> list[TopicStats]:
    return [clusters.green_admin.topics.stats(name) for topic in topics for name in pieces(topic)]
