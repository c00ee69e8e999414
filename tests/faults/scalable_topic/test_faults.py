"""Killed, frozen and late processes in migrations to scalable topics, at every boundary of their steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.toolchain import Toolchain
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.reused_clusters import ReusedClusters
from tests.faults.lifecycle.stack_pool import make_cluster
from tests.faults.scalable_topic.environment import SPEC, ScalableCluster
from tests.faults.scalable_topic.fault_round import FaultRound
from tests.faults.scalable_topic.rounds import ScalableTopicRound
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""Brokers keep some data of each namespace that they have served."""


@pytest.fixture(scope="module")
def clusters(make_stack: MakeStack, toolchain: Toolchain) -> Generator[ReusedClusters[ScalableCluster]]:
    """A cluster with two brokers."""
    tools = with_scalable_clients(toolchain)

    def make(ensemble: bool) -> ScalableCluster:
        return ScalableCluster(make_cluster(make_stack, SPEC, ensemble=ensemble), tools)

    clusters = ReusedClusters(make, _ROUNDS_OF_ONE)
    yield clusters
    clusters.close()


def test_round(
    scalable_topic_round: ScalableTopicRound,
    environment: FaultEnvironment,
    clusters: ReusedClusters[ScalableCluster],
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    """After any fault, each topic is completely regular or scalable, all messages arrive, and no record remains."""
    fault = scalable_topic_round
    with (
        clusters.round_on(ensemble=fault.ensemble) as cluster,
        FaultRound(environment, cluster, fault, tmp_path) as fault_round,
    ):
        fault_round.play(fault, tell)
