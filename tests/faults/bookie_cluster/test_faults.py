"""Kills, freezes, full disks and rude operators in the bookie cluster switch, at every boundary of its steps."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from deploy.devstack.provision import Toolchain
from tests.faults.bookie_cluster.environment import SPEC, SwitchedCluster
from tests.faults.bookie_cluster.fault_round import FaultRound
from tests.faults.bookie_cluster.rounds import SwitchRound
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.stack_pool import make_cluster
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""A cluster grows with each round, and its checks with it."""


class ClusterPool:
    """Clusters for rounds: one of each kind is used again until a round breaks it, or it has grown too large."""

    def __init__(self, make: Callable[[bool], SwitchedCluster]) -> None:
        self._make = make
        self._clusters: dict[bool, SwitchedCluster] = {}

    def take(self, *, ensemble: bool) -> SwitchedCluster:
        """The cluster of the next round."""
        if (known := self._clusters.get(ensemble)) and known.rounds >= _ROUNDS_OF_ONE:
            self.drop(ensemble=ensemble)
        if ensemble not in self._clusters:
            self._clusters[ensemble] = self._make(ensemble).__enter__()
        return self._clusters[ensemble]

    def drop(self, *, ensemble: bool) -> None:
        """Use this one no more."""
        if known := self._clusters.pop(ensemble, None):
            known.__exit__(None, None, None)

    def close(self) -> None:
        """Use none any more."""
        for ensemble in list(self._clusters):
            self.drop(ensemble=ensemble)


@pytest.fixture(scope="module")
def clusters(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ClusterPool]:
    """Clusters of two bookie clusters and a broker, with a light dataset."""

    def cluster(ensemble: bool) -> SwitchedCluster:
        made = make_cluster(make_stack, SPEC, ensemble=ensemble)
        return SwitchedCluster(made, toolchain, tmp_path_factory.mktemp("dataset"))

    clusters = ClusterPool(cluster)
    yield clusters
    clusters.close()


@pytest.mark.timeout(900)
def test_round(
    bookie_cluster_round: SwitchRound, environment: FaultEnvironment, clusters: ClusterPool, tell: Callable[[str], None]
) -> None:
    """Whatever is hit, the switch ends on one side with everything that was written, and one cluster is ACTIVE."""
    ensemble = bookie_cluster_round.ensemble
    cluster = clusters.take(ensemble=ensemble)
    try:
        with FaultRound(environment, cluster) as fault_round:
            fault_round.play(bookie_cluster_round, tell)
    except BaseException:
        clusters.drop(ensemble=ensemble)
        raise
