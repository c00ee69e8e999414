"""How a migration calls its activities: retries, fencing numbers, and answers that outlive a run of the workflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.execution import Execution, InputT
    from models.lifecycle.failures import FailureKind
    from models.lifecycle.state import MigrationState
    from workflows.lifecycle.continuation import Continuation
    from workflows.lifecycle.failures import cause_of
    from workflows.lifecycle.status import StatusBoard

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

HEARTBEAT = timedelta(seconds=10)
"""Longest silence of a running activity before Temporal starts it anew."""

RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10))
"""Activities are retried until they succeed, fail for good, or the migration's own deadlines end them."""

# A frozen worker's polls stay open at the server, which would hand it attempt after attempt.
_RETRIES_OF_ONE = replace(RETRIES, non_retryable_error_types=["TemporalTimeout:Heartbeat"])
_OWN_WORKER_LIMIT = timedelta(seconds=5)
_JSON = {"encoding": b"json/plain"}


@dataclass(frozen=True)
class Call:
    """How one activity is called.

    Attributes:
        summary: one line for the Web UI.
        limit: longest run of one attempt.
        total: longest time of all attempts together; None for no limit.
        queue: the queue of one worker that can do it faster. A worker that does not answer there, or falls silent, is
            given up after a few seconds, and any worker takes over.
        once: whether a later run of the workflow takes the answer over. False for what is asked again and again.
        again: asks once more what the last call of this activity asked; a later run takes the newest answer over.
        handover: whether the workflow may continue as a new run before it.
    """

    summary: str
    limit: timedelta = timedelta(days=7)
    total: timedelta | None = None
    queue: str | None = None
    once: bool = True
    again: bool = False
    handover: bool = True


class ActivityRunner(Generic[InputT]):
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
        self._input = input
        self._state = state
        self._status = status
        self._continuation = continuation
        self._calls = Counter[str]()
        self._running = ""
        #: Whether the phase goes over what it had done in an earlier run of the workflow.
        self.catching_up = bool(state.answers)

    def is_running(self, *activities: Callable[..., Any]) -> bool:
        """Whether the phase waits for one of these."""
        return self._running in {_definition(activity).name for activity in activities}

    def begin(self) -> None:
        """A phase, or another try of it, begins: answers of before belong to what is over."""
        self._calls.clear()
        self._state.answers.clear()
        self.catching_up = False

    async def run(
        self,
        activity: Callable[Concatenate[Any, Execution[InputT], ArgsT], Awaitable[ResultT]],
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
        definition = _definition(activity)
        if call.once and not call.again:
            self._calls[definition.name] += 1
        key = f"{definition.name}#{self._calls[definition.name]}"
        if call.once and not call.again and key in self._state.answers:
            return cast("ResultT", _decode(definition, self._state.answers[key]))
        self.catching_up = False
        if call.handover:
            await self._continuation.checkpoint()
        self._running = definition.name
        try:
            answer = await self._execute(definition, call, args)
        finally:
            self._running = ""
        if call.once:
            self._state.answers[key] = answer
        return cast("ResultT", _decode(definition, answer))

    async def ask(
        self,
        activity: Callable[Concatenate[Any, Execution[InputT], ArgsT], Awaitable[ResultT]],
        call: Call,
        *args: ArgsT.args,
        **nothing: ArgsT.kwargs,
    ) -> ResultT:
        """Run an activity beside the phase: from a handler, or to look how things stand.

        Raises:
            ActivityError: it failed for good, ran out of time, or was cancelled.
            ApplicationError: its answer cannot be read.
        """
        del nothing
        definition = _definition(activity)
        return cast("ResultT", _decode(definition, await self._execute(definition, call, args)))

    async def try_run(
        self,
        activity: Callable[Concatenate[Any, Execution[InputT], ArgsT], Awaitable[ResultT]],
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

    async def _execute(self, definition: _Definition, call: Call, args: tuple[Any, ...]) -> str:
        """The answer, as JSON."""
        state, info = self._state, workflow.info()
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
        options: dict[str, Any] = {
            "args": [execution, *args],
            "result_type": RawValue,
            "start_to_close_timeout": call.limit,
            "schedule_to_close_timeout": call.total,
            # A worker that is gone is noticed by its silence; the limit of an attempt is days.
            "heartbeat_timeout": HEARTBEAT,
            "retry_policy": RETRIES,
            # The way back begins when the cancelled activity has ended, and not beside its last writes.
            "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            "summary": call.summary,
        }
        if call.queue and call.queue not in self._state.lost_queues:
            own: dict[str, Any] = {
                **options,
                "task_queue": call.queue,
                "schedule_to_start_timeout": _OWN_WORKER_LIMIT,
                "retry_policy": _RETRIES_OF_ONE,
            }
            try:
                return _text(await workflow.execute_activity(definition.name, **own))
            except ActivityError as error:
                if not _worker_is_lost(error):
                    raise
                self._state.lost_queues.add(call.queue)
                self._status.note(
                    f"the worker that watches the source, or Temporal, was away; any worker takes over: {call.summary}"
                )
        return _text(await workflow.execute_activity(definition.name, **options))


@dataclass(frozen=True)
class _Definition:
    name: str
    answer: Any


def _definition(activity: Callable[..., Any]) -> _Definition:
    # The SDK keeps the definition on the method; it has no public way to ask for it.
    found: Any = getattr(activity, "__temporal_activity_definition")
    return _Definition(found.name, found.ret_type)


def _text(answer: RawValue) -> str:
    return answer.payload.data.decode() or "null"


def _decode(definition: _Definition, answer: str) -> Any:
    """What an activity answered.

    Decoded here and not by the SDK, where a failure would stop the workflow's task, and with it the way back.
    """
    try:
        payload = Payload(metadata=_JSON, data=answer.encode())
        return workflow.payload_converter().from_payload(payload, definition.answer)
    except Exception as error:
        raise ApplicationError(
            f"the answer of {definition.name} cannot be read: {error}. Do workers of different versions run?",
            type=FailureKind.UNEXPECTED,
            non_retryable=True,
        ) from error


def _worker_is_lost(error: ActivityError) -> bool:
    lost = (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT)
    return isinstance(error.cause, ActivityTimeoutError) and error.cause.type in lost
