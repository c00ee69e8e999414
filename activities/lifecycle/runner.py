"""How a step runs: blocking work in a thread, heartbeats, cancellation, notes to the workflow, typed failures."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from clients import errors
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import BLOCKED_GAUGE
from models.lifecycle.status import Progress, ProgressReport

ResultT = TypeVar("ResultT")

# Type of the failure, and whether Temporal shall try again.
_FAILURES: dict[type[errors.StoreError], tuple[FailureKind, bool]] = {
    errors.StoreUnreachable: (FailureKind.UNREACHABLE, True),
    errors.StoreProtocolError: (FailureKind.UNREACHABLE, True),
    errors.StoreConflict: (FailureKind.CONFLICT, False),
    errors.StoreNotFound: (FailureKind.CONFLICT, False),
    errors.StoreDenied: (FailureKind.DENIED, False),
    errors.StoreUnsupported: (FailureKind.UNSUPPORTED, False),
    errors.RecordNotWritable: (FailureKind.NOT_WRITABLE, False),
    errors.LedgerUnreadable: (FailureKind.UNREACHABLE, False),
    errors.BookieNotWritable: (FailureKind.UNREACHABLE, True),
}
_CANCEL_PATIENCE = 20.0
_UNEXPECTED_TRIES = 5
_FIRST_NOTE, _SHORTEST_PAUSE = 1.0, 4.0
# A step that keeps failing leaves the reason standing, where each attempt would end with another note.
_LATEST_FIRST = 60
_SIGNAL_LIMIT = timedelta(seconds=5)


class Cancelled(Exception):
    """Blocking work noticed that its step was cancelled."""


class ActivityContext:
    """What blocking work uses to stay in touch: whether it shall stop, and what it wants to tell."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._begun = time.monotonic()
        self._measured: tuple[str, int | None, Callable[[], int]] | None = None
        self._on_cancel: list[Callable[[], None]] = []
        self.note = ProgressReport()
        #: When metadata writes were blocked (seconds since the epoch), while they are; None otherwise.
        self.blocked_since: float | None = None

    def check(self) -> None:
        """Give up here if the step was cancelled.

        Raises:
            Cancelled: it was.
        """
        if self._stop.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Wait, but not past a cancellation.

        Raises:
            Cancelled: the step was cancelled.
        """
        self._stop.wait(seconds)
        self.check()

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` when the step is cancelled, so that work that cannot look here stops too."""
        self._on_cancel.append(action)

    def measure(self, unit: str, total: int | None, done: Callable[[], int]) -> None:
        """Tell how far the work is by asking `done` now and then; ends with the next `measure` or `progress`."""
        self._begun = time.monotonic()
        self._measured = (unit, total, done)

    def poll(self) -> None:
        """Bring the note up to date."""
        if self._measured is not None:
            unit, total, done = self._measured
            shown = self.note.progress
            # A job that reads twice counts from nothing again; what was shown stays.
            least = shown.done if shown is not None and shown.unit == unit else 0
            self._tell(max(least, done()), total, unit)

    def progress(self, done: int, total: int | None, unit: str, *, detail: str = "") -> None:
        """Tell how far the work is; `detail` says the same in other units."""
        self._measured = None
        self._tell(done, total, unit, detail)

    def _tell(self, done: int, total: int | None, unit: str, detail: str = "") -> None:
        rate = done / max(time.monotonic() - self._begun, 0.001)
        eta = (total - done) / rate if total and rate and total >= done else None
        self.note = ProgressReport(
            progress=Progress(
                done=done,
                total=total,
                unit=unit,
                detail=detail,
                rate=rate,
                eta_seconds=eta,
                basis="average rate of this step" if eta is not None else "",
            )
        )

    def waiting_for(self, why: str) -> None:
        """Tell what the work waits for; an empty text ends the wait."""
        self.note = ProgressReport(progress=self.note.progress, waiting_for=why)

    def cancel(self) -> None:
        """Ask the work to stop."""
        self._stop.set()
        for action in self._on_cancel:
            action()


