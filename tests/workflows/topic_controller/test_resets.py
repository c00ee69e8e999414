"""Resets of controllers, which only Temporal's dev server offers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from models.topic_controller.input import (
    ControllerUrls,
    MergeRequest,
    SegmentRequest,
    SplitRequest,
    SubscriptionRequest,
)
from models.topic_controller.pruning import PruneRequest
from models.topic_controller.sessions import GraceChange
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import Harness, Run, on_dev_server
from tests.workflows.topic_controller.activities import Script, until


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts controllers on Temporal's dev server."""
    async with on_dev_server(make_stack) as ready:
        yield ready


async def test_a_reset_of_an_idle_controller(stage: Harness) -> None:
    """The next run begins although nothing happens, and accepts changes."""
    script = Script()
    run = await stage.start(script)
    await until(run, lambda status: status.epoch == 0 and not status.doing)
    # Without this update, the last task has no event that the workflow reacts to.
    await run.update("set_grace", GraceChange(grace=timedelta(hours=2)))
    again = await _reset(run, updates=False)
    await again.update("create_subscription", SubscriptionRequest(name="bill"))
    await again.handle.terminate()


@pytest.mark.parametrize(
    ("update", "request_"),
    [
        ("create_subscription", SubscriptionRequest(name="bill")),
        ("ensure_segment", SegmentRequest(segment=0)),
        ("set_controller_urls", ControllerUrls(urls=("https://old:8443",))),
        ("split", SplitRequest(segment=0)),
        ("merge", MergeRequest(segments=(0, 1))),
        ("prune", PruneRequest()),
    ],
)
async def test_an_update_that_is_sent_again(stage: Harness, update: str, request_: BaseModel) -> None:
    """After a reset, a change that was answered before is not made again: its object may be another one by now."""
    script = Script()
    run = await stage.start(script)
    await until(run, lambda status: status.epoch == 0 and not status.doing)
    await run.update(update, request_)
    before = len(script.steps)
    again = await _reset(run, updates=True)
    await until(again, lambda status: status.epoch >= 0 and not status.doing)
    assert script.steps[before:] == ["open"]
    await again.handle.terminate()


async def _reset(run: Run, *, updates: bool) -> Run:
    """Reset to before the first update, send updates again or not, and return the run that follows the reset one."""
    completed = 0
    for event in (await run.handle.fetch_history()).events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            completed = event.event_id
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            break
    left_out = [] if updates else [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE]
    reset = await run.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=run.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.handle.id),
            reason="a test",
            workflow_task_finish_event_id=completed,
            request_id=str(uuid.uuid4()),
            reset_reapply_exclude_types=left_out,
        )
    )
    again = Run(run.client.get_workflow_handle(run.handle.id), run.script, run.client)
    async with again.within():
        while True:
            if (await again.handle.describe()).run_id != reset.run_id:
                return again
            await asyncio.sleep(0.05)
