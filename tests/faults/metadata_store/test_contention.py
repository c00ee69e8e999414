"""Several migrations at once of one cluster: one wins, and the others get its name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from models.lifecycle.failures import FailureKind
from models.metadata_store.input import MetadataStoreInput
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store.environment import input
from tests.faults.metadata_store.fault_round import FaultRound
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores

_STARTS = 20
_LIMIT = 120.0
_BEFORE, _AFTER = Gate("pre_copy", Edge.BEFORE), Gate("pre_copy", Edge.AFTER)


def start_all(environment: FaultEnvironment, plans: list[MetadataStoreInput]) -> list[Run]:
    """Start all at once; returns those that were not refused."""

    def start(migration_input: MetadataStoreInput) -> Run | None:
        try:
            return environment.operator.start(migration_input)
        except WorkflowAlreadyStartedError:
            return None

    with ThreadPoolExecutor(len(plans)) as pool:
        return [run for run in pool.map(start, plans) if run]


@pytest.mark.exhaustive
def test_one_of_twenty_starts_runs(environment: FaultEnvironment, stacks: StackPool) -> None:
    """Of twenty starts at once one runs, and a rival by another name learns which run holds both stores."""
    stack = stacks.take()
    stores.know_cluster(stack.zk_url, "rival")
    mine, rival = input(stack), input(stack, cluster="rival")
    with FaultRound(environment, stacks) as fault_round:
        environment.gates.hold(_AFTER)
        (run,) = start_all(environment, [mine] * _STARTS)
        environment.gates.wait_reached(_AFTER)
        refused = environment.operator.refusal(rival)
        assert refused.type == FailureKind.PRECHECK_FAILED
        for code in ("[SOURCE_CLAIMED]", "[TARGET_CLAIMED]"):
            assert code in str(refused)
        assert str(refused).count(mine.workflow_id) == 2
        environment.gates.release(_AFTER)
        fault_round.wait_end(run)
        assert fault_round.completed, fault_round.end
        fault_round.check()
        fault_round.converge()


@pytest.mark.exhaustive
def test_the_second_through_the_precheck_loses(environment: FaultEnvironment, stacks: StackPool) -> None:
    """Of two that passed the precheck the later one learns of the first, and its rollback does not affect the first."""
    stack = stacks.take()
    stores.know_cluster(stack.zk_url, "rival")
    first, second = input(stack), input(stack, cluster="rival")
    with FaultRound(environment, stacks) as fault_round:
        environment.gates.hold(_BEFORE)
        late = environment.operator.start(second)
        environment.gates.wait_reached(_BEFORE)
        environment.gates.hold(_AFTER)
        run = environment.operator.start(first)
        environment.gates.wait_reached(_AFTER)
        environment.gates.release(_BEFORE)
        refused = late.failure(_LIMIT)
        assert refused.type == FailureKind.CONFLICT
        assert first.workflow_id in str(refused)
        environment.gates.release(_AFTER)
        fault_round.wait_end(run)
        assert fault_round.completed, fault_round.end
        fault_round.check()
        fault_round.converge()


@pytest.mark.exhaustive
def test_two_at_once(environment: FaultEnvironment, stacks: StackPool) -> None:
    """Of two migrations started at the same instant one completes, and the other is refused with the winner's name."""
    stack = stacks.take()
    stores.know_cluster(stack.zk_url, "rival")
    plans = [input(stack), input(stack, cluster="rival")]
    with FaultRound(environment, stacks) as fault_round:
        runs = start_all(environment, plans)
        ends = [environment.end_of(run, _LIMIT) for run in runs]
        (loser,) = (number for number, end in enumerate(ends) if isinstance(end, ApplicationError))
        refused = ends[loser]
        assert isinstance(refused, ApplicationError)
        assert refused.type in (FailureKind.CONFLICT, FailureKind.PRECHECK_FAILED)
        assert plans[1 - loser].workflow_id in str(refused)
        fault_round.end = ends[1 - loser]
        assert fault_round.completed, fault_round.end
        fault_round.check()
        fault_round.converge()
