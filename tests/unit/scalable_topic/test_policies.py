"""Legal verbs in each phase of the migrations to scalable topics."""

from __future__ import annotations

from enum import StrEnum

import pytest

from models.lifecycle.policy import PhasePolicy, VerbState
from models.lifecycle.status import Undo
from models.lifecycle.verbs import Verb
from models.scalable_topic.phases import NamespacePhase, OperationPhase, Phase
from workflows.scalable_topic.policy import NAMESPACE_POLICIES, OPERATION_POLICIES, POLICIES, WAITING_AGAIN

ROLLBACK, CLEANUP, PAUSE, PROCEED = Verb.ROLLBACK, Verb.CLEANUP, Verb.PAUSE, Verb.PROCEED

ONE: dict[Phase, set[Verb]] = {
    Phase.PRECHECK: {ROLLBACK},
    Phase.CLIENTS: {ROLLBACK, PAUSE},
    Phase.GUARD: {ROLLBACK},
    Phase.FLIP: set(),
    Phase.DRAIN: {PROCEED},
    Phase.VERIFY: set(),
    Phase.COMPLETE: set(),
    Phase.GRACE: {CLEANUP, PROCEED},
    Phase.CLEANUP: {PROCEED},
    Phase.ROLLBACK: set(),
}
MANY: dict[NamespacePhase, set[Verb]] = {
    NamespacePhase.PRECHECK: {ROLLBACK},
    NamespacePhase.GUARD: {ROLLBACK, PAUSE},
    NamespacePhase.MIGRATE: {ROLLBACK, PAUSE},
    NamespacePhase.COMPLETE: set(),
    NamespacePhase.GRACE: {CLEANUP, PROCEED},
    NamespacePhase.CLEANUP: {PROCEED},
    NamespacePhase.ROLLBACK: set(),
}
both = pytest.mark.parametrize(
    ("policies", "legal"), [(POLICIES, ONE), (NAMESPACE_POLICIES, MANY)], ids=["one topic", "many topics"]
)


@both
def test_verbs_that_are_legal(policies: dict[StrEnum, PhasePolicy], legal: dict[StrEnum, set[Verb]]) -> None:
    """Each phase has its verbs; the refusal of any other says why."""
    assert list(policies) == list(legal) == [*type(next(iter(policies)))]
    for phase, policy in policies.items():
        state = VerbState(policy=policy)
        assert {*state.legal()} == legal[phase], phase
        assert all(state.judge(verb).why for verb in Verb)


@both
def test_the_point_of_no_return(policies: dict[StrEnum, PhasePolicy], legal: dict[StrEnum, set[Verb]]) -> None:
    """A rollback is legal exactly while it is free, and each phase explains its cost or why it is refused."""
    for phase, policy in policies.items():
        assert (ROLLBACK in legal[phase]) is (policy.undo is Undo.FREE), phase
        assert policy.undo in (Undo.FREE, Undo.NONE)
        assert policy.undo_cost
    # Phases with a free rollback come first.
    undo = [policy.undo for policy in policies.values()]
    assert undo == sorted(undo)


def test_a_refused_flip_can_be_undone() -> None:
    """While FLIP waits for clients nothing has changed: a rollback is free, and a pause would cost."""
    state = VerbState(policy=WAITING_AGAIN)
    assert (WAITING_AGAIN.undo, state.legal()) == (Undo.FREE, (ROLLBACK,))
    assert "keep the policies of the namespace overridden for longer" in state.judge(PAUSE).why


def test_a_refused_rollback_names_the_alternatives() -> None:
    """The refusal of a rollback after the flip names the alternatives."""
    for phase in (Phase.DRAIN, Phase.VERIFY, Phase.COMPLETE, Phase.GRACE, Phase.CLEANUP):
        assert "can be copied to a regular topic" in VerbState(policy=POLICIES[phase]).judge(ROLLBACK).why


def test_operations_are_undone_topic_by_topic() -> None:
    """An operation can be stopped while it runs; finished topics stay changed."""
    legal = {phase: {*VerbState(policy=policy).legal()} for phase, policy in OPERATION_POLICIES.items()}
    assert legal[OperationPhase.OPERATE] == {ROLLBACK}
    assert "stay" in OPERATION_POLICIES[OperationPhase.OPERATE].undo_cost
    assert list(OPERATION_POLICIES) == [*OperationPhase]
