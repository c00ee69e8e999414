"""How the steps of workflows about scalable topics run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import run_activity
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.owners import Owners
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution, InputT

ResultT = TypeVar("ResultT")
TaskT = TypeVar("TaskT", bound=ClusterTask[Any])


async def run_step(
    runtime: Runtime,
    execution: Execution[InputT],
    task: Callable[[Runtime, Any, Attempt, ActivityContext, Owners], TaskT],
    step: Callable[[TaskT], ResultT],
    *,
    kind: str,
    attempt: Attempt,
) -> ResultT:
    """Run a step in a thread, with all that it needs.

    Args:
        runtime: what the process shares.
        execution: of the workflow.
        task: what the step gets.
        step: the step.
        kind: of the workflow, for gauges.
        attempt: which attempt this is.

    Raises:
        ApplicationError: it failed; the type is a `FailureKind`.
    """
    owners = Owners(runtime.client, asyncio.get_running_loop())

    def work(context: ActivityContext) -> ResultT:
        with task(runtime, execution.input, attempt, context, owners) as opened:
            return step(opened)

    return await run_activity(runtime.client, work, labels={"kind": kind, "cluster": execution.input.cluster})
