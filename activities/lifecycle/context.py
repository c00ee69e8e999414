"""The context of blocking work: cancellation, progress, and what it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from models.lifecycle.rates import RecentRates
from models.lifecycle.status import (
    MOST,
    Progress,
    ProgressReport,
    ProgressTask,
    ProgressUnit,
    Reading,
    ReadingName,
    Side,
    WaitKind,
    WaitReason,
)


class Cancelled(Exception):
    """Blocking work noticed that its activity was cancelled."""


class Deadline:
    """The end of a wait, some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self._end


@dataclass
class _Count:
    """The progress that is reported now.

    Attributes:
        task: what is done.
        unit: what is counted.
        total: units in all; None where not known.
        done: returns the units done.
        detail: the same in other units.
        started: when the count began, by the monotonic clock.
        first: units done then, for example by the attempt before.
        rates: of the recent time.
        most: units that were ever seen done; a job that reads twice counts from 0 again.
    """

    task: ProgressTask
    unit: ProgressUnit
    total: int | None
    done: Callable[[], int]
    detail: str
    started: float
    first: int
    rates: RecentRates
    most: int


class ActivityContext:
    """The link between blocking work, which runs in a thread, and the runner of its activity.

    Args:
        noted: notes of the previous attempt for this one.
        scheduled: when the activity was scheduled, before its first attempt; None for now.
        waited: seconds from then to the start of this attempt, by the server's clock: this machine's may differ.
        memory: what the previous poll of a polling activity remembered; None for none.
        workflow_id: of the workflow that called the activity; empty where none did.
    """

    def __init__(
        self,
        noted: Mapping[str, str] | None = None,
        scheduled: datetime | None = None,
        *,
        waited: float = 0.0,
        memory: Any = None,
        workflow_id: str = "",
    ) -> None:
        #: Notes for the next attempt, in case this one is lost; replaced as a whole.
        self.noted: Mapping[str, str] = dict(noted or {})
        self.waited = waited
        self.memory = memory
        self.workflow_id = workflow_id
        self._started = (scheduled or datetime.now(UTC)) + timedelta(seconds=waited)
        self._begun = time.monotonic()
        self._stop = threading.Event()
        self._count: _Count | None = None
        self._waiting: WaitReason | None = None
        self._ask_wait: Callable[[], WaitReason | None] = lambda: None
        #: Why the copy of this work is held; None while it runs.
        self.held: WaitReason | None = None
        #: What is wrong with the orders for this work, for its status; empty for nothing.
        self.orders_fault = ""
        self._readings: dict[tuple[ReadingName, Side], int] = {}
        self._on_cancel: list[Callable[[], None]] = []
        #: When metadata writes were blocked (seconds since the epoch), while they are; None otherwise.
        self.blocked_since: float | None = None

    @property
    def age(self) -> float:
        """Seconds since the activity was scheduled, over all its attempts."""
        return self.waited + time.monotonic() - self._begun

    @property
    def server_time(self) -> datetime:
        """The time by Temporal's clock, as the workflow has it: this machine's may differ."""
        return self._started + timedelta(seconds=time.monotonic() - self._begun)

    def check(self) -> None:
        """Raise `Cancelled` if the activity was cancelled.

        Raises:
            Cancelled: it was.
        """
        if self._stop.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Wait some seconds, or until the activity is cancelled.

        Raises:
            Cancelled: the activity was cancelled.
        """
        # A very low throttle gives a longer time than Python can wait.
        self._stop.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check()

    def deadline(self, seconds: float) -> Deadline:
        """Return the end of a wait of so many seconds, which passes in `pause`."""
        return Deadline(seconds)

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` when the activity is cancelled, for work that cannot call `check` itself."""
        self._on_cancel.append(action)

    def cancel(self) -> None:
        """Ask the work to stop."""
        self._stop.set()
        for action in self._on_cancel:
            action()

    def measure(self, task: ProgressTask, unit: ProgressUnit, total: int | None, done: Callable[[], int]) -> None:
        """Report progress by calling `done` for every heartbeat, until other progress is reported."""
        self._count = _Count(task, unit, total, done, "", time.monotonic(), 0, RecentRates(), 0)

    def progress(
        self, task: ProgressTask, unit: ProgressUnit, done: int, total: int | None, *, detail: str = ""
    ) -> None:
        """Report how far the work is; `detail` says the same in other units."""
        old, done = self._count, _reportable(done)
        # Work that counts from the start again is measured by itself.
        same = old is not None and (old.task, old.unit) == (task, unit) and old.most <= done
        begun = (old.started, old.first, old.rates) if old and same else (time.monotonic(), done, RecentRates())
        self._count = _Count(task, unit, total, lambda: done, detail, *begun, done)

    def read(self, name: ReadingName, side: Side, value: int) -> None:
        """Report a reading of one side, until it is reported again or the activity ends."""
        self._readings[name, side] = _reportable(value)

    def clear_progress(self) -> None:
        """Stop reporting progress: what follows counts nothing."""
        self._count = None

    def waiting_for(self, kind: WaitKind, why: str, *, action: str = "", until: datetime | None = None) -> None:
        """Report what the work waits for, until `clear_waiting`; see `WaitReason`."""
        self._waiting = WaitReason(kind=kind, why=why, action=action, until=until)

    def clear_waiting(self) -> None:
        """Report that the work does not wait any more; safe without a wait."""
        self._waiting = None

    def set_wait_source(self, ask: Callable[[], WaitReason | None]) -> None:
        """Call `ask` for what the work waits for, in every report; None means the reason of `waiting_for`."""
        self._ask_wait = ask

    @contextmanager
    def waiting(self, kind: WaitKind, why: str) -> Generator[None]:
        """Report what the work waits for while the block runs."""
        self.waiting_for(kind, why)
        yield
        # Not in `finally`: after a failure the next attempt waits for the same.
        self.clear_waiting()

    def report(self) -> ProgressReport:
        """Return the progress and the reason to wait, as they are now."""
        progress, waiting = self._progress(), self.held or self._ask_wait() or self._waiting
        parts = [str(progress)] if progress else []
        parts += [f"waits for {waiting.why}"] if waiting else []
        # The work adds readings in its thread.
        readings = [Reading(name=name, side=side, value=value) for (name, side), value in dict(self._readings).items()]
        since = self.blocked_since
        return ProgressReport(
            summary="; ".join(parts),
            progress=progress,
            waiting=waiting,
            noted=dict(self.noted),
            readings=tuple(readings),
            blocked_since=None if since is None else datetime.fromtimestamp(since, UTC),
        )

    def _progress(self) -> Progress | None:
        count = self._count
        if count is None:
            return None
        # Progress must not go back.
        done = count.most = max(count.most, _reportable(count.done()))
        now = time.monotonic()
        rate = max(0, done - count.first) / max(now - count.started, 0.001)
        if self.held:
            # A rest is not slow work; the work after it is measured by itself.
            count.rates.restart()
        else:
            count.rates.add(now, done)
        recent = count.rates.range()
        total = None if count.total is None else _reportable(count.total)
        eta = (total - done) / rate if total and rate and total >= done else None
        return Progress(
            task=count.task,
            unit=count.unit,
            done=done,
            total=total,
            detail="; ".join(filter(None, (count.detail, self.orders_fault))),
            rate=round(rate, 1),
            slowest=recent and recent.slowest,
            fastest=recent and recent.fastest,
            eta_seconds=None if eta is None else round(eta, 1),
            basis="" if eta is None else "average rate of this step",
            as_of=datetime.now(UTC),
        )


def _reportable(number: int) -> int:
    """Return a number as a report may have it: servers count wrongly, and the work must not fail with the report."""
    return min(max(0, number), MOST)