async def run_activity(
    client: Client, work: Callable[[ActivityContext], ResultT], *, labels: Mapping[str, str]
) -> ResultT:
    """Run blocking work in a thread with heartbeats; cancellation reaches it, and store errors become typed failures.

    Args:
        client: for notes to the workflow.
        work: what blocks.
        labels: of the gauges that show its progress.

    Raises:
        ApplicationError: the work failed; its type is a `FailureKind`.
    """
    context = ActivityContext()
    task = asyncio.ensure_future(asyncio.to_thread(work, context))
    notes, gauges = _Notes(client), _Gauges(labels)
    try:
        while not task.done():
            context.poll()
            gauges.show(context)
            activity.heartbeat(context.note.model_dump(mode="json"))
            await asyncio.wait([task], timeout=0.5)
            await notes.tell(context.note)
    except asyncio.CancelledError:
        context.cancel()
        await _let_end(task)
        raise
    try:
        result = task.result()
    except errors.StoreError as error:
        kind, again = next(_FAILURES[one] for one in type(error).__mro__ if one in _FAILURES)
        if again:
            await notes.tell_trouble(context.note, str(error))
        raise ApplicationError(str(error), type=kind, non_retryable=not again) from error
    except Exception as error:
        if isinstance(error, ApplicationError):
            raise
        # Nobody foresaw this one. A passing cause gets a few tries; a defect must not be tried for ever.
        activity.logger.exception("the step failed unexpectedly")
        text = str(error).strip().partition("\n")[0][:500]
        last = activity.info().attempt >= _UNEXPECTED_TRIES
        raise ApplicationError(
            f"{type(error).__name__}: {text}", type=FailureKind.UNEXPECTED, non_retryable=last
        ) from None
    await notes.tell_end(context.note)
    return result


async def _let_end(task: asyncio.Future[ResultT]) -> None:
    """Wait for cancelled work, so that the step does not report its end while it still writes."""
    end = time.monotonic() + _CANCEL_PATIENCE
    while not task.done() and time.monotonic() < end:
        with contextlib.suppress(Exception):
            activity.heartbeat("stopping")
        await asyncio.wait([task], timeout=0.5)
    if task.done() and not task.cancelled():
        task.exception()


class _Gauges:
    """What dashboards show of a running step."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        meter = activity.metric_meter()
        self._progress = meter.create_gauge("pulsar_migrate_progress_records", "Units done in the running step")
        self._blocked = meter.create_gauge_float(BLOCKED_GAUGE, "Time with metadata writes blocked", "s")
        self._labels = dict(labels)

    def show(self, context: ActivityContext) -> None:
        if context.note.progress is not None:
            self._progress.set(context.note.progress.done, self._labels)
        if context.blocked_since is not None:
            self._blocked.set(max(0.0, time.time() - context.blocked_since), self._labels)


class _Notes:
    """Sends notes to the workflow, ever more seldom, so that a long step does not fill the history.

    What made an attempt fail is what the step waits for until a later attempt has something else to tell.
    """

    def __init__(self, client: Client) -> None:
        info = activity.info()
        self._handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        self._attempt = info.attempt
        self._begun = time.monotonic()
        self._next = self._begun + _FIRST_NOTE * min(self._attempt, _LATEST_FIRST)
        self._told = ProgressReport()

    async def tell(self, note: ProgressReport) -> None:
        now = time.monotonic()
        if note == self._told or now < self._next:
            return
        self._next = now + max(_SHORTEST_PAUSE, (now - self._begun) / 10)
        await self._send(note)

    async def tell_trouble(self, note: ProgressReport, why: str) -> None:
        """Tell why the step is tried again, unless an earlier attempt has told it lately, and this one nothing else."""
        power_of_two = self._attempt & (self._attempt - 1) == 0
        if power_of_two or self._told != ProgressReport():
            await self._send(ProgressReport(progress=note.progress, waiting_for=f"the next attempt of a step: {why}"))

    async def tell_end(self, note: ProgressReport) -> None:
        """Take back what this attempt, or an earlier one, waited for."""
        silent = self._told == ProgressReport()
        if self._told.waiting_for or (silent and self._attempt > 1):
            await self._send(ProgressReport(progress=note.progress))

    async def _send(self, note: ProgressReport) -> None:
        self._told = note
        # Notes are for people; the work does not depend on them.
        with contextlib.suppress(RPCError):
            await self._handle.signal("report_progress", note, rpc_timeout=_SIGNAL_LIMIT)
