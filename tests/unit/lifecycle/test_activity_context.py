"""Reports of blocking work: its progress, and why it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from activities.lifecycle import context as context_module
from activities.lifecycle.context import ActivityContext, Cancelled
from activities.lifecycle.progress import noted_before
from activities.lifecycle.runner import in_thread
from models.lifecycle.status import (
    Progress,
    ProgressReport,
    ProgressTask,
    ProgressUnit,
    ReadingName,
    Side,
    WaitKind,
    WaitReason,
)

NUMBERS = st.integers() | st.integers(min_value=-2, max_value=9)
TASKS, UNITS = st.sampled_from(ProgressTask), st.sampled_from([ProgressUnit.BYTES, ProgressUnit.TOPICS])


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: Iterator[int]) -> None:
    """Set the clock of the module, and of no other: threads of earlier tests would take of these seconds too."""
    monkeypatch.setattr(context_module, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


def progress_of(context: ActivityContext) -> Progress:
    """Return the progress of the work, which must exist."""
    progress = context.report().progress
    assert progress is not None
    return progress


def test_without_reports() -> None:
    """Work that says nothing has no progress, and waits for nothing."""
    assert ActivityContext().report() == ProgressReport()


def test_each_report_is_of_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is valid until the next one, and each has its own time."""
    moments = (datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC) for second in range(60))

    def now(_: object) -> datetime:
        return next(moments)

    monkeypatch.setattr(context_module, "datetime", SimpleNamespace(now=now))
    context = ActivityContext()
    context.progress(ProgressTask.DELETE, ProgressUnit.LEDGERS, 7, 10)
    first, second = progress_of(context), progress_of(context)
    assert (first.done, second.done) == (7, 7)
    assert first.as_of < second.as_of


def test_readings_for_dashboards() -> None:
    """A report has the newest reading of each side, and since when writes are blocked."""
    context = ActivityContext()
    context.read(ReadingName.PUBLISHERS, Side.BLUE, 7)
    context.read(ReadingName.PUBLISHERS, Side.BLUE, 5)
    context.read(ReadingName.PUBLISHERS, Side.GREEN, 1)
    context.blocked_since = 60.0
    report = context.report()
    assert {(reading.side, reading.value) for reading in report.readings} == {(Side.BLUE, 5), (Side.GREEN, 1)}
    assert report.blocked_since == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    context.blocked_since = None
    assert context.report().blocked_since is None


def test_a_count_does_not_go_back() -> None:
    """A job that reads twice counts from nothing again; the progress stays, until another task begins."""
    counts = iter((5, 2, 8))
    context = ActivityContext()
    context.measure(ProgressTask.COMPARE, ProgressUnit.RECORDS, 10, lambda: next(counts))
    assert [progress_of(context).done for _ in range(3)] == [5, 5, 8]
    context.measure(ProgressTask.COPY, ProgressUnit.RECORDS, 10, lambda: 1)
    assert progress_of(context).done == 1


def test_progress_does_not_end_a_wait() -> None:
    """A reason to wait remains next to the progress until it is withdrawn."""
    context = ActivityContext()
    context.waiting_for(WaitKind.BOOKIES, "2 bookies", action="start them")
    context.progress(ProgressTask.COPY, ProgressUnit.BYTES, 1, 2)
    report = context.report()
    assert report.waiting is not None
    assert report.summary.startswith("1 B of 2 B copied (50 %)")
    assert report.summary.endswith("; waits for 2 bookies")
    context.clear_waiting()
    assert context.report().waiting is None


def test_a_wait_around_a_call() -> None:
    """The reason is reported while the call runs, and remains when it fails: the next attempt waits for the same."""
    context = ActivityContext()
    with context.waiting(WaitKind.SCAN, "a scan"):
        assert context.report().waiting is not None
    assert context.report().waiting is None
    with pytest.raises(OSError, match="gone"), context.waiting(WaitKind.SCAN, "a scan"):
        raise OSError("gone")
    assert context.report().waiting is not None


def test_a_wait_that_is_asked_for() -> None:
    """A wait that is set from outside hides the reason of the work itself, as long as it lasts."""
    context = ActivityContext()
    reasons = [WaitReason(kind=WaitKind.SPARK, why="Spark"), None]
    context.set_wait_source(lambda: reasons.pop(0))
    with context.waiting(WaitKind.SCAN, "a scan"):
        waits = [context.report().waiting for _ in range(2)]
    assert [wait and wait.kind for wait in waits] == [WaitKind.SPARK, WaitKind.SCAN]


def test_cancellation() -> None:
    """A cancelled activity calls what it was asked to call, and its work gives up at the next look."""
    context = ActivityContext()
    called: list[str] = []
    context.on_cancel(lambda: called.append("job"))
    context.check()
    context.cancel()
    assert called == ["job"]
    with pytest.raises(Cancelled):
        context.pause(10)


