"""Runner of activities: blocking work in a thread, heartbeats, cancellation, and typed failures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.progress import HEARTBEAT_EVERY, WaitSignals, heartbeat, noted_before
from clients import errors
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution, InputT
from models.lifecycle.failures import FailureKind
from models.text import shown

ResultT = TypeVar("ResultT")

# The nearest base class counts, so that a new subclass has the type of its base.
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
# Twice the default timeout of a store: work that blocks in a call notices the cancellation after it.
_CANCEL_TIMEOUT = 20.0
_UNEXPECTED_TRIES = 5


def this_attempt(execution: Execution[InputT]) -> Attempt:
    """Return the attempt that runs here."""
    return Attempt.of(execution, activity.info().workflow_id or "", attempt_number())


def attempt_number() -> int:
    """Return the number of the attempt that runs here: the time at which Temporal scheduled it, in milliseconds.

    Temporal's own count is not unique. After a reset during an activity it starts at 1 again while the activity keeps
    its epoch, so the new attempt 1 would be older than the old attempt 2, or equal to the old attempt 1.
    """
    return round(activity.info().current_attempt_scheduled_time.timestamp() * 1000)


async def require_open(client: Client) -> None:
    """Refuse a late attempt, whose run has ended and which would start again.

    For steps that take a free claim. Other steps see from the claim that their run does not hold it any more.

    Raises:
        ApplicationError: the run has ended.
    """
    info = activity.info()
    run = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    status = (await run.describe()).status
    if status is not WorkflowExecutionStatus.RUNNING:
        text = f"run {info.workflow_run_id} of {info.workflow_id} has ended; this late attempt stops"
        raise failure_of(errors.Superseded(text))


async def run_activity(client: Client, work: Callable[[ActivityContext], ResultT]) -> ResultT:
    """Run blocking work in a thread with heartbeats; cancellation reaches it, and store errors become typed failures.

    Args:
        client: for signals to the workflow.
        work: what blocks.

    Raises:
        ApplicationError: the work failed; its type is a `FailureKind`.
    """
    info = activity.info()
    waited = (info.started_time - info.scheduled_time).total_seconds()
    workflow_id = info.workflow_id or ""
    context = ActivityContext(noted_before(), info.scheduled_time, waited=waited, workflow_id=workflow_id)
    async with report_to_workflow(client, context) as signals:

        def beat() -> None:
            signals.report(heartbeat(context))

        return await in_thread(context, lambda: work(context), beat)


@asynccontextmanager
async def report_to_workflow(client: Client, context: ActivityContext) -> AsyncGenerator[WaitSignals]:
    """Report to the workflow why the block must be retried, and when it does not wait any more; type its failures.

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
        # An unexpected error may have a traceback of many kilobytes, and the history keeps all causes.
        raise failure from (without_other_causes(error) if isinstance(error, errors.StoreError) else None)
    await signals.report_done(context.report())


async def in_thread(context: ActivityContext, work: Callable[[], ResultT], beat: Callable[[], None]) -> ResultT:
    """Run blocking work in a thread, with heartbeats; pass on a cancellation, and wait until the work has stopped.

    Args:
        context: tells the work about the cancellation.
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
    except (Exception, asyncio.CancelledError):
        # Also when a heartbeat fails: the next attempt must not start next to this one.
        context.cancel()
        await _let_end(task, context)
        raise
    return task.result()


def without_other_causes(error: errors.StoreError) -> errors.StoreError:
    """Return the error with its causes up to the first that is not ours: others repeat what a server sent, as it is."""
    cause = error.__cause__
    error.__cause__ = without_other_causes(cause) if isinstance(cause, errors.StoreError) else None
    return error


def failure_of(error: errors.StoreError) -> ApplicationError:
    """Return a store's error as Temporal's failure: its type, its fields, and whether it is retried."""
    details = [error.fields] if error.fields else []
    # A transient error is retried until the migration's own deadlines end it. A final one starts the rollback at once,
    # since writes may be blocked.
    final = not isinstance(error, errors.RetryableError)
    return ApplicationError(str(error), *details, type=errors.by_class(_KINDS, error), non_retryable=final)


def as_failure(error: Exception) -> ApplicationError:
    """Return the error of an activity as Temporal's failure."""
    if isinstance(error, ApplicationError):
        return error
    if isinstance(error, errors.StoreError):
        return failure_of(error)
    # Unexpected error: retry a few times in case it is transient, then fail.
    activity.logger.error("the step failed unexpectedly", exc_info=error)
    text = f"{type(error).__name__}: {shown(str(error).strip().partition(chr(10))[0])}"
    last = activity.info().attempt >= _UNEXPECTED_TRIES
    return ApplicationError(text, type=FailureKind.UNEXPECTED, non_retryable=last)


async def _let_end(task: asyncio.Future[ResultT], context: ActivityContext) -> None:
    """Wait for cancelled work, so that the activity does not report its end while it still writes."""
    end = time.monotonic() + _CANCEL_TIMEOUT
    while not task.done() and time.monotonic() < end:
        with contextlib.suppress(Exception):
            heartbeat(context)
        await asyncio.wait([task], timeout=HEARTBEAT_EVERY)
    if task.done() and not task.cancelled():
        # Retrieve the exception, or asyncio would log that it never was.
        task.exception()
