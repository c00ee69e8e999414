"""Every wait can be ended: each kind names its verbs, and each phase has one that is legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from models.bookie_cluster.input import Routing
from models.bookie_cluster.phases import Phase as SwitchPhase
from models.lifecycle.policy import PhasePolicy, VerbState
from models.lifecycle.status import ENDERS, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.phases import Phase
from workflows.bookie_cluster.policy import POLICIES as SWITCH_POLICIES
from workflows.metadata_store.policy import POLICIES

# A transaction, which the deadline of blocked writes ends; a question to a store, which is given up after a minute; and
# ways back, which nothing may leave halfway.
UNENDING = {Phase.COMPLETED, SwitchPhase.REGISTER, Phase.FAILED, SwitchPhase.ROLLED_BACK}


@pytest.mark.parametrize("kind", WaitKind)
def test_each_kind_of_wait_names_its_verbs(kind: WaitKind) -> None:
    """Every kind of wait has a verb that ends it."""
    assert ENDERS[kind]
    assert set(ENDERS[kind]) <= set(Verb)


@pytest.mark.parametrize(
    "policies",
    [POLICIES, *(SWITCH_POLICIES[routing] for routing in Routing)],
    ids=["metadata-store", *(f"bookie-cluster-{routing}" for routing in Routing)],
)
def test_a_wait_inside_a_phase_can_be_ended(policies: Mapping[Any, PhasePolicy]) -> None:
    """In each phase a verb is legal that ends what an activity waits for there, save where nothing may stop halfway."""
    waits = {WaitKind.RETRY, WaitKind.STORE, WaitKind.SPARK, WaitKind.BOOKIES, WaitKind.THROTTLE}
    stuck = {
        (phase, kind)
        for phase, policy in policies.items()
        for kind in waits
        if not set(ENDERS[kind]) & set(VerbState(policy=policy).legal())
    }
    assert {phase for phase, _ in stuck} <= UNENDING
