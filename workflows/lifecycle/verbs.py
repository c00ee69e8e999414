"""What the operator sees of a migration, and says to it: status, verbs, windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.execution import InputT
    from models.lifecycle.failures import FailureKind
    from models.lifecycle.policy import Lifecycle, PhasePolicy
    from models.lifecycle.status import (
        Outcome,
        PhaseEntry,
        Progress,
        ProgressReport,
        Status,
        Waiting,
        WaitKind,
        WaitReason,
    )
    from models.lifecycle.verbs import Verb, VerbRequest, VerbResponse, WindowChange
    from workflows.lifecycle.details import render


class OperatorHandlers(Generic[InputT]):
    """The state of a migration, with its query, signals and updates."""

    def __init__(self, input: InputT, *, kind: str, target: str, first: str, rules: PhasePolicy) -> None:
        self.input = input
        self.kind = kind
        self.target = target
        self.lifecycle = Lifecycle(rules)
        self.outcome = Outcome.RUNNING
        self.history: list[PhaseEntry] = []
        self.notes: list[str] = []
        self.failed_items: list[str] = []
        self.alarms: list[str] = []
        self.facts: dict[str, Any] = {}
        self.figures: dict[str, Any] = {}
        self.certificate: dict[str, Any] = {}
        self.deadlines: dict[str, datetime] = {}
        self._first = first
        self._lost_queues: set[str] = set()
        self._epoch = 0
        self._progress: Progress | None = None
        self._waiting: Waiting | None = None
        self._step_waiting: Waiting | None = None

    # What the operator sees -----------------------------------------------------------------------------------------

    @workflow.query(description="Where the migration stands, what it waits for, and which verbs are legal now.")
    def status(self) -> Status:
        """Answer the query `status`."""
        rules = self.lifecycle.rules
        return Status(
            kind=self.kind,
            cluster=self.input.cluster,
            target=self.target,
            phase=self.history[-1].phase if self.history else self._first,
            outcome=self.outcome,
            history=self.history,
            progress=self._progress,
            waiting=self._waiting or self._step_waiting,
            paused=self.lifecycle.paused,
            undo=rules.undo,
            undo_cost=rules.undo_cost,
            legal_verbs=list(self.lifecycle.legal()),
            failed_items=self.failed_items,
            alarms=self.alarms,
            deadlines=self.deadlines,
            notes=self.notes,
            facts={**self.facts, **self.figures},
        )

    def note(self, text: str) -> None:
        """Remember an event for status and report."""
        self.notes.append(f"{workflow.now():%Y-%m-%d %H:%M:%S}Z {text}")
        self.publish()

    def alarm(self, text: str) -> None:
        """Show in red, from now to the end, what makes this migration dangerous."""
        self.alarms.append(text)
        self.note(f"🔴 {text}")

    def publish(self) -> None:
        """Show the state in the Web UI."""
        workflow.set_current_details(render(self.status(), workflow.now()))

    # What the operator says -----------------------------------------------------------------------------------------

    @workflow.signal(description="Undo the migration; refused behind its point of no return. Optional: a reason.")
    def rollback(self, reason: str = "") -> None:
        """Take the verb `rollback`."""
        self._take(Verb.ROLLBACK, reason)

    @workflow.signal(description="Clean up the old side, once the migration is committed. Optional: a reason.")
    def cleanup(self, reason: str = "") -> None:
        """Take the verb `cleanup`."""
        self._take(Verb.CLEANUP, reason)

    @workflow.signal(description="Hold before the next step that is safe to wait at. Optional: a reason.")
    def pause(self, reason: str = "") -> None:
        """Take the verb `pause`."""
        self._take(Verb.PAUSE, reason)

    @workflow.signal(description="Go on after `pause`. Optional: a reason.")
    def resume(self, reason: str = "") -> None:
        """Take the verb `resume`."""
        self._take(Verb.RESUME, reason)

    @workflow.signal(description="Open the gate at which the migration waits. Optional: a reason.")
    def proceed(self, reason: str = "") -> None:
        """Take the verb `proceed`."""
        self._take(Verb.PROCEED, reason)

    @workflow.signal(
        name="report_progress", description="Sent by the migration's own steps: progress and reasons to wait."
    )
    def report_progress(self, note: ProgressReport) -> None:
        """Show what a running step reports."""
        self._progress = note.progress or self._progress
        self._step_waiting = waiting(note.waiting, before=self._step_waiting) if note.waiting else None
        self.publish()

    @workflow.update(description="Give a verb and get the answer: accepted, or refused with the reason.")
    def steer(self, steering: VerbRequest) -> VerbResponse:
        """Take a verb and answer."""
        return self._take(steering.verb, steering.reason)

    @steer.validator
    def check_steer(self, steering: VerbRequest) -> None:
        """Refuse an illegal verb before it enters the history."""
        verdict = self.lifecycle.judge(steering.verb)
        if not verdict.accepted:
            raise ApplicationError(_refusal(verdict), type=FailureKind.REFUSED)

    @workflow.update(description="Set the time that the running window shall have left: longer, shorter or zero.")
    def change_window(self, change: WindowChange) -> datetime:
        """Move the end of the running window; returns the new end."""
        self.deadlines["window"] = workflow.now() + change.remaining
        self.note(f"the window now ends {self.deadlines['window']:%Y-%m-%d %H:%M:%S}Z")
        return self.deadlines["window"]

    @change_window.validator
    def check_change_window(self, change: WindowChange) -> None:
        """Refuse while no window is open."""
        del change
        if "window" not in self.deadlines:
            raise ApplicationError("no window is open", type=FailureKind.REFUSED)

    def _take(self, verb: Verb, reason: str) -> VerbResponse:
        verdict = self.lifecycle.take(verb)
        because = f" ({reason})" if reason else ""
        self.note(f"{verb}{because}: {verdict.why}" if verdict.accepted else f"{_refusal(verdict)}{because}")
        return verdict

    # Inside ---------------------------------------------------------------------------------------------------------

    def _wait_for(
        self, kind: WaitKind, why: str, *, action: str = "", until: datetime | None = None, ends_on: Sequence[str] = ()
    ) -> None:
        reason = WaitReason(kind=kind, why=why, action=action)
        self._waiting = waiting(reason, until=until, ends_on=ends_on, before=self._waiting)

    def _labels(self, **more: str) -> dict[str, str | int | float | bool]:
        return {"kind": self.kind, "cluster": self.input.cluster, **more}


def waiting(
    reason: WaitReason, *, until: datetime | None = None, ends_on: Sequence[str] = (), before: Waiting | None
) -> Waiting:
    """A wait for this reason; one of the same kind keeps its begin."""
    since = before.since if before and before.kind is reason.kind else workflow.now()
    return Waiting(
        kind=reason.kind, why=reason.why, action=reason.action, since=since, until=until, ends_on=tuple(ends_on)
    )


def _refusal(verdict: VerbResponse) -> str:
    legal = ", ".join(verdict.legal) or "none"
    return f"{verdict.verb} refused: {verdict.why}. Legal now: {legal}"
