"""Calls of activities by a migration: what runs now, what may fail, and lost workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from activities.lifecycle.step import AnyStep
from models.lifecycle.execution import InputT
from models.lifecycle.state import MigrationState
from workflows.lifecycle.activity_calls import (
    RETRIES,
    ArgsT,
    Call,
    FencedCalls,
    ResultT,
    answer_of,
    decode,
)
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.status import StatusBoard

# A frozen worker's polls stay open at the server, which would give it every attempt.
_RETRIES_OF_ONE = replace(RETRIES, non_retryable_error_types=["TemporalTimeout:Heartbeat"])
_OWN_WORKER_LIMIT = timedelta(seconds=5)


class ActivityRunner(FencedCalls[InputT]):
    """Runs the activities of one migration.

    Args:
        input: of the migration; every activity gets it as part of its `Execution`.
        state: of the migration.
        status: gets notes.
    """

    def __init__(self, input: InputT, state: MigrationState[Any, Any, Any], status: StatusBoard) -> None:
        super().__init__(input, state)
        self._state = state
        self._status = status
        self._running = ""

    @property
    def phase(self) -> str:
        """The running phase, for the log; empty between phases."""
        return self._state.running_phase

    def is_running(self, *steps: AnyStep[..., Any]) -> bool:
        """Return whether the phase waits for one of these steps."""
        return self._running in {step.name for step in steps}

    async def run(
        self,
        step: AnyStep[ArgsT, ResultT],
        call: Call,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT:
        """Run an activity as part of a phase.

        Raises:
            ActivityError: it failed finally, timed out, or was cancelled.
            ApplicationError: its result cannot be decoded.
        """
        del nothing  # activities take positional arguments
        self._running = step.name
        try:
            answer = await self.execute(step, call, args)
        finally:
            self._running = ""
        return cast("ResultT", decode(step, answer))

    async def try_run(
        self,
        step: AnyStep[ArgsT, ResultT],
        call: Call,
        otherwise: str,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT | None:
        """Run an optional activity; if it fails, add the note `otherwise` and return None.

        Raises:
            ActivityError: it was cancelled.
        """
        try:
            return await self.run(step, call, *args, **nothing)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            self._status.note(f"{otherwise}: {cause_of(error)}")
            return None

    # Inside -----------------------------------------------------------------------------------------------------------

    async def execute(self, step: AnyStep[..., Any], call: Call, args: tuple[Any, ...]) -> str:
        """Run an activity, and return its result as JSON; a lost worker's queue is not used again."""
        options = self.options(replace(call, queue=None), args)
        if call.queue and call.queue not in self._state.lost_queues:
            own: dict[str, Any] = {
                **options,
                "task_queue": call.queue,
                "schedule_to_start_timeout": _OWN_WORKER_LIMIT,
                "retry_policy": _RETRIES_OF_ONE,
            }
            try:
                return await answer_of(step.name, **own)
            except ActivityError as error:
                if not _worker_is_lost(error):
                    raise
                self._state.lost_queues.add(call.queue)
                self._status.note(
                    f"the worker that watches the source, or Temporal, was away; any worker takes over: {call.summary}"
                )
        return await answer_of(step.name, **options)


def _worker_is_lost(error: ActivityError) -> bool:
    lost = (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT)
    return isinstance(error.cause, ActivityTimeoutError) and error.cause.type in lost
