"""Kills, freezes and late returns in the metadata store migration, at every boundary of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.flag import FlagPhase
from tests.faults.conftest import StackPool
from tests.faults.lifecycle.environment import FaultySite, end_state
from tests.faults.metadata_store.environment import plan
from tests.faults.metadata_store.fault_round import Trial, line
from tests.faults.metadata_store.rounds import MetadataRound
from tests.support.lifecycle.gates import Edge, Gate


@pytest.mark.timeout(600)
def test_round(round_: MetadataRound, site: FaultySite, stacks: StackPool, tell: Callable[[str], None]) -> None:
    """Whatever is hit, the migration completes or fails and can be started again; writes and messages go on."""
    stack = stacks.take()
    begun = time.monotonic()
    with Trial(site, stack) as trial:
        try:
            trial.run(round_)
            stacks.prepare()
            told = line(round_, trial, begun)
            trial.check()
            if not trial.completed:
                trial.migrate_again()
            trial.settle()
        except BaseException:
            tell(f"{line(round_, trial, begun)}  BROKEN")
            raise
        tell(told)


@pytest.mark.timeout(600)
def test_a_terminated_run_leaves_nothing_blocked(site: FaultySite, stacks: StackPool) -> None:
    """A run that is terminated while writes are blocked is made good by the next one, which gives them back first."""
    stack = stacks.take()
    with Trial(site, stack) as trial:
        gate = Gate("copy_changes", Edge.AFTER)
        site.gates.hold(gate)
        run = site.operator.start(plan(stack))
        site.gates.wait_reached(gate)
        run.terminate()
        site.gates.release(gate)
        site.gates.wait_ended(gate)
        assert trial.watch.phase is FlagPhase.COPYING, "nobody gives writes back after a termination"
        gate = Gate("pre_copy", Edge.AFTER)
        site.gates.hold(gate)
        again = site.operator.start(plan(stack))
        again.wait_for_phase("PRE_COPY")
        site.gates.wait_reached(gate)
        assert trial.watch.phase is FlagPhase.FAILED
        site.gates.release(gate)
        trial.wait_end(again)
        assert trial.completed, trial.end
        trial.check()
        trial.settle()


@pytest.mark.timeout(600)
def test_a_late_way_back_spares_the_next_run(site: FaultySite, stacks: StackPool) -> None:
    """The way back of an earlier run, late, takes nothing from a newer one, not even while that one is verified."""
    stack = stacks.take()
    with Trial(site, stack) as trial:
        late, blocked = Gate("clear_target", Edge.BEFORE), Gate("copy_changes", Edge.AFTER)
        site.gates.hold(late, heartbeats=False)
        site.gates.hold(blocked)
        run = site.operator.start(plan(stack))
        site.gates.wait_reached(blocked)
        run.signal(Verb.ROLLBACK)
        trial.wait_end(run)
        assert end_state(trial.end) == Outcome.ROLLED_BACK
        site.gates.forget(blocked)
        site.gates.hold(blocked)
        again = site.operator.start(plan(stack))
        site.gates.wait_reached(blocked)
        site.gates.release(late)
        site.gates.wait_ended(late)
        site.gates.release(blocked)
        trial.wait_end(again)
        assert trial.completed, trial.end
        trial.check()
        trial.settle()
