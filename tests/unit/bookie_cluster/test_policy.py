"""The rules of the bookie cluster migration: what each phase lets an operator do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from models.bookie_cluster.input import Routing
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets, SwitchCensus
from models.lifecycle.policy import PhasePolicy, VerbState
from models.lifecycle.status import Undo
from models.lifecycle.verbs import Verb
from workflows.bookie_cluster.policy import DELETION_DELAY, POLICIES, with_target_only

NOW = datetime(2030, 1, 1, tzinfo=UTC)


EVERY = [(routing, phase) for routing in Routing for phase in Phase]
CENSUS = SwitchCensus(
    brokers=(),
    misrouted_ledgers=(),
    attributions_set_again=0,
    target_only=1234,
    target_only_bytes=5_600_000,
    targets=CleanupTargets(cluster="old", ledgers=0, entry_bytes=0, examples=(), retained=0, reasons=()),
)


@pytest.mark.parametrize(("routing", "phase"), EVERY)
def test_every_phase_has_rules(routing: Routing, phase: Phase) -> None:
    """Each phase says how it is undone; a rollback is legal from PRECHECK to the end of the window."""
    rules = POLICIES[routing][phase]
    legal = VerbState(policy=rules).legal()
    assert rules.undo_cost
    assert (Verb.ROLLBACK in legal) is (phase not in (Phase.REGISTER, Phase.CLEANUP, Phase.ROLLED_BACK))
    assert (Verb.CLEANUP in legal) is (phase is Phase.ROLLBACK_WINDOW)
    assert (Verb.PROCEED in legal) is (phase in (Phase.ROLLBACK_WINDOW, Phase.CLEANUP))
    assert (Verb.PAUSE in legal) is (phase is Phase.BUILD)


@pytest.mark.parametrize(
    ("routing", "undo"),
    [
        (Routing.RESTART, [Undo.FREE, Undo.METADATA, Undo.COPY_BACK, Undo.COPY_BACK, Undo.NONE]),
        (Routing.ATTRIBUTION, [Undo.FREE, Undo.METADATA, Undo.METADATA, Undo.METADATA, Undo.NONE]),
    ],
)
def test_undo_classes(routing: Routing, undo: list[Undo]) -> None:
    """Once brokers write to the target a rollback copies back with `restart`, and flips metadata with `attribution`."""
    phases = (Phase.BUILD, Phase.SWITCH, Phase.PROMOTE, Phase.ROLLBACK_WINDOW, Phase.CLEANUP)
    assert [POLICIES[routing][phase].undo for phase in phases] == undo


def test_gain_is_part_of_the_cost() -> None:
    """The cost of a rollback that copies back says how much; where nothing is copied it stays as it is."""
    restart, attribution = (POLICIES[routing][Phase.ROLLBACK_WINDOW] for routing in Routing)
    assert with_target_only(restart, CENSUS).undo_cost.endswith("(1,234 ledgers with 5.6 MB at the last look)")
    assert with_target_only(attribution, CENSUS) == attribution


def test_deletion_delay() -> None:
    """While copies wait for their deletion it can be hastened or called off, and nothing else."""
    assert VerbState(policy=DELETION_DELAY).legal() == (Verb.CLEANUP, Verb.PROCEED)


def test_gate_inside_a_phase() -> None:
    """A gate takes one `proceed`; the next gate of the same phase needs another one."""
    lifecycle = VerbState(policy=PhasePolicy(undo=Undo.FREE, undo_cost="nothing"))
    for effect in ("continues without these", "continues without those"):
        assert not lifecycle.judge(Verb.PROCEED).accepted
        lifecycle.close_gate(effect)
        assert lifecycle.take(Verb.PROCEED, NOW).why == effect
        assert lifecycle.proceed_wanted
        lifecycle.open_gate()
        assert not lifecycle.proceed_wanted


def test_gate_of_an_earlier_run() -> None:
    """A gate that is still closed when the next run comes to it keeps the `proceed` that came in between."""
    lifecycle = VerbState(policy=PhasePolicy(undo=Undo.FREE, undo_cost="nothing"))
    lifecycle.close_gate("continues")
    later = VerbState.model_validate(lifecycle.model_dump())
    assert later.take(Verb.PROCEED, NOW).accepted
    later.close_gate("continues")
    assert later.proceed_wanted


def test_rollback_has_its_own_gates() -> None:
    """Once the rollback has begun, verbs are judged by its rules: a decision in it can be taken."""
    lifecycle = VerbState(policy=POLICIES[Routing.RESTART][Phase.BUILD])
    lifecycle.take(Verb.ROLLBACK, NOW)
    lifecycle.close_gate("continues")
    assert lifecycle.judge(Verb.PROCEED).why == "a rollback is running"
    lifecycle.undo()
    lifecycle.enter(POLICIES[Routing.RESTART][Phase.ROLLED_BACK])
    lifecycle.close_gate("continues")
    assert lifecycle.legal() == (Verb.PROCEED,)
