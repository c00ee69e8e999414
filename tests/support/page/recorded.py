"""Views of migrations as saved histories went through them: every status that the product itself published."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from unittest.mock import patch

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from models.lifecycle.status import Status
from temporal.client import runtime_without_logs
from temporal.codec import data_converter
from tests.histories.record import FOLDER
from worker.catalog import workflows
from workflows.lifecycle.status import StatusBoard


@dataclass(frozen=True)
class Recorded:
    """A status that a run published.

    Attributes:
        workflow_id: of the run.
        at: the workflow's time then.
        status: as the query would have returned it.
    """

    workflow_id: str
    at: datetime
    status: Status


@contextmanager
def _collected() -> Generator[list[Recorded]]:
    """Collect each status that a workflow of this process publishes."""
    published: list[Recorded] = []

    def publish(board: StatusBoard) -> None:
        status = Status.model_validate(board.status().model_dump(mode="json"))
        published.append(Recorded(workflow.info().workflow_id, workflow.now(), status))

    with patch.object(StatusBoard, "publish", publish):
        yield published


@cache
def statuses(name: str) -> tuple[Recorded, ...]:
    """Return what the run of a saved history published, in its order."""
    file = FOLDER / f"{name}.json"
    history = json.loads(file.read_text())
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"].get("workflowId", "w")
    with _collected() as published:
        asyncio.run(_replay(WorkflowHistory.from_json(workflow_id, history)))
    return tuple(replace(each, workflow_id=workflow_id) for each in published)


async def _replay(history: WorkflowHistory) -> None:
    replayer = Replayer(
        workflows=workflows(),
        data_converter=data_converter(),
        workflow_runner=UnsandboxedWorkflowRunner(),
        runtime=runtime_without_logs(),
        # On a busy machine the SDK takes a slow task for a deadlock after two seconds, and ends the replay.
        debug_mode=True,
    )
    await replayer.replay_workflow(history)
