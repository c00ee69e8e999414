"""A whole cluster: to green, back to blue, and to green again, with clients that all began at blue's address."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from activities.blue_green.namespace_redirect import records
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.records.namespace_flag import read_flag
from clients.stores import Access, open_cas_reader
from models.lifecycle.status import Outcome
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import mixed_topics
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.environment import (
    BLUE,
    BLUE_SPEC,
    GREEN,
    GREEN_SPEC,
    Clusters,
    open_clusters,
    restart_brokers,
)
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import MakeStack

_NAMESPACES = ("whole/one", "whole/two")
_LIMIT = 300.0
_FIELDS: dict[str, object] = {"waves": {"gate": "none", "canary": 0, "batch_size": 2}, "grace_window": "PT0S"}


@pytest.fixture
def own_clusters(make_stack: MakeStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """Blue and green for one test alone: whole clusters are moved. Clients must look for their brokers on green."""
    green = GREEN_SPEC.model_copy(update={"brokers": 2})
    with open_clusters(make_stack(BLUE_SPEC, tools=blue_tools), make_stack(green)) as both:
        yield both


@pytest.mark.exhaustive
def test_migration_failback_and_second_migration(
    own_clusters: Clusters, environment: Environment, toolchain: Toolchain, tmp_path: Path
) -> None:
    """No message is lost, doubled or out of order; flags and kept topics are only on the cluster that clients left.

    Each cluster has two brokers, so that clients must look their topics up where they are sent.

    The last run is lost in its window, when the flag of the whole cluster is set; a new start brings it to its end.
    """
    clusters = own_clusters
    plans = {name: mixed_topics(name, count=3, rate=10) for name in _NAMESPACES}
    for name, topics in plans.items():
        clusters.two.prepare(name, topics, on_green=False)
    sides = [(clusters.blue, clusters.blue_admin, BLUE), (clusters.green, clusters.green_admin, GREEN)]
    ways = [clusters.input(**_FIELDS), clusters.failback_input(**_FIELDS), clusters.input(**_FIELDS)]
    lost = clusters.input(**{**_FIELDS, "grace_window": "PT1H"})
    everything = [plan for topics in plans.values() for plan in topics]
    with Traffic.in_programs(clusters.blue.broker_url, everything, tmp_path, toolchain) as traffic:
        for way in ways:
            traffic.wait_for_more(10)
            if way is ways[-1]:
                run = environment.operator.start(lost)
                run.wait_for_phase("GRACE", _LIMIT)
                run.terminate()
            report = environment.operator.run(way, _LIMIT)
            assert report.outcome is Outcome.DONE, report
            assert (report.certificate["missing_clients"], report.certificate["faults"]) == (0, 0), report
            assert report.certificate["cluster_flag"] is True
            source, target = sides if way.cluster == BLUE else sides[::-1]
            assert (_flags(*source), _flags(*target)) == ([True] * 3, [False] * 3)
            assert (_keeps_topics(*source), _keeps_topics(*target)) == ([True] * 2, [False] * 2)
            # Its brokers would refuse the producers that they redirected, when these come back.
            restart_brokers(source[0])
        traffic.wait_for_more(10)
        audit = traffic.stop()
    assert audit.faults() == []


def _flags(stack: Stack, admin: PulsarAdmin, cluster: str) -> list[bool]:
    """Return the flag of the whole cluster, and those of its namespaces."""
    with open_cas_reader(parse_store_url(stack.metadata_url), Access()) as store:
        namespaces = [read_flag(store, name) for name in _NAMESPACES]
    whole = admin.clusters.migration(cluster)
    return [bool(whole and whole.migrated), *namespaces]


def _keeps_topics(stack: Stack, admin: PulsarAdmin, _cluster: str) -> list[bool]:
    """Return for each namespace whether brokers keep its topics because it has moved; a record must agree."""
    with open_cas_reader(parse_store_url(stack.metadata_url), Access()) as store:
        claims = records(store)
    keeps = [admin.namespaces.inactive_topics(name) is not None for name in _NAMESPACES]
    assert [name in claims for name in _NAMESPACES] == keeps
    return keeps
