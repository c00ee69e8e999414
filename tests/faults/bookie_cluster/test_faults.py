"""Kills, freezes, full disks and rude operators in the bookie cluster switch, at every boundary of its steps."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from deploy.devstack.provision import Toolchain
from tests.faults.bookie_cluster.environment import SPEC, SwitchedCluster
from tests.faults.bookie_cluster.fault_round import FaultRound
from tests.faults.bookie_cluster.rounds import SwitchRound
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""A cluster grows with each round, and its checks with it."""


class ClusterPool:
    """Clusters for rounds: one is used again until a round breaks it, or it has grown too large."""

    def __init__(self, make: Callable[[], SwitchedCluster]) -> None:
        self._make = make
        self._cluster: SwitchedCluster | None = None

    def take(self) -> SwitchedCluster:
        """The cluster of the next round."""
        if self._cluster and self._cluster.rounds >= _ROUNDS_OF_ONE:
            self.drop()
        self._cluster = self._cluster or self._make().__enter__()
        return self._cluster

    def drop(self) -> None:
        """Use this one no more."""
        if self._cluster:
            self._cluster.__exit__(None, None, None)
            self._cluster = None


@pytest.fixture(scope="module")
def clusters(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ClusterPool]:
    """Clusters of two bookie clusters and a broker, with a light dataset."""
    clusters = ClusterPool(lambda: SwitchedCluster(make_stack(SPEC), toolchain, tmp_path_factory.mktemp("dataset")))
    yield clusters
    clusters.drop()


@pytest.mark.timeout(900)
def test_round(
    bookie_cluster_round: SwitchRound, environment: FaultEnvironment, clusters: ClusterPool, tell: Callable[[str], None]
) -> None:
    """Whatever is hit, the switch ends on one side with everything that was written, and one cluster is ACTIVE."""
    cluster = clusters.take()
    try:
        with FaultRound(environment, cluster) as fault_round:
            fault_round.play(bookie_cluster_round, tell)
    except BaseException:
        clusters.drop()
        raise
