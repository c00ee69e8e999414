"""Kills, freezes and late returns in the blue-green migration, at every boundary of its steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.faults.blue_green.environment import BlueAndGreen
from tests.faults.blue_green.fault_round import FaultRound
from tests.faults.blue_green.rounds import BlueGreenRound
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.reused_clusters import ReusedClusters
from tests.faults.lifecycle.stack_pool import make_cluster
from tests.support.blue_green.environment import BLUE_SPEC, GREEN_SPEC
from tests.support.stacks import MakeStack

_ROUNDS_OF_ONE = 12
"""Brokers keep a little of each namespace that they ever served."""


@pytest.fixture(scope="module")
def clusters(make_stack: MakeStack) -> Generator[ReusedClusters[BlueAndGreen]]:
    """Blue, with two brokers, and green."""

    def pair(ensemble: bool) -> BlueAndGreen:
        return BlueAndGreen(make_cluster(make_stack, BLUE_SPEC, ensemble=ensemble), make_stack(GREEN_SPEC))

    clusters = ReusedClusters(pair, _ROUNDS_OF_ONE)
    yield clusters
    clusters.close()


def test_round(
    blue_green_round: BlueGreenRound,
    environment: FaultEnvironment,
    clusters: ReusedClusters[BlueAndGreen],
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    """After any fault, each namespace is on one side as a whole, its messages arrive, and no leftovers exist."""
    with (
        clusters.round_on(ensemble=blue_green_round.ensemble) as pair,
        FaultRound(environment, pair, tmp_path) as fault_round,
    ):
        fault_round.play(blue_green_round, tell)
