"""Starts with a state, forged reports, and texts and times without end are refused or cut: who may begin what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.names import TASK_QUEUE
from models.lifecycle.policy import VerbState
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import MAX_REASON, Verb
from models.metadata_store.phases import Phase
from models.metadata_store.state import MetadataStoreState
from temporal.converter import MAX_INPUT
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import Harness, Run, failed_tasks, on_dev_server
from tests.workflows.metadata_store.activities import PLAN, Script
from workflows.metadata_store.policy import POLICIES

_HUGE = "x" * 1_900_000
_PROGRESS = {"task": "copied", "unit": "records", "done": 1, "as_of": "2026-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts migrations on Temporal's dev server: the time-skipping one limits messages in its own way."""
    async with on_dev_server(make_stack) as ready:
        yield ready


async def _refused_start(stage: Harness, input: Any) -> ApplicationError:
    handle = await stage.client.start_workflow(
        "MetadataStoreMigration", input, id=f"begin/{next(stage.clusters)}", task_queue=TASK_QUEUE
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), 120)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == FailureKind.INVALID_INPUT
    return cause


async def _in_window(stage: Harness, **options: Any) -> Run:
    run = await stage.start(Script(), validation_window="PT24H", **options)
    await run.until(lambda status: "window" in status.deadlines)
    return run


async def _proceeds(run: Run) -> None:
    """Check that a migration can still be ended, and that none of its tasks has failed."""
    assert (await run.steer(Verb.PROCEED)).accepted
    assert (await run.report()).outcome is Outcome.DONE
    assert failed_tasks((await run.handle.fetch_history()).events) == []


async def test_a_start_with_a_state(stage: Harness) -> None:
    """A start that brings the state of a run which has passed all checks is refused."""
    state = MetadataStoreState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK]), committed=True, passed={*Phase})
    forged = {"input": {**PLAN, "cluster": "forged"}, "state": state.model_dump(mode="json")}
    failure = await _refused_start(stage, forged)
    assert failure.message.startswith("the input is wrong: ")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"accept": [_HUGE[: MAX_INPUT + 1]]}, "the input has 1,04"),
        ({"validation_window": "P999999999D"}, "validation_window: a duration of 999,999,999 days is too long"),
    ],
    ids=["long", "endless"],
)
async def test_a_start_without_measure(stage: Harness, fields: dict[str, Any], said: str) -> None:
    """An input that is too long, or has a window without an end, is refused."""
    assert said in (await _refused_start(stage, {**PLAN, "cluster": "large", **fields})).message


async def test_a_long_reason(stage: Harness) -> None:
    """A reason of 2 MB is cut in a signal and refused in an update; the state still fits into the next run."""
    run = await _in_window(stage, history_limit=15)
    for _ in range(3):
        await run.signal(Verb.PAUSE, _HUGE)
    await run.signal(Verb.PAUSE, "two", _HUGE[:100_000])
    await run.handle.signal(_HUGE[:900])
    refused = await run.refusal("steer", {"verb": "pause", "reason": "x" * (MAX_REASON + 1)})
    assert "reason: String should have at most" in refused.message
    status = await run.until(lambda status: sum("pause refused" in note for note in status.notes) == 4)
    assert max(map(len, status.notes)) < 1_100
    await _proceeds(run)


@pytest.mark.parametrize(
    "report",
    [
        {"progress": {**_PROGRESS, "detail": _HUGE}},
        {"progress": {**_PROGRESS, "basis": _HUGE, "eta_seconds": 1}},
        {"progress": {**_PROGRESS, "rate": float("inf")}},
        {"progress": {**_PROGRESS, "done": 10**400}},
        {"progress": {**_PROGRESS, "as_of": "2026-01-01T00:00:00"}},
        {"waiting": {"kind": "decision", "why": _HUGE, "action": "run this"}},
        {"waiting": {"kind": "unheard of", "why": "x"}},
        {"noted": {"x": _HUGE}},
        "no report",
    ],
    ids=["detail", "basis", "infinite", "large", "without-zone", "wait", "kind", "noted", "text"],
)
async def test_a_forged_report(stage: Harness, report: Any) -> None:
    """A forged report of progress adds at most a short line to the status, and opens no gate."""
    run = await _in_window(stage)
    before = await run.status()
    await run.handle.signal("report_progress", report)
    status = await run.status()
    assert len(status.model_dump_json()) < 20_000
    assert (status.phase, status.deadlines, status.legal_verbs) == (before.phase, before.deadlines, before.legal_verbs)
    str(status.progress)
    await _proceeds(run)


async def test_a_window_without_end(stage: Harness) -> None:
    """A window cannot be moved to where no date is."""
    run = await _in_window(stage)
    assert "is too long" in (await run.refusal("change_window", {"remaining": "P999999999D"})).message
    await _proceeds(run)
