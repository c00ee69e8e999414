"""Waves that a migration holds: its verbs, its status, its way back, and its continuations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus

from models.lifecycle.status import Outcome, ProgressUnit, WaitKind
from models.lifecycle.verbs import Verb
from models.lifecycle.waves import ErrorBudget, WaveGate, WavePolicy
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.lifecycle.wave_catalog import Behaviour
from tests.workflows.lifecycle.wave_operator import Operator, wave_operator

GOOD = Behaviour()
BAD = Behaviour(failed=("itself",))
POLICY = WavePolicy(canary=2, wave_size=20, parallelism=5, gate=WaveGate.CANARY, error_budget=ErrorBudget(items=1))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(stage: Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Starts migrations on a worker of their own."""
    async with wave_operator(stage.client, tmp_path_factory.mktemp("failures"), env=stage.env) as operator:
        yield operator


async def test_a_migration_in_waves(operator: Operator) -> None:
    """Verbs and status of a migration serve its waves, and it continues as new between items, gates and decisions."""
    names = [f"topic-{number:03d}" for number in range(200)]
    items = dict.fromkeys(names, GOOD) | {"topic-030": BAD, "topic-035": BAD}
    run, waves = await operator.start_migration(items, POLICY, events=150)

    await waves.held(WaitKind.GATE)
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.GATE)
    assert Verb.PROCEED in status.legal_verbs
    assert status.progress is not None
    assert (status.progress.done, status.progress.total, status.progress.unit) == (2, 200, ProgressUnit.TOPICS)
    await run.steer(Verb.PAUSE)
    await run.steer(Verb.PROCEED)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert len(waves.catalog.begun) == 2
    await run.steer(Verb.RESUME)

    shown = await waves.held(WaitKind.ERROR_BUDGET)
    assert [item.path for item in shown.first_failures] == ["topic-030", "topic-035"]
    await run.signal(Verb.PROCEED)

    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert [(failed.count, failed.listed_in) for failed in report.failed_items] == [(2, str(waves.catalog.failures))]
    assert sorted(item for item, _, _ in waves.catalog.begun) == names
    assert len(waves.catalog.runs) >= 5


async def test_a_rollback_ends_the_children_first(operator: Operator) -> None:
    """A rollback cancels the children that run, and the way back begins when they have ended."""
    items = dict.fromkeys([f"topic-{number:03d}" for number in range(100)], Behaviour(hang=True))
    run, waves = await operator.start_migration(items, POLICY.model_copy(update={"canary": 0}), events=1000)
    await waves.until(lambda _: len(waves.catalog.begun) == 5)
    await run.steer(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert any("0 children run on the way back" in note for note in report.notes)
    assert len(waves.catalog.begun) == 5
    for name in waves.catalog.names[:5]:
        child = operator.client.get_workflow_handle(f"{run.handle.id}/{name}")
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED
