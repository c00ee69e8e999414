"""The runner of activities, on a server: what it tells while work runs, and how work ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
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
TIMEOUT = 120.0
# So long that a busy machine is not taken for an SDK that holds heartbeats back.
HEARTBEAT_TIMEOUT = timedelta(seconds=50)
SDK_THROTTLE = 0.8 * HEARTBEAT_TIMEOUT.total_seconds()
"""Seconds between two heartbeats that the SDK sends without a limit of the worker's."""

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
            start_to_close_timeout=timedelta(minutes=10),
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
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
    """The progress of a running activity in Temporal is renewed again and again, also while nothing is counted."""
    renewed = {ProgressUnit.RECORDS: threading.Event(), ProgressUnit.LEDGERS: threading.Event()}
    records = itertools.count()

    def work(context: ActivityContext) -> str:
        context.measure(ProgressTask.COPY, ProgressUnit.RECORDS, 6_000, lambda: next(records))
        while not renewed[ProgressUnit.RECORDS].is_set():
            context.pause(0.05)
        context.progress(ProgressTask.COMPARE, ProgressUnit.LEDGERS, 3, 4)
        while not renewed[ProgressUnit.LEDGERS].is_set():
            context.pause(0.05)
        return "done"

    async with running(stage, work) as handle:
        # It takes two seconds for each unit. The SDK alone would take twice as long as this limit.
        async with asyncio.timeout(2 * 3 * SDK_THROTTLE / 2):
            for unit, enough in renewed.items():
                times: set[datetime] = set()
                while len(times) < 4:
                    if (progress := await heartbeat_of(stage, handle)) and progress.unit is unit:
                        times.add(progress.as_of)
                    await asyncio.sleep(0.05)
                enough.set()
        assert await asyncio.wait_for(handle.result(), TIMEOUT) == "done"


async def test_signals_tell_changed_reasons_only(stage: Harness) -> None:
    """Progress sends no signal; a reason to wait sends one when it becomes another, and one when it ends.

    Notes for the next attempt are in heartbeats alone, as signals stay in the history.
    """
    reported = {WaitKind.BOOKIES: threading.Event(), WaitKind.STORE: threading.Event()}

    def work(context: ActivityContext) -> str:
        context.noted = {"position": "far"}
        for number in range(30):
            context.progress(ProgressTask.COPY, ProgressUnit.LEDGERS, number, 60)
            context.pause(0.05)
        for kind, is_reported in reported.items():
            for number in itertools.count(30):
                context.waiting_for(kind, "an operator", action="decide")
                context.progress(ProgressTask.COPY, ProgressUnit.LEDGERS, min(number, 60), 60)
                context.pause(0.05)
                if number > 60 and is_reported.is_set():
                    break
        context.clear_waiting()
        return "done"

    async with running(stage, work) as handle:
        async with asyncio.timeout(TIMEOUT):
            while not all(each.is_set() for each in reported.values()):
                for report in await handle.query(OneActivity.reports):
                    if report.waiting:
                        reported[report.waiting.kind].set()
                await asyncio.sleep(0.1)
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
    """Cancelled work notices it soon, by its checks and by its registered callback."""
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
    # With the next heartbeat of the SDK alone it would after all of its time.
    assert [at - begun < SDK_THROTTLE / 2 for at in heard] == [True]
