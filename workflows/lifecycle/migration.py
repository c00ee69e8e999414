"""The lifecycle that every migration shares: phases, steps, windows, deadlines, the way back and the report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.execution import Execution, InputT
    from models.lifecycle.failures import FailureKind
    from models.lifecycle.policy import PhasePolicy
    from models.lifecycle.report import Report
    from models.lifecycle.status import Outcome, PhaseEntry, WaitKind
    from workflows.lifecycle.timers import Bounded, Interrupted

ResultT = TypeVar("ResultT")

KIND_KEY = SearchAttributeKey.for_keyword("MigrationKind")
PHASE_KEY = SearchAttributeKey.for_keyword("MigrationPhase")
TARGET_KEY = SearchAttributeKey.for_keyword("MigrationTarget")

HEARTBEAT = timedelta(seconds=10)
"""Longest silence of a running step before Temporal starts it anew."""

RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10))
"""Steps are retried until they succeed, fail for good, or the migration's own deadlines end them."""

# A frozen worker's polls stay open at the server, which would hand it attempt after attempt.
_RETRIES_OF_ONE = RetryPolicy(
    initial_interval=RETRIES.initial_interval,
    maximum_interval=RETRIES.maximum_interval,
    non_retryable_error_types=["TemporalTimeout:Heartbeat"],
)


_SHORTEST_PATIENCE = timedelta(seconds=5)
_LONGEST_PATIENCE = timedelta(minutes=10)


