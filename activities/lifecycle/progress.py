"""Progress of a running activity: heartbeats for Temporal, and signals for its workflow."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.lifecycle.context import ActivityContext
from models.lifecycle.status import ProgressReport, WaitKind, WaitReason

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
        # Signals stay in the history, and only the next attempt needs the notes, which may be long.
        report = report.model_copy(update={"noted": {}})
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
