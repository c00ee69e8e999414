"""Progress of a running activity: heartbeats for Temporal, signals for its workflow, gauges for dashboards."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.lifecycle.context import ActivityContext
from models.lifecycle.names import (
    BACKLOG_GAUGE,
    BLOCKED_GAUGE,
    PROGRESS_GAUGES,
    PROGRESS_RATIO_GAUGE,
    PUBLISHERS_GAUGE,
)
from models.lifecycle.status import ProgressReport, ProgressUnit, WaitKind, WaitReason

HEARTBEAT_EVERY = 0.25
"""Seconds between the heartbeats that an activity records."""

HEARTBEAT_THROTTLE = timedelta(milliseconds=500)
"""A worker's `max_heartbeat_throttle_interval`: how long the SDK delays a heartbeat after the previous one.

Then it sends the newest one, so Temporal's state of a running activity is less than a second old. The response brings
a cancellation, which arrives as fast.
"""

# Each signal stays in the workflow's history, which is limited. Short waits are not signalled; a wait of another kind
# is signalled soon, and changes of the same wait (one broker less, for example) rarely. The pauses between signals grow
# with the activity's age, so that a week of waits takes some hundred signals.
_FIRST_SIGNAL, _KIND_PAUSE, _TEXT_PAUSE = 1.0, 1.0, 4.0
_KIND_SHARE, _TEXT_SHARE = 0.01, 0.1
# An activity that keeps failing does not clear its reason: each attempt would end with another signal.
_LATEST_FIRST = 60
_SIGNAL_LIMIT = timedelta(seconds=5)


_READINGS: defaultdict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
"""Gauge values of the running activities of this process, by labels: concurrent batches add up."""


class Gauges:
    """Gauges of a running activity.

    Args:
        labels: of the migration; the SDK adds the activity's type.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        meter = activity.metric_meter()
        self._done = {
            unit: meter.create_gauge(f"{PROGRESS_GAUGES}{unit}", f"{unit.capitalize()} done by the running activity")
            for unit in ProgressUnit
        }
        self._ratio = meter.create_gauge_float(PROGRESS_RATIO_GAUGE, "Done part of the running activity's task")
        self._blocked = meter.create_gauge_float(BLOCKED_GAUGE, "Time with metadata writes blocked", "s")
        self._sides = {
            BACKLOG_GAUGE: meter.create_gauge(BACKLOG_GAUGE, "Messages that subscriptions of moving topics have left"),
            PUBLISHERS_GAUGE: meter.create_gauge(PUBLISHERS_GAUGE, "Producers that are connected to moving topics"),
        }
        self._labels = dict(labels)
        self._type = activity.info().activity_type
        self._shown: set[tuple[str, str]] = set()

    def show(self, report: ProgressReport, context: ActivityContext) -> None:
        """Set the gauges."""
        for (gauge, side), value in context.gauges.items():
            self._shown.add((gauge, side))
            self._show_reading(gauge, side, value)
        blocked_since = context.blocked_since
        if progress := report.progress:
            labels = {**self._labels, "task": progress.task.value}
            self._done[progress.unit].set(progress.done, labels)
            if progress.total:
                self._ratio.set(min(1.0, progress.done / progress.total), labels)
        if blocked_since is not None:
            self._blocked.set(max(0.0, time.time() - blocked_since), self._labels)

    def close(self) -> None:
        """Remove the values of the activity, which get outdated soon."""
        for gauge, side in self._shown:
            self._show_reading(gauge, side, None)

    def _show_reading(self, gauge: str, side: str, value: int | None) -> None:
        labels = {**self._labels, "side": side}
        read = _READINGS[gauge, self._type, *sorted(labels.items())]
        if value is None:
            read.pop(id(self), None)
        else:
            read[id(self)] = value
        self._sides[gauge].set(sum(read.values()), labels)


class WaitSignals:
    """Signals reasons to wait to the workflow, once for each change; sends in the background, one signal at a time.

    After a failed attempt, its error is the reason to wait until a later attempt reports another one.
    """

    def __init__(self, client: Client) -> None:
        info = activity.info()
        self._handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        self._attempt = info.attempt
        self._started = time.monotonic()
        self._last = self._started
        self._reported: WaitReason | None = None
        self._silent = True
        self._sending: asyncio.Task[None] | None = None

    def report(self, report: ProgressReport) -> None:
        """Send the reason to wait, if it changed and a signal is due."""
        idle = self._sending is None or self._sending.done()
        if idle and report.waiting != self._reported and time.monotonic() >= self._due(report.waiting):
            self._sending = asyncio.create_task(self._send(report))

    async def report_retry(self, report: ProgressReport, why: str) -> None:
        """Send why another attempt is needed; for later attempts less and less often, unless this one sent a signal."""
        power_of_two = self._attempt & (self._attempt - 1) == 0
        if power_of_two or not self._silent:
            reason = WaitReason(kind=WaitKind.RETRY, why=f"the next attempt of a step: {why}")
            await self._send_last(report.model_copy(update={"waiting": reason}))

    async def report_done(self, report: ProgressReport) -> None:
        """Clear the reason to wait that this attempt, or an earlier one, has sent."""
        await self.flush()
        if self._reported is not None or (self._silent and self._attempt > 1):
            await self._send_last(report.model_copy(update={"waiting": None}))

    async def flush(self) -> None:
        """Wait until a signal in flight has arrived."""
        if self._sending is not None:
            await self._sending

    def _due(self, reason: WaitReason | None) -> float:
        """Return when this reason may be sent, by the monotonic clock."""
        if self._silent:
            return self._started + _FIRST_SIGNAL * min(self._attempt, _LATEST_FIRST)
        same = self._reported is not None and reason is not None and self._reported.kind is reason.kind
        pause, share = (_TEXT_PAUSE, _TEXT_SHARE) if same else (_KIND_PAUSE, _KIND_SHARE)
        return self._last + max(pause, share * (self._last - self._started))

    async def _send_last(self, report: ProgressReport) -> None:
        await self.flush()
        await self._send(report)

    async def _send(self, report: ProgressReport) -> None:
        self._last = time.monotonic()
        # Signals are for people; the work does not depend on them.
        with contextlib.suppress(RPCError):
            await self._handle.signal("report_progress", report, rpc_timeout=_SIGNAL_LIMIT)
            self._reported, self._silent = report.waiting, False


def noted_before() -> dict[str, str]:
    """Return the notes of the previous attempt for this one, from its last heartbeat."""
    for details in activity.info().heartbeat_details:
        with contextlib.suppress(ValidationError):
            return ProgressReport.model_validate(details).noted
    return {}


def heartbeat(context: ActivityContext) -> ProgressReport:
    """Record a heartbeat with the state of the work, and return the report."""
    report = context.report()
    activity.heartbeat(report.model_dump(mode="json", exclude_defaults=True))
    return report
