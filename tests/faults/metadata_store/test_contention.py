"""Several migrations at once of one cluster: one wins, and the others are told by name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from models.lifecycle.failures import FailureKind
from models.metadata_store.input import MetadataStorePlan
from tests.faults.conftest import StackPool
from tests.faults.lifecycle.environment import FaultySite
from tests.faults.metadata_store.environment import plan
from tests.faults.metadata_store.fault_round import Trial
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Run

_STARTS = 20
_LIMIT = 120.0
_BEFORE, _AFTER = Gate("pre_copy", Edge.BEFORE), Gate("pre_copy", Edge.AFTER)

pytestmark = pytest.mark.timeout(600)


def start_all(site: FaultySite, plans: list[MetadataStorePlan]) -> list[Run]:
    """Start all at once; returns those that were not refused."""

    def start(one: MetadataStorePlan) -> Run | None:
        try:
            return site.operator.start(one)
        except WorkflowAlreadyStartedError:
            return None

    with ThreadPoolExecutor(len(plans)) as pool:
        return [run for run in pool.map(start, plans) if run]


def test_one_of_twenty_starts_runs(site: FaultySite, stacks: StackPool) -> None:
    """Of twenty starts at once one runs, and a rival by another name is told who holds source and target."""
    stack = stacks.take()
    mine, rival = plan(stack), plan(stack, cluster="rival")
    with Trial(site, stack) as trial:
        site.gates.hold(_AFTER)
        (run,) = start_all(site, [mine] * _STARTS)
        site.gates.wait_reached(_AFTER)
        refused = site.operator.refusal(rival)
        assert refused.type == FailureKind.PRECHECK_FAILED
        for code in ("[SOURCE_CLAIMED]", "[TARGET_CLAIMED]"):
            assert code in str(refused)
        assert str(refused).count(mine.workflow_id) == 2
        site.gates.release(_AFTER)
        trial.wait_end(run)
        assert trial.completed, trial.end
        trial.check()
        trial.settle()


def test_the_second_through_the_precheck_loses(site: FaultySite, stacks: StackPool) -> None:
    """Of two that passed the precheck the later one is told who came first, and its way back takes nothing from it."""
    stack = stacks.take()
    first, second = plan(stack), plan(stack, cluster="rival")
    with Trial(site, stack) as trial:
        site.gates.hold(_BEFORE)
        late = site.operator.start(second)
        site.gates.wait_reached(_BEFORE)
        site.gates.hold(_AFTER)
        run = site.operator.start(first)
        site.gates.wait_reached(_AFTER)
        site.gates.release(_BEFORE)
        refused = late.failure(_LIMIT)
        assert refused.type == FailureKind.CONFLICT
        assert first.workflow_id in str(refused)
        site.gates.release(_AFTER)
        trial.wait_end(run)
        assert trial.completed, trial.end
        trial.check()
        trial.settle()


def test_two_at_once(site: FaultySite, stacks: StackPool) -> None:
    """Of two that start at the same instant one completes, and the other is refused by the winner's name."""
    stack = stacks.take()
    plans = [plan(stack), plan(stack, cluster="rival")]
    with Trial(site, stack) as trial:
        runs = start_all(site, plans)
        ends = [site.end_of(run, _LIMIT) for run in runs]
        (loser,) = (number for number, end in enumerate(ends) if isinstance(end, ApplicationError))
        refused = ends[loser]
        assert isinstance(refused, ApplicationError)
        assert refused.type in (FailureKind.CONFLICT, FailureKind.PRECHECK_FAILED)
        assert plans[1 - loser].workflow_id in str(refused)
        trial.end = ends[1 - loser]
        assert trial.completed, trial.end
        trial.check()
        trial.settle()