@pytest.mark.parametrize(
    ("details", "noted"),
    [
        ([], {}),
        ([ActivityContext({"stream": "Failover"}).report().model_dump(mode="json")], {"stream": "Failover"}),
        (["of an older worker"], {}),
    ],
)
async def test_notes_of_a_lost_attempt(details: list[object], noted: dict[str, str]) -> None:
    """The last heartbeat of a lost attempt has what the next attempt must know."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, heartbeat_details=details)

    async def read() -> dict[str, str]:
        return noted_before()

    assert await environment.run(read) == noted


def test_rest_is_no_slow_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause in the copy the range of its rates is that of the work since."""
    set_clock(monkeypatch, iter(range(100)))
    context, done = ActivityContext(), 0
    context.measure(ProgressTask.COPY, ProgressUnit.RECORDS, 1_000, lambda: done)
    for held in (False, True, False):
        context.held = WaitReason(kind=WaitKind.PAUSE, why="`resume`") if held else None
        for _ in range(5):
            done += 0 if held else 10
            context.report()
        done += 0 if held else 10
        progress = progress_of(context)
        assert (progress.slowest, progress.fastest) == ((None, None) if held else (10, 10))


def test_work_of_an_earlier_attempt_is_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that continues at 9,000 of 10,000 does not promise the end in a second."""
    set_clock(monkeypatch, iter(range(0, 100, 10)))
    context = ActivityContext()
    context.progress(ProgressTask.COMPARE, ProgressUnit.LEDGERS, 9_000, 10_000)
    assert progress_of(context).eta_seconds is None
    context.progress(ProgressTask.COMPARE, ProgressUnit.LEDGERS, 9_100, 10_000)
    progress = progress_of(context)
    assert (progress.done, progress.rate, progress.eta_seconds) == (9_100, 5.0, 180.0)


def report_counts(context: ActivityContext, *counts: int) -> None:
    """Report topics that are drained, of 100, one count after the other."""
    for done in counts:
        context.progress(ProgressTask.DRAIN, ProgressUnit.TOPICS, done, 100)
        context.report()


def test_count_that_goes_back_is_measured_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that were drained and get messages again do not fail the step; what follows has its own rate."""
    set_clock(monkeypatch, iter(range(100)))
    context = ActivityContext()
    report_counts(context, 10, 20, 30, 40, 50)
    context.progress(ProgressTask.DRAIN, ProgressUnit.TOPICS, 30, 100)
    again = progress_of(context)
    assert (again.done, again.rate, again.slowest, again.eta_seconds) == (30, 0, None, None)
    report_counts(context, 32, 34, 36, 38)
    context.progress(ProgressTask.DRAIN, ProgressUnit.TOPICS, 40, 100)
    progress = progress_of(context)
    assert (progress.done, progress.slowest, progress.fastest) == (40, 2, 2)


def test_recent_rates_are_part_of_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress has the slowest and the fastest rate of the recent reports, once there are some seconds of them."""
    set_clock(monkeypatch, iter(range(100)))
    context = ActivityContext()
    report_counts(context, 0, 10, 20, 50, 80)
    progress = progress_of(context)
    assert progress.slowest is not None
    assert progress.fastest is not None
    assert 0 < progress.slowest < progress.fastest


def test_the_clock_of_this_machine_does_not_count() -> None:
    """Times are those of Temporal, whose clock may be far from this one: workflows compare them with their own."""
    scheduled = datetime(2020, 1, 1, tzinfo=UTC)
    context = ActivityContext(scheduled=scheduled, waited=3_600.0)
    assert 3_600 <= context.age < 3_660
    assert timedelta(hours=1) <= context.server_time - scheduled < timedelta(minutes=61)


def test_a_pause_of_any_length() -> None:
    """A pause that is longer than Python can wait lasts until the activity is cancelled."""
    context = ActivityContext()
    threading.Timer(0.05, context.cancel).start()
    with pytest.raises(Cancelled):
        context.pause(1e300)


async def test_work_ends_with_its_heartbeats() -> None:
    """Work whose heartbeat fails stops before its activity does: the next attempt does not start next to it."""
    context, ended = ActivityContext(), list[str]()

    def work() -> None:
        try:
            context.pause(2)
        except Cancelled:
            ended.append("cancelled")
            raise

    def beat() -> None:
        raise ValueError("no report")

    with pytest.raises(ValueError, match="no report"):
        await in_thread(context, work, beat)
    assert ended == ["cancelled"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(TASKS, UNITS, NUMBERS, st.none() | NUMBERS, st.floats(0, 900), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_any_counts_can_be_reported(
    steps: list[tuple[ProgressTask, ProgressUnit, int, int | None, float, bool, bool]],
) -> None:
    """Each report can be made and read again, for all counts of the work and its servers, and for all pauses."""
    context, now = ActivityContext(), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activities.lifecycle.context.time", SimpleNamespace(monotonic=lambda: now))
        for task, unit, number, total, seconds, measured, held in steps:
            context.held = WaitReason(kind=WaitKind.PAUSE, why="a person") if held else None
            if measured:
                context.measure(task, unit, total, lambda number=number: number)
            else:
                context.progress(task, unit, number, total)
            context.read(ReadingName.BACKLOG, Side.BLUE, number)
            for _ in range(3):
                now += seconds
                report = context.report()
                assert ProgressReport.model_validate(report.model_dump(mode="json", exclude_defaults=True)) == report
