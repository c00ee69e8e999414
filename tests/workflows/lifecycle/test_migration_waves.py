"""Waves that a migration holds, and its rollback.

Their continuations are tested on a real Temporal: this server loses signals that come as a run is continued.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus

from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.lifecycle.waves import WavePolicy
from tests.workflows.lifecycle.harness import Harness, Run, until_at_rest
from tests.workflows.lifecycle.wave_catalog import Behaviour
from tests.workflows.lifecycle.wave_operator import Operator, wave_operator

POLICY = WavePolicy(canary=0, parallelism=5)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(stage: Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Starts migrations on a worker of their own."""
    async with wave_operator(stage.client, tmp_path_factory.mktemp("failures"), env=stage.env) as operator:
        yield operator


async def test_a_rollback_ends_the_children_first(operator: Operator) -> None:
    """A rollback cancels the children that run, and the rollback steps begin when they have ended."""
    items = dict.fromkeys([f"topic-{number:03d}" for number in range(100)], Behaviour(hang=True))
    run, waves = await operator.start_migration(items, POLICY, events=1000)
    await waves.until(lambda _: len(waves.catalog.begun) == 5)
    await run.steer(Verb.ROLLBACK)
    # While time passes, that of a busy worker's children would be up before they get to know that they are cancelled.
    await run.ended()
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert any("0 children run during the rollback" in note for note in report.notes)
    assert len(waves.catalog.begun) == 5
    for name in waves.catalog.names[:5]:
        child = operator.client.get_workflow_handle(f"{run.handle.id}/{name}")
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_a_rollback_waits_for_a_child_past_its_deadline(operator: Operator) -> None:
    """A child whose deadline passes while it ends for a rollback is waited for, without a timer for each grace."""
    policy = POLICY.model_copy(update={"deadline": timedelta(hours=3), "cancel_grace": timedelta(minutes=5)})
    items = {"topic": Behaviour(hang=True, undo=timedelta(hours=9))}
    run, waves = await operator.start_migration(items, policy, events=1000)
    await waves.until(lambda _: len(waves.catalog.begun) == 1)
    child = operator.client.get_workflow_handle(f"{run.handle.id}/topic")
    await until_at_rest(child)
    await run.steer(Verb.ROLLBACK)
    # The child must have its cancellation before time passes.
    await until_at_rest(run.handle)
    await until_at_rest(child)
    before = await run.events()
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert await _saw_end(run, child.id) <= report.history[-1].started
    assert await run.events() - before < 30


async def test_a_rollback_waits_for_a_child_that_was_given_up(operator: Operator) -> None:
    """A rollback names the children that were given up before it, and waits until they have ended."""
    policy = POLICY.model_copy(update={"deadline": timedelta(hours=3), "cancel_grace": timedelta(minutes=5)})
    policy = policy.model_copy(update={"parallelism": 1})
    items = {"topic": Behaviour(hang=True, undo=timedelta(hours=9)), "topic-2": Behaviour()}
    run, waves = await operator.start_migration(items, policy, events=1000)
    await waves.until(lambda _: len(waves.catalog.begun) == 1)
    child = operator.client.get_workflow_handle(f"{run.handle.id}/topic")
    await until_at_rest(child)
    assert operator.env is not None
    await operator.env.sleep(timedelta(hours=4))
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.ERROR_BUDGET)
    await run.steer(Verb.ROLLBACK)
    await run.until(lambda status: status.waiting is not None and child.id in status.waiting.why)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    rolled_back = report.history[-1].ended
    assert rolled_back
    assert await _saw_end(run, child.id) <= rolled_back


async def _saw_end(run: Run, child: str) -> datetime:
    """Return when a migration noticed the end of its child; each workflow's own times may differ by a moment."""
    async for event in run.handle.fetch_history_events():
        name = event.WhichOneof("attributes")
        is_end = name and name.startswith("child_workflow_execution_") and "_started_" not in name
        if name and is_end and getattr(event, name).workflow_execution.workflow_id == child:
            return event.event_time.ToDatetime(tzinfo=UTC)
    raise AssertionError(f"{run.handle.id} has ended before {child}")
