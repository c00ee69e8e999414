"""Status for operators: the query, the notes, and the current details in the Web UI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from models.lifecycle.failures import FailedItems
from models.lifecycle.hook_events import EventType, HookEvent
from models.lifecycle.state import MigrationState
from models.lifecycle.status import (
    ENDERS,
    RESUME_IT,
    CutoverPlan,
    Outcome,
    PhaseEntry,
    Progress,
    ProgressReport,
    Status,
    Waiting,
    WaitKind,
    dated_note,
)
from models.text import code_span, escape_markdown, shown
from workflows.lifecycle.log import log

MOST_NOTES = 500
"""Number of the last notes that are kept; earlier ones are in the history."""

_MARKS = {
    Outcome.DONE: "✅",
    Outcome.DONE_WITH_FAILURES: "⚠️",
    Outcome.RUNNING: "▶️",
    Outcome.FAILED: "❌",
    Outcome.ROLLED_BACK: "↩️",
    Outcome.PLANNED: "📝",
    Outcome.REHEARSED: "🎬",
}

_SHOWN = 8
"""Longest list in the Web UI."""

_BAR = 10
"""Characters of a bar."""

_LONGEST_WAIT = 1_000
"""Characters of a reason to wait, and of what the operator must do."""


class StatusBoard:
    """Shows the status of a migration.

    Args:
        state: of the migration.
        kind: of migration.
        cluster: the Pulsar cluster.
        target: value of the search attribute `MigrationTarget`.
        first: the phase that is shown before any has started.
        last: after which a dry run or a rehearsal ends; empty for a migration.
    """

    def __init__(
        self, state: MigrationState[Any, Any, Any], *, kind: str, cluster: str, target: str, first: str, last: str = ""
    ) -> None:
        self.kind = kind
        self.cluster = cluster
        self.target = target
        self._state = state
        self._first = first
        self._last = last
        self._stopped = False
        # The event loop alone does not keep tasks alive.
        self._reports: list[asyncio.Task[None]] = []

    def status(self) -> Status[Any, Any]:
        """Return the answer of the query `status`."""
        state = self._state
        return Status[Any, Any](
            kind=self.kind,
            cluster=self.cluster,
            target=self.target,
            phase=state.history[-1].phase if state.history else self._first,
            outcome=state.outcome,
            history=state.history,
            progress=state.progress,
            waiting=self._waiting(),
            paused=state.verbs.paused,
            pause=state.verbs.pause,
            undo=state.verbs.policy.undo,
            undo_cost=state.verbs.policy.undo_cost,
            committed=state.committed,
            legal_verbs=list(state.verbs.legal()),
            failed_items=list(state.failed.values()),
            alarms=state.alarms,
            request=state.verbs.request,
            started_by=state.started_by,
            cutover=state.cutover or CutoverPlan(),
            last_phase=self._last,
            deadlines=state.deadlines,
            hooks=list(state.outbox.hooks.values()),
            notes=state.notes,
            facts=state.facts,
            figures=state.figures,
        )

    def _waiting(self) -> Waiting | None:
        """Return the current wait, with the verbs that end it now; during a pause also what ends that."""
        shown = self._state.waiting or self._state.activity_waiting
        if shown and self._state.verbs.paused and shown.kind is not WaitKind.PAUSE:
            shown = shown.model_copy(update={"action": "; ".join(filter(None, (shown.action, RESUME_IT)))})
        return shown and self._with_enders(shown)

    def _with_enders(self, wait: Waiting) -> Waiting:
        if wait.ends_on:
            return wait
        legal = self._state.verbs.legal()
        return wait.model_copy(update={"ends_on": tuple(verb for verb in ENDERS[wait.kind] if verb in legal)})

    @property
    def reporting(self) -> bool:
        """True while a report to the parent is under way, which the end of this run would lose."""
        return not all(report.done() for report in self._reports)

    def hand_over(self, state: MigrationState[Any, Any, Any]) -> None:
        """Show the state that the next run starts with, so that late queries of this run get the same answer."""
        self._state = state

    def publish(self) -> None:
        """Show the state in the Web UI."""
        self._record_unapproved()
        self._report_stop()
        workflow.set_current_details(render(self.status(), workflow.info().workflow_id))

    def _report_stop(self) -> None:
        """Report to the migration of this item whether the stop switch holds it: its deadline does not count then."""
        parent, wait = workflow.info().parent, self._state.activity_waiting
        stopped = wait if wait and wait.kind is WaitKind.STOP_SWITCH else None
        if parent is None or (stopped is not None) == self._stopped:
            return
        self._stopped = stopped is not None
        report = ProgressReport(waiting=stopped, item=workflow.info().workflow_id)
        before = self._reports[-1] if self._reports else None

        async def send() -> None:
            # Temporal delivers signals that are under way together in any order, and the last one counts.
            if before is not None and not before.done():
                await asyncio.wait([before])
            # The parent may have ended.
            with suppress(FailureError):
                handle = workflow.get_external_workflow_handle(parent.workflow_id, run_id=parent.run_id)
                await handle.signal("report_progress", report)

        self._reports.append(asyncio.create_task(send()))

    def _record_unapproved(self) -> None:
        """Record requests that ended without an answer: each gate and each verb may end one."""
        state = self._state
        while state.verbs.unapproved:
            asked, why = state.verbs.unapproved.pop(0)
            result = f"the request ended without an approval: {why}"
            state.audit = state.audit.with_entry(
                workflow.now(), asked.by, asked.verb, reason=asked.reason, accepted=False, result=result
            )
            text = f"{asked.verb} by {asked.by}: {result}"
            self.event(EventType.REQUEST_REFUSED, text, request=asked.verb, by=asked.by, reason=asked.reason)
            self.note(text, level=logging.WARNING)

    def note(self, text: str, *, level: int = logging.INFO, **fields: object) -> None:
        """Record an event for status, report and log.

        Args:
            text: one sentence.
            level: of the line in the log.
            fields: more fields of that line.
        """
        log(text, level, **{"phase": self._state.running_phase, **fields})
        notes = self._state.notes
        notes.append(dated_note(workflow.now(), text))
        del notes[:-MOST_NOTES]
        self.publish()

    def alarm(self, text: str) -> None:
        """Show a danger of this migration in red until its end."""
        if text not in self._state.alarms:
            self._state.alarms.append(text)
            self.note(f"🔴 {text}", level=logging.ERROR)
            self.event(EventType.ALARM_RAISED, text)

    def event(self, event_type: EventType, text: str, **fields: Any) -> None:
        """Add an event for the hooks of the input.

        Args:
            event_type: of the event.
            text: what happened, in one sentence.
            fields: more fields of the event.
        """
        outbox = self._state.outbox
        if outbox.hooks:
            number = outbox.last + 1
            # A reset of the workflow starts another run, which may give the number to another event.
            event_id = f"{workflow.info().run_id}-{number}"
            outbox.add(self.new_event(event_type, text, id=event_id, number=number, **fields))

    def new_event(self, event_type: EventType, text: str, **fields: Any) -> HookEvent:
        """Return an event of now; arguments as of `event`."""
        state = self._state
        given: dict[str, Any] = {"number": state.outbox.last, **fields}
        return HookEvent(
            type=event_type,
            at=workflow.now(),
            phase=state.running_phase,
            text=text,
            undo=state.verbs.policy.undo,
            legal_verbs=state.verbs.legal(),
            **given,
        )

    def wait_for(
        self,
        kind: WaitKind,
        why: str,
        *,
        action: str = "",
        until: datetime | None = None,
        ends_on: Sequence[str] = (),
    ) -> None:
        """Show what the migration itself waits for now."""
        before = self._state.waiting
        self._state.waiting = waiting(kind, why, action=action, until=until, ends_on=ends_on, before=before)
        self._log_wait(before, self._state.waiting)
        self.publish()

    def stop_waiting(self) -> None:
        """Remove the wait of the migration itself."""
        self._log_wait(self._state.waiting, None)
        self._state.waiting = None
        self.publish()

    def activity_reports(self, report: ProgressReport) -> None:
        """Show progress and wait of the running activity."""
        state, reason = self._state, report.waiting
        state.progress = report.progress.cut() if report.progress else state.progress
        before = state.activity_waiting
        state.activity_waiting = reason and waiting(
            reason.kind, reason.why, action=reason.action, until=reason.until, before=before
        )
        self._log_wait(before, state.activity_waiting)
        self.publish()

    def _log_wait(self, before: Waiting | None, now: Waiting | None) -> None:
        """Write a line if a wait of another kind starts, or the last one ends; a new text alone does not count."""
        if (before and before.kind) == (now and now.kind):
            return
        if before is not None:
            self.event(EventType.WAIT_ENDED, f"no longer waits for {before.why}", waiting=before)
        if now is not None:
            self.event(EventType.WAIT_STARTED, f"waits for {now.why}", waiting=self._with_enders(now))
        phase = self._state.running_phase
        if now is None:
            assert before is not None
            seconds = round((workflow.now() - before.since).total_seconds(), 3)
            log(f"no longer waits for {before.why}", phase=phase, wait=before.kind.value, seconds=seconds)
        else:
            todo = {"action": now.action} if now.action else {}
            log(f"waits for {now.why}", phase=phase, wait=now.kind.value, **todo)

    def report_failures(self, *failures: FailedItems) -> None:
        """Show items that could not be migrated; they replace those with the same description."""
        for failed in failures:
            self._state.failed.pop(failed.what, None)
            if failed.count:
                self._state.failed[failed.what] = failed
        self.publish()


def waiting(
    kind: WaitKind,
    why: str,
    *,
    action: str = "",
    until: datetime | None = None,
    ends_on: Sequence[str] = (),
    before: Waiting | None,
) -> Waiting:
    """Return a reason to wait; its start is that of the previous wait of the same kind, even if the text changed."""
    since = before.since if before and before.kind is kind else workflow.now()
    # Any client that may signal can report a wait.
    why, action = shown(why, _LONGEST_WAIT), shown(action, _LONGEST_WAIT)
    return Waiting(kind=kind, why=why, action=action, since=since, until=until, ends_on=tuple(ends_on))


def render(status: Status, workflow_id: str) -> str:
    """Return one screen: headline, phases, progress, wait, rollback, commands and the last notes.

    It is shown until something else happens, so it has times and no durations of what still runs.
    """
    text = escape_markdown
    lines = [f"**{status.phase}** · {text(status.cluster)} → {code_span(status.target)} · {status.outcome}", ""]
    for alarm in status.alarms:
        lines += [f'🔴 <span style="color:red">**{text(alarm)}**</span>', ""]
    lines += ["| | phase | since | took | undo | note |", "|---|---|---|---:|---|---|"]
    lines += map(_row, status.history)
    if status.progress:
        lines += ["", f"{_bar(status.progress)}{text(str(status.progress))}, as of {status.progress.as_of:%H:%M:%S}Z"]
    if status.waiting:
        until = f", until {status.waiting.until:%Y-%m-%d %H:%M:%S}Z" if status.waiting.until else ""
        ends = f"; ends on: {', '.join(status.waiting.ends_on)}" if status.waiting.ends_on else ""
        lines += ["", f"**Waits for** {text(status.waiting.why)}, since {status.waiting.since:%H:%M:%S}Z{until}{ends}"]
        if status.waiting.action:
            lines += ["", f"**Please** {text(status.waiting.action)}"]
    if asked := status.request:
        because = f" ({text(asked.reason)})" if asked.reason else ""
        lines += ["", f"**Asked for** {asked.verb} by {text(asked.by)}{because}, since {asked.since:%H:%M:%S}Z"]
        lines += ["", f"**Please** approve or reject it, as another person: {text(asked.effect)}"]
    lines += ["", f"**Rollback** ({status.undo}): {text(status.undo_cost)}"]
    lines += ["", "**Commands now**" if status.legal_verbs else "**Commands now**: none"]
    if status.legal_verbs:
        lines += ["", *(f"- {code_span(f'pulsar-migrate {verb} {workflow_id}')}" for verb in status.legal_verbs)]
    if count := sum(failed.count for failed in status.failed_items):
        named = [item for failed in status.failed_items for item in failed.items][:_SHOWN]
        lines += ["", f"**Failed** ({count:,})", "", *(f"- {text(str(item))}" for item in named)]
        lines += [f"- … and {count - len(named):,} more"] if count > len(named) else []
    if status.notes:
        lines += ["", "**Notes**", "", *(f"- {text(note)}" for note in status.notes[-_SHOWN:])]
    return "\n".join(lines)


def _row(entry: PhaseEntry) -> str:
    """Return the row of a phase; one that runs has no duration."""
    took = f"{entry.seconds(entry.ended):,.1f} s" if entry.ended else ""
    since = f"{entry.started:%m-%d %H:%M:%S}Z"
    note = escape_markdown(entry.note)
    return f"| {_MARKS[entry.outcome]} | {entry.phase} | {since} | {took} | {entry.undo} | {note} |"


def _bar(progress: Progress) -> str:
    """Return the progress as a bar of text; empty if the total is unknown."""
    if not progress.total:
        return ""
    filled = min(_BAR, _BAR * progress.done // progress.total)
    return f"{'█' * filled}{'░' * (_BAR - filled)} "
