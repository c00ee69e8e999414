"""The runner of activities, on a server: what it tells while work runs, and how work ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import CancelledError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.progress import HEARTBEAT_THROTTLE
from activities.lifecycle.runner import run_activity
from models.lifecycle.status import Progress, ProgressReport, ProgressTask, ProgressUnit, WaitKind
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.lifecycle.workers import workers

QUEUE = "runner"
TIMEOUT = 30.0

numbers = itertools.count(1)


@workflow.defn(sandboxed=False)
class OneActivity:
    """Runs the activity `work`, and keeps what that reports by signal."""

    @workflow.init
    def __init__(self) -> None:
        self._reports: list[ProgressReport] = []

    @workflow.run
    async def run(self) -> str:
        """Run the activity, at most three times."""
        return await workflow.execute_activity(
            "work",
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            result_type=str,
        )

    @workflow.signal
    def report_progress(self, report: ProgressReport) -> None:
        """Keep the report."""
        self._reports.append(report)

    @workflow.query
    def reports(self) -> list[ProgressReport]:
        """Return all reports, in their order."""
        return self._reports


@asynccontextmanager
async def running(stage: Harness, work: Callable[[ActivityContext], str]) -> AsyncGenerator[WorkflowHandle[Any, str]]:
    """Run a workflow whose activity does this work, with a worker as its process sets it up."""

    @activity.defn(name="work")
    async def run() -> str:
        return await run_activity(stage.client, work)

    queue = f"{QUEUE}-{next(numbers)}"
    options: dict[str, Any] = {
        "task_queue": queue,
        "workflows": [OneActivity],
        "activities": [run],
        "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    }
    async with workers(stage.client, options):
        yield await stage.client.start_workflow(OneActivity.run, id=queue, task_queue=queue)


async def heartbeat_of(stage: Harness, handle: WorkflowHandle[Any, Any]) -> Progress | None:
    """Return the progress of the running activity that Temporal knows."""
    for pending in (await handle.describe()).raw_description.pending_activities:
        if details := list(pending.heartbeat_details.payloads):
            (report,) = await stage.client.data_converter.decode(details, [ProgressReport])
            return report.progress
    return None


async def test_heartbeats_are_fresh(stage: Harness) -> None:
    """The progress of a running activity in Temporal is at most a second old, however long nothing was counted."""
    begun = time.monotonic()
    end = begun + 6

    def work(context: ActivityContext) -> str:
        context.measure(ProgressTask.COPY, ProgressUnit.RECORDS, 6_000, lambda: int(1_000 * (time.monotonic() - begun)))
        while time.monotonic() < end - 3:
            context.pause(0.05)
        context.progress(ProgressTask.COMPARE, ProgressUnit.LEDGERS, 3, 4)
        while time.monotonic() < end:
            context.pause(0.05)
        return "done"

    ages: list[float] = []
    seen: set[ProgressUnit] = set()
    async with running(stage, work) as handle:
        while time.monotonic() < end - 0.2:
            if progress := await heartbeat_of(stage, handle):
                ages.append((datetime.now(UTC) - progress.as_of).total_seconds())
                seen.add(progress.unit)
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(handle.result(), TIMEOUT) == "done"
    assert seen == {ProgressUnit.RECORDS, ProgressUnit.LEDGERS}
    # A machine that is busy for a moment delays a few.
    assert sorted(ages)[int(0.9 * len(ages))] <= 1.0, ages


async def test_signals_tell_changed_reasons_only(stage: Harness) -> None:
    """Progress sends no signal; a reason to wait sends one when it becomes another, and one when it ends.

    Notes for the next attempt are in heartbeats alone, as signals stay in the history.
    """

    def work(context: ActivityContext) -> str:
        context.noted = {"position": "far"}
        for number in range(30):
            context.progress(ProgressTask.COPY, ProgressUnit.LEDGERS, number, 60)
            context.pause(0.05)
        for kind in (WaitKind.BOOKIES, WaitKind.STORE):
            for number in range(30, 60):
                context.waiting_for(kind, "an operator", action="decide")
                context.progress(ProgressTask.COPY, ProgressUnit.LEDGERS, number, 60)
                context.pause(0.05)
        context.clear_waiting()
        return "done"

    async with running(stage, work) as handle:
        assert await asyncio.wait_for(handle.result(), TIMEOUT) == "done"
        reports = await handle.query(OneActivity.reports)
    reasons = [report.waiting and (report.waiting.kind, report.waiting.action) for report in reports]
    assert reasons == [(WaitKind.BOOKIES, "decide"), (WaitKind.STORE, "decide"), None]
    assert all(report.progress and not report.noted for report in reports)


async def test_the_cause_of_a_retry_is_shown(stage: Harness) -> None:
    """A failed attempt leaves its cause as the reason to wait, and the attempt that succeeds removes it."""

    def work(context: ActivityContext) -> str:
        del context
        if activity.info().attempt == 1:
            raise OSError("the disk is away")
        return "done"

    async with running(stage, work) as handle:
        assert await asyncio.wait_for(handle.result(), TIMEOUT) == "done"
        first, last = await handle.query(OneActivity.reports)
    assert first.waiting is not None
    assert first.waiting.kind is WaitKind.RETRY
    assert "the disk is away" in first.waiting.why
    assert last.waiting is None


async def test_cancellation_reaches_the_work(stage: Harness) -> None:
    """Cancelled work notices it within two seconds, by its checks and by its registered callback."""
    heard: list[float] = []
    started = threading.Event()

    def work(context: ActivityContext) -> str:
        context.on_cancel(lambda: heard.append(time.monotonic()))
        started.set()
        while True:
            context.pause(0.05)

    async with running(stage, work) as handle:
        assert await asyncio.to_thread(started.wait, TIMEOUT)
        begun = time.monotonic()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(handle.result(), TIMEOUT)
    assert isinstance(failed.value.cause, CancelledError)
    assert [at - begun < 2 for at in heard] == [True]
