"""How a migration calls its activities: answers that outlive a run of the workflow, and workers that are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from activities.lifecycle.step import AnyStep
from models.lifecycle.execution import InputT
from models.lifecycle.state import MigrationState
from workflows.lifecycle.activity_calls import (
    RETRIES,
    Activity,
    ArgsT,
    Call,
    Definition,
    FencedCalls,
    ResultT,
    decode,
    definition_of,
    text_of,
)
from workflows.lifecycle.continuation import Continuation
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.status import StatusBoard

# A frozen worker's polls stay open at the server, which would hand it attempt after attempt.
_RETRIES_OF_ONE = replace(RETRIES, non_retryable_error_types=["TemporalTimeout:Heartbeat"])
_OWN_WORKER_LIMIT = timedelta(seconds=5)


class ActivityRunner(FencedCalls[InputT]):
    """Runs the activities of one migration.

    Args:
        input: of the migration; every activity gets it as part of its `Execution`.
        state: of the migration.
        status: where notes go.
        continuation: asked before each activity.
    """

    def __init__(
        self, input: InputT, state: MigrationState[Any, Any, Any], status: StatusBoard, continuation: Continuation
    ) -> None:
        super().__init__(input, state)
        self._state = state
        self._status = status
        self._continuation = continuation
        self._calls = Counter[str]()
        self._running = ""
        #: Whether the phase goes over what it had done in an earlier run of the workflow.
        self.catching_up = bool(state.answers)

    def is_running(self, *activities: AnyStep[..., Any] | Callable[..., Any]) -> bool:
        """Whether the phase waits for one of these."""
        return self._running in {definition_of(activity).name for activity in activities}

    def begin(self) -> None:
        """A phase, or another try of it, begins: answers of before belong to what is over."""
        self._calls.clear()
        self._state.answers.clear()
        self.catching_up = False

    async def run(
        self,
        activity: Activity[ArgsT, ResultT, InputT],
        call: Call,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT:
        """Run an activity as part of a phase; one that has answered in an earlier run of the workflow is not run again.

        Raises:
            ActivityError: it failed for good, ran out of time, or was cancelled.
            ApplicationError: its answer cannot be read.
            ContinuationDue: the workflow continues as a new run first.
        """
        del nothing  # activities take their arguments by place
        definition = definition_of(activity)
        if call.once and not call.again:
            self._calls[definition.name] += 1
        key = f"{definition.name}#{self._calls[definition.name]}"
        if call.once and not call.again and key in self._state.answers:
            return cast("ResultT", decode(definition, self._state.answers[key]))
        self.catching_up = False
        if call.handover:
            await self._continuation.checkpoint()
        self._running = definition.name
        try:
            answer = await self.execute(definition, call, args)
        finally:
            self._running = ""
        if call.once:
            self._state.answers[key] = answer
        return cast("ResultT", decode(definition, answer))

    async def try_run(
        self,
        activity: Activity[ArgsT, ResultT, InputT],
        call: Call,
        otherwise: str,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT | None:
        """Run an activity without which the migration goes on; None and the note `otherwise` where it fails.

        Raises:
            ActivityError: it was cancelled.
            ContinuationDue: the workflow continues as a new run first.
        """
        try:
            return await self.run(activity, call, *args, **nothing)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            self._status.note(f"{otherwise}: {cause_of(error)}")
            return None

    # Inside -----------------------------------------------------------------------------------------------------------

    async def execute(self, definition: Definition, call: Call, args: tuple[Any, ...]) -> str:
        """The answer, as JSON."""
        options = self.options(replace(call, queue=None), args)
        if call.queue and call.queue not in self._state.lost_queues:
            own: dict[str, Any] = {
                **options,
                "task_queue": call.queue,
                "schedule_to_start_timeout": _OWN_WORKER_LIMIT,
                "retry_policy": _RETRIES_OF_ONE,
            }
            try:
                return text_of(await workflow.execute_activity(definition.name, **own))
            except ActivityError as error:
                if not _worker_is_lost(error):
                    raise
                self._state.lost_queues.add(call.queue)
                self._status.note(
                    f"the worker that watches the source, or Temporal, was away; any worker takes over: {call.summary}"
                )
        return text_of(await workflow.execute_activity(definition.name, **options))


def _worker_is_lost(error: ActivityError) -> bool:
    lost = (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT)
    return isinstance(error.cause, ActivityTimeoutError) and error.cause.type in lost
