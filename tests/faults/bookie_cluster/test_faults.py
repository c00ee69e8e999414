"""Kills, freezes, full disks and rude operators in the bookie cluster migration, at every boundary of its steps."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from pulsar_devstack.servers.provision import Toolchain
from tests.faults.bookie_cluster.environment import SPEC, SwitchedCluster
from tests.faults.bookie_cluster.fault_round import FaultRound
from tests.faults.bookie_cluster.rounds import SwitchRound
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.reused_clusters import ReusedClusters
from tests.faults.lifecycle.stack_pool import make_cluster
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""A cluster grows with each round, and its checks with it."""


@pytest.fixture(scope="module")
def clusters(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ReusedClusters[SwitchedCluster]]:
    """Clusters of two bookie clusters and a broker, with a light dataset."""

    def cluster(ensemble: bool) -> SwitchedCluster:
        made = make_cluster(make_stack, SPEC, ensemble=ensemble)
        return SwitchedCluster(made, toolchain, tmp_path_factory.mktemp("dataset"))

    clusters = ReusedClusters(cluster, _ROUNDS_OF_ONE)
    yield clusters
    clusters.close()


def test_round(
    bookie_cluster_round: SwitchRound,
    environment: FaultEnvironment,
    clusters: ReusedClusters[SwitchedCluster],
    tell: Callable[[str], None],
) -> None:
    """After any fault the switch ends on one side with everything that was written, and one cluster is ACTIVE."""
    with (
        clusters.round_on(ensemble=bookie_cluster_round.ensemble) as cluster,
        FaultRound(environment, cluster) as fault_round,
    ):
        fault_round.play(bookie_cluster_round, tell)
