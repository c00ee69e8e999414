"""How an activity runs: blocking work in a thread, heartbeats, cancellation, and typed failures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.progress import HEARTBEAT_EVERY, Gauges, WaitSignals, heartbeat, noted_before
from clients import errors
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution, InputT
from models.lifecycle.failures import FailureKind

ResultT = TypeVar("ResultT")

# By the nearest class, so that a new subclass has the type of its base.
_KINDS: dict[type[errors.StoreError], FailureKind] = {
    errors.StoreError: FailureKind.UNEXPECTED,
    errors.RetryableError: FailureKind.UNREACHABLE,
    errors.StoreContention: FailureKind.CONTENTION,
    errors.StoreConflict: FailureKind.CONFLICT,
    errors.StoreNotFound: FailureKind.CONFLICT,
    errors.StoreDenied: FailureKind.DENIED,
    errors.StoreUnsupported: FailureKind.UNSUPPORTED,
    errors.RecordNotWritable: FailureKind.NOT_WRITABLE,
    errors.LedgerUnreadable: FailureKind.LEDGER_UNREADABLE,
}
# Twice the default wait for a store's answer: work that blocks in a call looks for the cancellation after it.
_CANCEL_PATIENCE = 20.0
_UNEXPECTED_TRIES = 5


def this_attempt(execution: Execution[InputT]) -> Attempt:
    """The attempt that runs here."""
    return Attempt.of(execution, activity.info().workflow_id or "", attempt_number())


def attempt_number() -> int:
    """The number of the attempt that runs here.

    By the clock. Temporal counts attempts again where it resets a workflow while an activity runs, and the activity
    keeps its epoch then: the new attempt 1 would come after the old attempt 2, or pass for the old attempt 1.
    """
    return round(activity.info().current_attempt_scheduled_time.timestamp() * 1000)


async def require_open(client: Client) -> None:
    """Stop here where the run that this attempt belongs to has ended: a late attempt would begin again what is over.

    For a step that takes a claim which nobody holds. Others find in the claim itself that it is not theirs any more.

    Raises:
        ApplicationError: the run has ended.
    """
    info = activity.info()
    run = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    status = (await run.describe()).status
    if status is not WorkflowExecutionStatus.RUNNING:
        text = f"run {info.workflow_run_id} of {info.workflow_id} has ended; a late attempt stops"
        raise failure_of(errors.Superseded(text))


async def run_activity(
    client: Client, work: Callable[[ActivityContext], ResultT], *, labels: Mapping[str, str]
) -> ResultT:
    """Run blocking work in a thread with heartbeats; cancellation reaches it, and store errors become typed failures.

    Args:
        client: for signals to the workflow.
        work: what blocks.
        labels: of the gauges that show its progress.

    Raises:
        ApplicationError: the work failed; its type is a `FailureKind`.
    """
    info = activity.info()
    waited = (info.started_time - info.scheduled_time).total_seconds()
    context = ActivityContext(noted_before(), info.scheduled_time, waited=waited)
    gauges = Gauges(labels)
    async with report_to_workflow(client, context) as signals:

        def beat() -> None:
            report = heartbeat(context)
            gauges.show(report, context)
            signals.report(report)

        try:
            result = await in_thread(context, lambda: work(context), beat)
        finally:
            gauges.close()
    return result


@asynccontextmanager
async def report_to_workflow(client: Client, context: ActivityContext) -> AsyncGenerator[WaitSignals]:
    """Tell the workflow why what is inside must be tried again, and when it waits no more; failures become typed.

    Args:
        client: for signals to the workflow.
        context: of the activity.

    Raises:
        ApplicationError: the work failed; its type is a `FailureKind`.
    """
    signals = WaitSignals(client)
    try:
        yield signals
    except asyncio.CancelledError:
        await signals.flush()
        raise
    except Exception as error:
        failure = as_failure(error)
        if not failure.non_retryable:
            await signals.report_retry(context.report(), failure.message)
        if failure is error:
            raise
        # What nobody foresaw may carry a trace of many kilobytes, and the history keeps all causes.
        raise failure from (error if isinstance(error, errors.StoreError) else None)
    await signals.report_done(context.report())


async def in_thread(context: ActivityContext, work: Callable[[], ResultT], beat: Callable[[], None]) -> ResultT:
    """Run blocking work in a thread, with heartbeats; a cancellation reaches it, and waits for its end.

    Args:
        context: by which the work hears of the cancellation.
        work: what blocks.
        beat: records a heartbeat.

    Raises:
        Exception: the work failed.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        while not task.done():
            beat()
            await asyncio.wait([task], timeout=HEARTBEAT_EVERY)
    except asyncio.CancelledError:
        context.cancel()
        await _let_end(task, context)
        raise
    return task.result()


def failure_of(error: errors.StoreError) -> ApplicationError:
    """How Temporal is told of a store's error: its type, its fields, and whether to try again."""
    details = [error.fields] if error.fields else []
    # What may pass is retried until the migration's own deadlines end it. What is final begins the way back at once,
    # since writes may be blocked.
    final = not isinstance(error, errors.RetryableError)
    return ApplicationError(str(error), *details, type=errors.by_class(_KINDS, error), non_retryable=final)


def as_failure(error: Exception) -> ApplicationError:
    """How Temporal is told of what failed an activity."""
    if isinstance(error, ApplicationError):
        return error
    if isinstance(error, errors.StoreError):
        return failure_of(error)
    # Nobody foresaw this one. A passing cause gets a few tries; a defect must not be tried indefinitely.
    activity.logger.error("the step failed unexpectedly", exc_info=error)
    text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:500]}"
    last = activity.info().attempt >= _UNEXPECTED_TRIES
    return ApplicationError(text, type=FailureKind.UNEXPECTED, non_retryable=last)


async def _let_end(task: asyncio.Future[ResultT], context: ActivityContext) -> None:
    """Wait for cancelled work, so that the activity does not report its end while it still writes."""
    end = time.monotonic() + _CANCEL_PATIENCE
    while not task.done() and time.monotonic() < end:
        with contextlib.suppress(Exception):
            heartbeat(context)
        await asyncio.wait([task], timeout=HEARTBEAT_EVERY)
    if task.done() and not task.cancelled():
        # Looked at, or asyncio would report it as never retrieved.
        task.exception()
