"""The steps of an operation on scalable topics, which brokers' own controllers carry out (PIP-468)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from temporalio import activity

from activities.lifecycle.runner import require_open, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.operations import run
from activities.scalable_topic.operations.context import OperationTask
from activities.scalable_topic.steps import run_step
from models.lifecycle.execution import Execution
from models.scalable_topic.operation_input import KIND, ScalableOperationInput
from models.scalable_topic.operation_results import OperationCheck, OperationOutcome
from models.scalable_topic.results import Released

ResultT = TypeVar("ResultT")


class ScalableOperationActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="scalable_topic_check_operation")
    async def check(self, execution: Execution[ScalableOperationInput]) -> OperationCheck:
        """PRECHECK: which topics, and in a dry run what would be done with each; writes nothing."""
        return await self._run(execution, run.check)

    @activity.defn(name="scalable_topic_operate")
    async def operate(self, execution: Execution[ScalableOperationInput]) -> OperationOutcome:
        """OPERATE: carry the operation out for all topics, under the claim of the cluster where it changes them."""
        await require_open(self._runtime.client)
        return await self._run(execution, run.operate)

    @activity.defn(name="scalable_topic_complete_operation")
    async def complete(self, execution: Execution[ScalableOperationInput]) -> Released:
        """COMPLETE and ROLLBACK: put held policies of topics back, and give up the claim."""
        return await self._run(execution, run.complete)

    async def _run(
        self, execution: Execution[ScalableOperationInput], step: Callable[[OperationTask], ResultT]
    ) -> ResultT:
        task = ClusterTask[ScalableOperationInput]
        return await run_step(self._runtime, execution, task, step, kind=KIND, attempt=this_attempt(execution))
