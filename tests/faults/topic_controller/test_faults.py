"""Kills, freezes, late returns and rivals in the controller of a scalable topic, between any two of its changes."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.reused_clusters import ReusedClusters
from tests.faults.lifecycle.stack_pool import make_cluster
from tests.faults.topic_controller.fault_round import SPEC, ControlledCluster, FaultRound
from tests.faults.topic_controller.rounds import TopicControllerRound
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""Brokers keep a little of each namespace that they ever served."""


@pytest.fixture(scope="module")
def clusters(make_stack: MakeStack) -> Generator[ReusedClusters[ControlledCluster]]:
    """A cluster with two brokers."""

    def make(ensemble: bool) -> ControlledCluster:
        return ControlledCluster(make_cluster(make_stack, SPEC, ensemble=ensemble))

    clusters = ReusedClusters(make, _ROUNDS_OF_ONE)
    yield clusters
    clusters.close()


def test_round(
    topic_controller_round: TopicControllerRound,
    environment: FaultEnvironment,
    clusters: ReusedClusters[ControlledCluster],
    tell: Callable[[str], None],
) -> None:
    """After any fault no message is lost or out of order, no cursor is missing, and the next change is possible."""
    fault = topic_controller_round
    with (
        clusters.round_on(ensemble=fault.ensemble) as cluster,
        FaultRound(environment, cluster, fault) as fault_round,
    ):
        fault_round.play(fault, tell)
