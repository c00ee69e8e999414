"""Resets of controllers, which only Temporal's dev server offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from models.topic_controller.input import SubscriptionRequest
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
    reset = await _reset_to_the_last_task(run)
    again = Run(stage.client.get_workflow_handle(run.handle.id), script, stage.client)
    async with asyncio.timeout(120):
        while True:
            if (await again.handle.describe()).run_id != reset:
                break
            await asyncio.sleep(0.05)
    await again.update("create_subscription", SubscriptionRequest(name="bill"))
    await again.handle.terminate()


async def _reset_to_the_last_task(run: Run) -> str:
    """Reset without the updates that came since; return the id of the run that continues."""
    completed = [
        event.event_id
        for event in (await run.handle.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    answer = await run.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=run.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.handle.id),
            reason="a test",
            workflow_task_finish_event_id=completed[-1],
            request_id="reset",
            reset_reapply_exclude_types=[ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE],
        )
    )
    return answer.run_id
