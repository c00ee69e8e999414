"""Many items in waves, on a real Temporal: what its test server does not do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from models.lifecycle.status import Outcome, ProgressUnit, WaitKind
from models.lifecycle.verbs import Verb
from models.lifecycle.waves import ErrorBudget, WaveGate, WavePolicy
from pulsar_devstack.servers.stack import StackSpec
from temporal.converter import DATA_CONVERTER
from temporal.search_attributes import register_search_attributes
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.wave_catalog import Behaviour
from tests.workflows.lifecycle.wave_operator import Operator, wave_operator

GOOD = Behaviour()
BAD = Behaviour(failed=("itself",))
HANGING = Behaviour(hang=True)
DEAF = Behaviour(hang=True, deaf=True)
FREE = WavePolicy(canary=0, gate=WaveGate.NONE, error_budget=ErrorBudget(items=10_000))
GATED = WavePolicy(canary=2, wave_size=20, parallelism=5, gate=WaveGate.CANARY, error_budget=ErrorBudget(items=1))
ITEMS = {f"item-{number:05d}": GOOD for number in range(4)}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(make_stack: MakeStack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Starts waves on a worker of their own."""
    stack = make_stack(StackSpec(temporal=True))
    client = await Client.connect(stack.temporal_address, data_converter=DATA_CONVERTER)
    await register_search_attributes(client)
    async with wave_operator(client, tmp_path_factory.mktemp("failures")) as operator:
        yield operator


async def test_children_that_others_end_are_failed_items(operator: Operator) -> None:
    """A child that the operator cancels or terminates counts as failed, with that reason."""
    run = await operator.start(dict(list(ITEMS.items())[:3]) | {"item-00000": HANGING, "item-00001": HANGING}, FREE)
    await run.until(lambda status: status.counts.done == 1 and len(run.catalog.begun) == 3)
    await operator.client.get_workflow_handle(f"{run.handle.id}/item-00000").cancel()
    await operator.client.get_workflow_handle(f"{run.handle.id}/item-00001").terminate("by hand")
    await run.until(lambda status: status.counts.failed == 2)
    reasons = {failure.path: failure.reason for failure in (await run.result()).first_failures}
    assert "ancelled" in reasons["item-00000"]
    assert "erminated" in reasons["item-00001"]


@pytest.mark.exhaustive
async def test_a_second_parent_waits_for_the_children_of_the_first(operator: Operator) -> None:
    """A parent's termination cancels its children, and the next parent waits for one that still runs.

    Then it migrates the item itself.
    """
    run = await operator.start(ITEMS | {"item-00000": DEAF, "item-00001": HANGING}, FREE)
    await run.until(lambda status: status.counts.done == 2 and len(run.catalog.begun) == 4)
    await run.handle.terminate()
    orphan = operator.client.get_workflow_handle(f"{run.handle.id}/item-00000")
    cancelled = operator.client.get_workflow_handle(f"{run.handle.id}/item-00001")
    with pytest.raises(WorkflowFailureError) as failed:
        await cancelled.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert (await orphan.describe()).status is WorkflowExecutionStatus.RUNNING

    run.catalog.items |= dict.fromkeys(run.catalog.names, GOOD)
    again = await operator.again(run.catalog, FREE)
    status = await again.until(lambda status: status.counts.done == 3)
    assert status.running == 1
    await orphan.terminate()
    end = await again.result()
    assert (end.counts.done, end.counts.failed) == (4, 0)
    assert [item for item, _, _ in run.catalog.begun].count("item-00000") == 2


async def test_a_migration_in_waves(operator: Operator) -> None:
    """Verbs and status of a migration serve its waves, and it continues as new between items, gates and decisions."""
    names = [f"topic-{number:03d}" for number in range(40)]
    items = dict.fromkeys(names, GOOD) | {"topic-012": BAD, "topic-015": BAD}
    run, waves = await operator.start_migration(items, GATED, events=40)

    await waves.held(WaitKind.GATE)
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.GATE)
    assert Verb.PROCEED in status.legal_verbs
    assert status.progress is not None
    assert (status.progress.done, status.progress.total, status.progress.unit) == (2, 40, ProgressUnit.TOPICS)
    await run.steer(Verb.PAUSE)
    await run.steer(Verb.PROCEED)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert len(waves.catalog.begun) == 2
    await run.steer(Verb.RESUME)

    shown = await waves.held(WaitKind.ERROR_BUDGET)
    assert sorted(str(item.path) for item in shown.first_failures) == ["topic-012", "topic-015"]
    # Shown during a task that Temporal does not know yet: a signal that comes before its end comes before the decision.
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.ERROR_BUDGET)
    await run.signal(Verb.PROCEED)

    report = await run.report(limit=90)
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert [(failed.count, failed.listed_in) for failed in report.failed_items] == [(2, str(waves.catalog.failures))]
    assert sorted(item for item, _, _ in waves.catalog.begun) == names
    assert len(waves.catalog.runs) >= 5