class Migration(Bounded[InputT]):
    """Base of all migration workflows.

    A subclass calls `super().__init__` in its `@workflow.init`, and runs its phases inside `carried_out`.
    """

    # Phases ---------------------------------------------------------------------------------------------------------

    async def phase(
        self, phase: str, rules: PhasePolicy, work: Callable[[], Awaitable[ResultT]], *, undoing: bool = False
    ) -> ResultT:
        """Enter a phase, record it, and run its work until it ends, is rolled back, or a deadline passes.

        A phase that undoes the others (`undoing`) is interrupted by nothing, and repeated until it succeeds.

        Raises:
            Interrupted: a rollback was asked for, or a deadline passed; the work was cancelled and has ended.
        """
        if undoing:
            self.lifecycle.undo()
        else:
            await self.wait_if_paused()
        entry = self._enter(phase, rules)
        try:
            result = await (self.run_shielded(work) if undoing else self.unless_interrupted(work()))
        except Interrupted as stop:
            self._close(entry, Outcome.ROLLED_BACK if stop.by_operator else Outcome.FAILED, str(stop))
            raise
        except BaseException as error:
            self._close(entry, Outcome.FAILED, _cause(error))
            raise
        self._close(entry, Outcome.DONE, "")
        return result

    async def step(
        self,
        activity: Callable[..., Awaitable[ResultT]],
        *args: Any,
        summary: str,
        limit: timedelta = timedelta(days=7),
        total: timedelta | None = None,
        queue: str | None = None,
    ) -> ResultT:
        """Run one activity with the house's retries; it gets an `Execution` before `args`.

        `queue` is the queue of one worker that can do the step faster. A worker that does not answer there, or falls
        silent, is given up after a few seconds, and any worker takes the step. `limit` bounds one attempt, `total` all
        of them.
        """
        common: dict[str, Any] = {
            "start_to_close_timeout": limit,
            "schedule_to_close_timeout": total,
            "heartbeat_timeout": HEARTBEAT,
            "retry_policy": RETRIES,
            "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            "summary": summary,
        }
        if queue and queue not in self._lost_queues:
            own: dict[str, Any] = {**common, "retry_policy": _RETRIES_OF_ONE}
            try:
                return await workflow.execute_activity_method(
                    activity,
                    args=(self._execution(), *args),
                    task_queue=queue,
                    schedule_to_start_timeout=timedelta(seconds=5),
                    **own,
                )
            except ActivityError as error:
                if not _worker_is_lost(error):
                    raise
                self._lost_queues.add(queue)
                self.note(f"the worker that watched the source is gone; another one takes over: {summary}")
        return await workflow.execute_activity_method(activity, args=(self._execution(), *args), **common)

    async def try_step(
        self,
        activity: Callable[..., Awaitable[ResultT]],
        *args: Any,
        summary: str,
        total: timedelta,
        otherwise: str,
    ) -> ResultT | None:
        """Run a step without which the migration goes on; None and the note `otherwise` where it fails."""
        try:
            return await self.step(activity, *args, summary=summary, total=total)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self.note(f"{otherwise}: {_cause(error)}")
            return None

    @asynccontextmanager
    async def rollback_on_failure(self, undo: Callable[[str], Awaitable[bool]]) -> AsyncGenerator[None]:
        """Undo what the phases inside did when they fail, are interrupted, or the workflow is cancelled.

        Args:
            undo: undoes, retrying for as long as it takes; True means that the migration turned out to be committed, so
                that it goes on as if nothing had happened.
        """
        try:
            yield
        except (Interrupted, ActivityError, ApplicationError, asyncio.CancelledError, CancelledError) as error:
            if not await undo(_cause(error)):
                raise
            self.lifecycle.commit()
            self.note("the migration had been committed before it was interrupted, and goes on")

    async def execute(self, work: Awaitable[Report]) -> Report:
        """Run the whole migration and give it its end: report, rollback or typed failure."""
        _upsert(KIND_KEY.value_set(self.kind), TARGET_KEY.value_set(self.target))
        try:
            report = await work
        except Interrupted as stop:
            if not stop.by_operator:
                self._end(Outcome.FAILED)
                raise ApplicationError(str(stop), type=FailureKind.DEADLINE, non_retryable=True) from None
            report = self.report(Outcome.ROLLED_BACK, str(stop))
        except ActivityError as error:
            self._end(Outcome.FAILED)
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type:
                raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from error
            raise ApplicationError(_cause(error), type=FailureKind.UNREACHABLE, non_retryable=True) from error
        except BaseException:
            self._end(Outcome.FAILED)
            raise
        self._end(report.outcome)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return report

    def report(self, outcome: Outcome, summary: str) -> Report:
        """The migration's result."""
        return Report(
            kind=self.kind,
            cluster=self.input.cluster,
            outcome=outcome,
            summary=summary,
            history=self.history,
            figures=self.figures,
            certificate=self.certificate,
            notes=self.notes,
            failed_items=self.failed_items,
        )

    # Inside ---------------------------------------------------------------------------------------------------------

    def _execution(self) -> Execution[InputT]:
        """The first argument of the activity that is scheduled next."""
        self._epoch += 1
        info = workflow.info()
        return Execution(
            input=self.input,
            run_id=info.first_execution_run_id,
            started=info.workflow_start_time,
            epoch=self._epoch,
        )

    def _enter(self, phase: str, rules: PhasePolicy) -> PhaseEntry:
        self.lifecycle.enter(rules)
        self._progress = self._waiting = self._step_waiting = None
        entry = PhaseEntry(phase=phase, started=workflow.now(), undo=rules.undo)
        self.history.append(entry)
        _upsert(PHASE_KEY.value_set(phase))
        gauge = workflow.metric_meter().create_gauge("pulsar_migrate_phase", "Index of the running phase")
        gauge.with_additional_attributes(self._labels(phase=phase)).set(len(self.history))
        self.publish()
        return entry

    def _close(self, entry: PhaseEntry, outcome: Outcome, note: str) -> None:
        entry.ended, entry.outcome, entry.note = workflow.now(), outcome, note
        meter = workflow.metric_meter()
        seconds = meter.create_gauge_float("pulsar_migrate_phase_seconds", "Time that a phase took", "s")
        seconds.with_additional_attributes(self._labels(phase=entry.phase)).set(entry.seconds(workflow.now()))
        self.publish()

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.lifecycle.end()
        self._waiting = self._step_waiting = None
        self.publish()

    async def run_shielded(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat the work until it succeeds; a cancellation of the workflow waits for it."""
        task = asyncio.ensure_future(self._repeat(work))
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self.note("the workflow was cancelled; the way back that is under way ends first")
        return task.result()

    async def _repeat(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        patience = _SHORTEST_PATIENCE
        while True:
            try:
                return await work()
            except (ActivityError, ApplicationError) as error:
                failure = _cause(error)
            self.note(f"the way back failed and is tried again in {patience.total_seconds():.0f} s: {failure}")
            self._wait_for(WaitKind.RETRY, "the next attempt of the way back", until=workflow.now() + patience)
            self.publish()
            await workflow.sleep(patience, summary="next attempt of the way back")
            self._waiting = None
            patience = min(2 * patience, _LONGEST_PATIENCE)


def _upsert(*updates: SearchAttributeUpdate[str]) -> None:
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation


def _cause(error: BaseException) -> str:
    while isinstance(error, ActivityError) and error.cause is not None:
        error = error.cause
    return str(error) or type(error).__name__


def _worker_is_lost(error: ActivityError) -> bool:
    lost = (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT)
    return isinstance(error.cause, ActivityTimeoutError) and error.cause.type in lost
