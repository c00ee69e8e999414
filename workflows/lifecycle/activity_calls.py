"""Calls of activities by a workflow: retries, heartbeat timeout, and the numbers that order attempts."""

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
from models.lifecycle.names import summary_line

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

HEARTBEAT = timedelta(seconds=10)
"""Heartbeat timeout: how long a running activity may be silent before Temporal starts it again."""

RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10))
"""Activities are retried until they succeed, fail finally, or the workflow's own deadlines end them."""

_JSON = {"encoding": b"json/plain"}


@dataclass(frozen=True)
class Call:
    """Options of an activity call.

    Attributes:
        summary: one line for the Web UI.
        limit: longest run of one attempt.
        total: longest time of all attempts together; None for no limit.
        queue: task queue, if not the workflow's own. A migration names the queue of the worker that does it fastest. If
            that worker does not answer within a few seconds, or stops heartbeating, any worker takes over.
    """

    summary: str
    limit: timedelta = timedelta(days=7)
    total: timedelta | None = None
    queue: str | None = None


class Numbered(Protocol):
    """The part of a workflow's state that orders its attempts.

    Attributes:
        started: when the first run of the workflow started; None before the first activity.
        epoch: grows with each scheduled activity.
    """

    started: datetime | None
    epoch: int


class FencedCalls(Generic[InputT]):
    """Calls the activities of one workflow.

    Args:
        input: of the workflow; every activity gets it as part of its `Execution`.
        state: has the numbers, and is carried from one run of the workflow to the next.
    """

    def __init__(self, input: InputT, state: Numbered) -> None:
        self._input = input
        self._numbers = state

    @property
    def phase(self) -> str:
        """The running phase, for the log; empty for a workflow without phases."""
        return ""

    async def ask(
        self,
        step: AnyStep[ArgsT, ResultT],
        call: Call,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT:
        """Run an activity outside of the phase's own work: from a handler, or for a check.

        Raises:
            ActivityError: it failed finally, timed out, or was cancelled.
            ApplicationError: its result cannot be decoded.
        """
        del nothing  # activities take positional arguments
        return cast("ResultT", decode(step, await self.execute(step, call, args)))

    async def execute(self, step: AnyStep[..., Any], call: Call, args: tuple[Any, ...]) -> str:
        """Run an activity, and return its result as JSON."""
        return await answer_of(step.name, **self.options(call, args))

    def options(self, call: Call, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the options of Temporal for a call, with the next epoch."""
        state, info = self._numbers, workflow.info()
        # By the clock, because a reset restores an old state. A counter would give the same numbers again, and an
        # attempt from before the reset would pass the fence of a later one.
        state.epoch = max(state.epoch + 1, round(workflow.now().timestamp() * 1000))
        # Kept over all runs: a later run has its own start time, which would order its attempts wrongly.
        state.started = state.started or info.workflow_start_time
        execution = Execution(
            input=self._input,
            # For claims, a run that continues as new is the same run.
            run_id=info.first_execution_run_id,
            started=state.started,
            epoch=state.epoch,
            phase=self.phase,
        )
        return {
            "args": [execution, *args],
            "task_queue": call.queue,
            "result_type": RawValue,
            "start_to_close_timeout": call.limit,
            "schedule_to_close_timeout": call.total,
            # Detects a dead worker; the timeout of an attempt is days.
            "heartbeat_timeout": HEARTBEAT,
            "retry_policy": RETRIES,
            # The rollback must start after the cancelled activity has ended, not during its last writes.
            "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            "summary": summary_line(call.summary),
        }


async def answer_of(activity: str, **options: Any) -> str:
    """Run an activity, and return its result as JSON.

    Raises:
        ActivityError: it failed finally, timed out, or was cancelled.
        CancelledError: it completed although it was cancelled; the caller must not continue.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    answer: RawValue = await workflow.execute_activity(activity, **options)
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer.payload.data.decode() or "null"


def decode(step: AnyStep[..., Any], answer: str) -> Any:
    """Return the decoded result of an activity.

    The SDK does not decode it: a failure there would block the workflow task, and with it the rollback.
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
