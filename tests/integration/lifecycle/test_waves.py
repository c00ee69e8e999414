"""Many items in waves, on a real Temporal: what its test server does not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from models.lifecycle.status import Outcome, ProgressUnit, WaitKind
from models.lifecycle.verbs import Verb, VerbRequest
from models.lifecycle.waves import ErrorBudget, WaveGate, WavePolicy
from pulsar_devstack.servers.stack import StackSpec
from temporal.converter import DATA_CONVERTER
from temporal.search_attributes import register_search_attributes
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import Run
from tests.workflows.lifecycle.wave_catalog import Behaviour, clean_topics
from tests.workflows.lifecycle.wave_operator import Operator, wave_operator
from tests.workflows.lifecycle.wave_operator import Run as WaveRun

GOOD = Behaviour()
BAD = Behaviour(failed=("itself",))
HANGING = Behaviour(hang=True)
DEAF = Behaviour(hang=True, deaf=True)
FREE = WavePolicy(canary=0, gate=WaveGate.NONE, error_budget=ErrorBudget(items=10_000))
GATED = WavePolicy(canary=2, wave_size=20, parallelism=5, gate=WaveGate.CANARY, error_budget=ErrorBudget(items=1))
SHORT = FREE.model_copy(
    update={
        "parallelism": 1,
        "error_budget": ErrorBudget(items=0),
        "deadline": timedelta(seconds=3),
        "cancel_grace": timedelta(seconds=1),
    }
)
"""An item that does not end is given up after a few seconds, and the waves wait for a decision."""
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


@pytest.mark.parametrize("events", [50, 1000], ids=["a new run", "the end"])
async def test_a_clean_up_after_a_child_that_was_given_up_ends_first(operator: Operator, events: int) -> None:
    """A child that is terminated after it was given up is cleaned up after, before its migration's run ends."""
    run, waves, child = await _given_up(operator, events=events)
    await _start_clean_up(run, waves, child)
    if events == 50:
        while len((await run.handle.fetch_history()).events) < 2 * events:
            # Refusals make the history longer.
            await run.refusal("steer", VerbRequest(verb=Verb.RESUME))
    await run.steer(Verb.PROCEED)
    if events == 1000:
        await waves.until(lambda status: status.counts.done == 1)
    await asyncio.sleep(1)
    assert (await run.runs(), await run.running(), waves.catalog.cleaned) == (1, True, [])
    waves.catalog.may_clean.set()
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (waves.catalog.cleaned, await run.runs() > 1) == (["topic"], events == 50)


async def test_a_rollback_waits_for_a_clean_up(operator: Operator) -> None:
    """A rollback waits for the clean-up after a child that was given up, and that an operator terminates during it."""
    run, waves, child = await _given_up(operator)
    await run.steer(Verb.ROLLBACK)
    await run.until(lambda status: status.waiting is not None and child.id in status.waiting.why)
    await _start_clean_up(run, waves, child)
    await asyncio.sleep(1)
    assert await run.running()
    waves.catalog.may_clean.set()
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    notes = [note.partition("Z ")[2] for note in report.notes]
    cleaned = next(index for index, note in enumerate(notes) if note.startswith("cleaned up after topic: "))
    undone = next(index for index, note in enumerate(notes) if "children run during the rollback" in note)
    assert cleaned < undone


async def _given_up(operator: Operator, *, events: int = 1000) -> tuple[Run, WaveRun, Any]:
    """Return a migration that has given up a child, and waits for a decision; that child."""
    run, waves = await operator.start_migration({"topic": DEAF, "topic-2": GOOD}, SHORT, events=events)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.ERROR_BUDGET)
    return run, waves, operator.client.get_workflow_handle(f"{run.handle.id}/topic")


async def _start_clean_up(run: Run, waves: WaveRun, child: Any) -> None:
    """Terminate a child, and wait until the clean-up after it runs, which does not end by itself."""
    waves.catalog.may_clean.clear()
    await child.terminate()
    async with asyncio.timeout(20):
        while not await _cleans_up(run):  # noqa: ASYNC110 - only Temporal has it
            await asyncio.sleep(0.05)


async def _cleans_up(run: Run) -> bool:
    pending = (await run.handle.describe()).raw_description.pending_activities
    return any(each.activity_type.name == clean_topics.name for each in pending)
