"""How a workflow calls an activity: retries, silence, and the numbers by which attempts are ordered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import AnyStep
from models.lifecycle.execution import Execution, InputT
from models.lifecycle.failures import FailureKind

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

HEARTBEAT = timedelta(seconds=10)
"""Longest silence of a running activity before Temporal starts it again."""

RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10))
"""Activities are retried until they succeed, fail for good, or the workflow's own deadlines end them."""

_JSON = {"encoding": b"json/plain"}


@dataclass(frozen=True)
class Call:
    """How one activity is called.

    Attributes:
        summary: one line for the Web UI.
        limit: longest run of one attempt.
        total: longest time of all attempts together; None for no limit.
        queue: where it runs, if not on the workflow's queue. For a migration it is the queue of one worker that can do
            it faster: one that does not answer there, or falls silent, is given up after a few seconds, and any worker
            takes over.
    """

    summary: str
    limit: timedelta = timedelta(days=7)
    total: timedelta | None = None
    queue: str | None = None


class Numbered(Protocol):
    """The part of a workflow's state by which its attempts are ordered.

    Attributes:
        started: when the first run of the workflow began; None before the first activity.
        epoch: grows with each activity that is scheduled.
    """

    started: datetime | None
    epoch: int


class FencedCalls(Generic[InputT]):
    """Calls the activities of one workflow.

    Args:
        input: of the workflow; every activity gets it as part of its `Execution`.
        state: holds the numbers, and goes from one run of the workflow to the next.
    """

    def __init__(self, input: InputT, state: Numbered) -> None:
        self._input = input
        self._numbers = state

    async def ask(
        self,
        step: AnyStep[ArgsT, ResultT],
        call: Call,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT:
        """Run an activity next to the phase: from a handler, or to look how things stand.

        Raises:
            ActivityError: it failed for good, ran out of time, or was cancelled.
            ApplicationError: its answer cannot be read.
        """
        del nothing  # activities take their arguments by place
        return cast("ResultT", decode(step, await self.execute(step, call, args)))

    async def execute(self, step: AnyStep[..., Any], call: Call, args: tuple[Any, ...]) -> str:
        """Run an activity; the answer, as JSON."""
        return await answer_of(step.name, **self.options(call, args))

    def options(self, call: Call, args: tuple[Any, ...]) -> dict[str, Any]:
        """How an activity is scheduled, with the next numbers."""
        state, info = self._numbers, workflow.info()
        # By the clock, because a reset takes the state back: a count would give numbers out again, and an attempt from
        # before the reset would pass the fence of one from after it.
        state.epoch = max(state.epoch + 1, round(workflow.now().timestamp() * 1000))
        # A later run has a start of its own, and would order its attempts by that.
        state.started = state.started or info.workflow_start_time
        execution = Execution(
            input=self._input,
            # For claims a run that continues as new is the same run.
            run_id=info.first_execution_run_id,
            started=state.started,
            epoch=state.epoch,
        )
        return {
            "args": [execution, *args],
            "task_queue": call.queue,
            "result_type": RawValue,
            "start_to_close_timeout": call.limit,
            "schedule_to_close_timeout": call.total,
            # A worker that is gone is noticed by its silence; the limit of an attempt is days.
            "heartbeat_timeout": HEARTBEAT,
            "retry_policy": RETRIES,
            # The way back begins when the cancelled activity has ended, and not next to its last writes.
            "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            "summary": call.summary,
        }


async def answer_of(activity: str, **options: Any) -> str:
    """Run an activity; its answer as JSON.

    Raises:
        ActivityError: it failed for good, ran out of time, or was cancelled.
        CancelledError: it has answered although it was cancelled: what waits for it must not continue.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    answer: RawValue = await workflow.execute_activity(activity, **options)
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer.payload.data.decode() or "null"


def decode(step: AnyStep[..., Any], answer: str) -> Any:
    """What an activity answered.

    Decoded here and not by the SDK, where a failure would stop the workflow's task, and with it the way back.
    """
    try:
        payload = Payload(metadata=_JSON, data=answer.encode())
        return workflow.payload_converter().from_payload(payload, step.answer)
    except Exception as error:
        raise ApplicationError(
            f"the answer of {step.name} cannot be read: {error}. Do workers of different versions run?",
            type=FailureKind.UNEXPECTED,
            non_retryable=True,
        ) from error
