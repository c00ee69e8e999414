"""Kills, freezes and late returns in the metadata store migration, at every boundary of its steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.migration_flag import FlagPhase
from tests.faults.lifecycle.environment import FaultEnvironment, end_state
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store.environment import input
from tests.faults.metadata_store.fault_round import FaultRound
from tests.faults.metadata_store.rounds import MetadataRound
from tests.support.lifecycle.gates import Edge, Gate


def test_round(
    metadata_store_round: MetadataRound, environment: FaultEnvironment, stacks: StackPool, tell: Callable[[str], None]
) -> None:
    """After any fault, the migration completes or fails and can be started again; writes and messages continue."""
    stacks.take(ensemble=metadata_store_round.ensemble)
    with FaultRound(environment, stacks) as fault_round:
        fault_round.play(metadata_store_round, tell)


@pytest.mark.exhaustive
def test_a_terminated_run_leaves_nothing_blocked(environment: FaultEnvironment, stacks: StackPool) -> None:
    """A run that is terminated while writes are blocked is made good by the next one, which gives them back first."""
    stack = stacks.take()
    with FaultRound(environment, stacks) as fault_round:
        gate = Gate("copy_changes", Edge.AFTER)
        environment.gates.hold(gate)
        run = environment.operator.start(input(stack))
        environment.gates.wait_reached(gate)
        run.terminate()
        environment.gates.release(gate)
        environment.gates.wait_ended(gate)
        assert fault_round.watch.phase is FlagPhase.COPYING, "no worker unblocks writes after a termination"
        gate = Gate("pre_copy", Edge.AFTER)
        environment.gates.hold(gate)
        again = environment.operator.start(input(stack))
        again.wait_for_phase("PRE_COPY")
        environment.gates.wait_reached(gate)
        assert fault_round.watch.phase is FlagPhase.FAILED
        environment.gates.release(gate)
        fault_round.wait_end(again)
        assert fault_round.completed, fault_round.end
        fault_round.check()
        fault_round.converge()


@pytest.mark.exhaustive
def test_a_late_rollback_does_not_change_the_next_run(environment: FaultEnvironment, stacks: StackPool) -> None:
    """A late rollback of an earlier run does not change a newer one, not even while that one is verified."""
    stack = stacks.take()
    with FaultRound(environment, stacks) as fault_round:
        late, blocked = Gate("clear_target", Edge.BEFORE), Gate("copy_changes", Edge.AFTER)
        environment.gates.hold(late, heartbeats=False)
        environment.gates.hold(blocked)
        run = environment.operator.start(input(stack))
        environment.gates.wait_reached(blocked)
        run.signal(Verb.ROLLBACK)
        fault_round.wait_end(run)
        assert end_state(fault_round.end) == Outcome.ROLLED_BACK
        environment.gates.forget(blocked)
        environment.gates.hold(blocked)
        again = environment.operator.start(input(stack))
        environment.gates.wait_reached(blocked)
        environment.gates.release(late)
        environment.gates.wait_ended(late)
        environment.gates.release(blocked)
        fault_round.wait_end(again)
        assert fault_round.completed, fault_round.end
        fault_round.check()
        fault_round.converge()
