"""The base class of all migrations: its handlers, which Temporal requires on the class, and its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.audit import Audit
from models.lifecycle.change_windows import ChangeWindows, over_before, useless
from models.lifecycle.failures import FailureKind
from models.lifecycle.hook_events import EventType
from models.lifecycle.input import Continued, MigrationInput
from models.lifecycle.names import keyword
from models.lifecycle.policy import NO_NAME, TWO_PERSONS, PhasePolicy, person
from models.lifecycle.preview import VerbPreview, preview_of
from models.lifecycle.receipt import Receipt
from models.lifecycle.report import PrecheckResult, Report
from models.lifecycle.state import StateT
from models.lifecycle.status import CutoverPlan, Outcome, ProgressReport, Status, Undo, shown_reason
from models.lifecycle.verbs import (
    ChangeWindowsAnswer,
    ChangeWindowsChange,
    CutoverTime,
    HoldChange,
    Verb,
    VerbRequest,
    VerbResponse,
    WindowChange,
    WindowsRequest,
)
from models.text import shown
from workflows.lifecycle.calendar import Calendar
from workflows.lifecycle.caller import UNNAMED, by, recorded, sender, starter
from workflows.lifecycle.continuation import Continuation, ContinuationDue
from workflows.lifecycle.decisions import Decisions
from workflows.lifecycle.failures import Interrupted, Rehearsed, failure_of, to_exception
from workflows.lifecycle.hold import CutoverHold
from workflows.lifecycle.hooks import Hooks
from workflows.lifecycle.log import log
from workflows.lifecycle.phase_activities import ActivityRunner
from workflows.lifecycle.phases import Phases
from workflows.lifecycle.search_attributes import KIND_KEY, TARGET_KEY, SearchAttributes
from workflows.lifecycle.start import OneInput
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.tasks import wait_after_the_end
from workflows.lifecycle.timers import WINDOW, Timers

InputT = TypeVar("InputT", bound=MigrationInput)

MOST_REFUSALS = 100
"""Refused updates that enter the history and the audit trail; further ones only get their answer."""

_LONGEST_REFUSAL = 4_000
"""Characters; a refusal may quote what the operator sent."""


class Migration(OneInput, Generic[InputT, StateT]):
    """Base of all migration workflows.

    A subclass calls `super().__init__` in its `@workflow.init` with a new state or that of the previous run, and runs
    its phases inside `execute`.

    Args:
        input: of the operator.
        state: new, or of the previous run of this workflow.
        kind: of migration.
        target: value of the search attribute `MigrationTarget`.
        first: the first phase.
        policies: of the phases.
        after_cutover: how the cut-over is undone.
    """

    def __init__(
        self,
        input: InputT,
        state: StateT,
        *,
        kind: str,
        target: str,
        first: str,
        policies: Mapping[Any, PhasePolicy],
        after_cutover: Undo,
    ) -> None:
        self.input = input
        self.state = state
        state.verbs.two_persons = input.two_persons
        #: Updates that call activities run one after the other: each depends on the result of the previous one.
        self.update_lock = asyncio.Lock()
        self.verbs = state.verbs
        last = "PRECHECK" if input.dry_run else input.last_phase
        #: Takes reports of items; a migration in waves replaces it.
        self.on_item_report: Callable[[ProgressReport], object] = lambda report: report
        self.board = StatusBoard(state, kind=kind, cluster=input.cluster, target=target, first=first, last=last)
        self.continuation = Continuation(state, self.board)
        self.timers = Timers(state, self.board, self.continuation)
        self.activities = ActivityRunner(input, state, self.board)
        self.decisions = Decisions(state, self.board, self.timers)
        self.hooks = Hooks(state, self.board, self.continuation, input.hooks)
        self.calendar = Calendar(state, input.change_windows, input.longest_cutover)
        plan = CutoverPlan(hold=input.hold_before_cutover, at=input.cutover_at)
        self.hold = CutoverHold(
            state,
            self.board,
            self.continuation,
            self.hooks,
            plan=plan,
            calendar=self.calendar,
            after=after_cutover,
            rehearses=bool(input.last_phase),
        )
        self.attributes = SearchAttributes()
        self.phases = Phases(
            state,
            self.board,
            self.timers,
            continuation=self.continuation,
            attributes=self.attributes,
            policies={phase: each.with_cleanup(deletes=input.deletes_source) for phase, each in policies.items()},
            last=input.last_phase,
        )

    async def execute(self, work: Callable[[], Awaitable[Report[Any, Any]]]) -> Report[Any, Any]:
        """Run the whole migration, and end it with a report, a typed failure, or continue-as-new."""
        self.state.started_by = self.state.started_by or starter()
        self.attributes.set(KIND_KEY.value_set(self.board.kind), TARGET_KEY.value_set(keyword(self.board.target)))
        try:
            report = await self._executed(work)
        # Not BaseException, which continues as a new run: the next run delivers the events.
        except (Exception, asyncio.CancelledError):
            await self._deliver_rest()
            raise
        await self._deliver_rest()
        return report

    async def _deliver_rest(self) -> None:
        """Deliver the last events to hooks, and finish other work: the next attempt does not know them."""
        await self.hooks.end()
        if self.continuation.has_unfinished_work:
            await wait_after_the_end(lambda: not self.continuation.has_unfinished_work)

    async def _executed(self, work: Callable[[], Awaitable[Report[Any, Any]]]) -> Report[Any, Any]:
        try:
            await self.hooks.begin()
            await self._read_calendar()
            report = await work()
        except ContinuationDue as due:
            # `finally` blocks removed windows, deadlines and gates, which the next run still has.
            self.board.hand_over(due.state)
            # A cancellation may have come since; Temporal does not pass it on to the next run.
            due.state.cancelled |= self.state.cancelled
            workflow.continue_as_new(Continued(input=self.input, state=due.state))
        except Interrupted as stop:
            if not stop.by_operator:
                self._end(Outcome.FAILED)
                raise ApplicationError(str(stop), type=FailureKind.DEADLINE, non_retryable=True) from None
            report = self.report(Outcome.ROLLED_BACK, str(stop))
        except Rehearsed as end:
            report = self.report(Outcome.REHEARSED, f"{end}, and undone; nothing was cut over")
        except ActivityError as error:
            self._end(Outcome.FAILED)
            raise to_exception(failure_of(error)) from error
        except BaseException:
            self._end(Outcome.FAILED)
            raise
        # Before the wait for handlers, so that an update that still waits for its turn is refused.
        self._end(report.outcome)
        await wait_after_the_end(workflow.all_handlers_finished)
        return report

    async def _read_calendar(self) -> None:
        """Note when the change windows open, for the plan; refuse to start if they never do."""
        if self.state.history or self.calendar.windows.always:
            return
        reading = await self.hold.read_windows()
        if not reading.openings:
            raise ApplicationError(
                useless(self.input.longest_cutover), type=FailureKind.INVALID_INPUT, non_retryable=True
            )
        for opening in reading.openings:
            self.board.note(f"change window: {opening}")

    def report(self, outcome: Outcome, summary: str) -> Report[Any, Any]:
        """Return the migration's result."""
        state = self.state
        prechecks = [fact for _, fact in state.facts if isinstance(fact, PrecheckResult)]
        return Report[Any, Any](
            kind=self.board.kind,
            cluster=self.input.cluster,
            outcome=outcome,
            summary=summary,
            history=state.history,
            figures=state.figures,
            certificate=state.certificate,
            notes=state.notes,
            failed_items=list(state.failed.values()),
            started_by=state.started_by,
            audit=list(state.audit.entries),
            features=[use for precheck in prechecks for use in precheck.features],
            receipt=self._receipt(prechecks) if outcome is Outcome.PLANNED else None,
        )

    def _receipt(self, prechecks: Sequence[PrecheckResult]) -> Receipt | None:
        """Return the receipt of the dry run; None if it found blockers, or compared nothing."""
        precheck = next(iter(prechecks), None)
        if precheck is None or precheck.blockers or not precheck.fingerprint:
            return None
        return Receipt.of(
            self.board.kind,
            self.input.cluster,
            planned_at=workflow.now(),
            input=self.input.as_json(),
            facts=precheck.fingerprint,
            counts=precheck.counts,
            warnings=precheck.warnings,
        )

    def _end(self, outcome: Outcome) -> None:
        self.state.outcome = outcome
        level = logging.INFO if outcome in {Outcome.DONE, Outcome.PLANNED, Outcome.REHEARSED} else logging.WARNING
        log(f"the migration ends, {outcome}", level, outcome=outcome.value)
        self.verbs.end()
        self.state.waiting = self.state.activity_waiting = None
        self.board.event(EventType.MIGRATION_ENDED, f"the migration ends, {outcome}", outcome=outcome)
        self.board.publish()

    # Queries ---------------------------------------------------------------------------------------------------------

    @workflow.query(description="Status of the migration: phase, progress, what it waits for, and the legal verbs.")
    def status(self) -> Status[Any, Any]:
        """Answer the query `status`."""
        return self.board.status()

    @workflow.query(description="What a verb would do now, what it costs and what it ends; nothing is done.")
    def preview(self, request: VerbRequest) -> VerbPreview:
        """Answer the query `preview`."""
        now = workflow.now()
        return preview_of(self.verbs, self.board.status(), request, now, self.calendar.openings(now))

    @workflow.query(description="Requests to the migration, accepted and refused, as a chain of hashes.")
    def audit(self) -> Audit:
        """Answer the query `audit`."""
        return self.state.audit

    # Verbs and updates -----------------------------------------------------------------------------------------------

    @workflow.signal(description="Undo the migration; refused after its point of no return. Optional: a reason.")
    def rollback(self, *reason: Any) -> None:
        """Take the verb `rollback`."""
        self._signalled(Verb.ROLLBACK, reason)

    @workflow.signal(description="Clean up the old side, once the migration is committed. Optional: a reason.")
    def cleanup(self, *reason: Any) -> None:
        """Take the verb `cleanup`."""
        self._signalled(Verb.CLEANUP, reason)

    @workflow.signal(description="Stop the running copy, and hold before the next step. Optional: a reason.")
    def pause(self, *reason: Any) -> None:
        """Take the verb `pause`."""
        self._signalled(Verb.PAUSE, reason)

    @workflow.signal(description="Continue after `pause`. Optional: a reason.")
    def resume(self, *reason: Any) -> None:
        """Take the verb `resume`."""
        self._signalled(Verb.RESUME, reason)

    @workflow.signal(description="Open the gate at which the migration waits. Optional: a reason.")
    def proceed(self, *reason: Any) -> None:
        """Take the verb `proceed`."""
        self._signalled(Verb.PROCEED, reason)

    @workflow.signal(description="Agree to what another person has asked for. Optional: a reason.")
    def approve(self, *reason: Any) -> None:
        """Take the verb `approve`."""
        self._signalled(Verb.APPROVE, reason)

    @workflow.signal(description="Drop what another person has asked for. Optional: a reason.")
    def reject(self, *reason: Any) -> None:
        """Take the verb `reject`."""
        self._signalled(Verb.REJECT, reason)

    @workflow.signal(dynamic=True, description="Any other signal is refused, with a note.")
    def refuse_signal(self, name: str, given: Sequence[RawValue]) -> None:
        """Note an unknown signal, which Temporal would buffer without a message."""
        del given
        verbs = ", ".join(Verb)
        self.board.note(f"unknown signal {shown(name)!r}{by()}; valid signals: {verbs}")
        self.record(name, accepted=False, result=f"unknown signal; valid ones: {verbs}")

    @workflow.update(description="Give a verb and get the answer: accepted, or refused with the reason.")
    def steer(self, request: VerbRequest) -> VerbResponse:
        """Apply a verb, and return the response."""
        return self.take(request.verb, request.reason, request.asked)

    @steer.validator
    def check_steer(self, request: VerbRequest) -> None:
        """Refuse an illegal verb before it enters the history."""
        response = self.verbs.judge(
            request.verb, workflow.now(), by=sender(), reason=request.reason, asked=request.asked
        )
        if not response.accepted:
            raise refused(_refusal(response))

    @workflow.update(description="Set the remaining time of the running window: longer, shorter or zero.")
    def change_window(self, change: WindowChange) -> datetime:
        """Move the end of the running window, and return it."""
        end = self.timers.change_window(change.remaining)
        self.board.note(f"the window now ends {end:%Y-%m-%d %H:%M:%S}Z, changed{by()}")
        return end

    @change_window.validator
    def check_change_window(self, change: WindowChange) -> None:
        """Refuse while no window is open."""
        del change
        if WINDOW not in self.state.deadlines:
            raise refused("no window is open")

    @workflow.update(
        name="hold_before_cutover",
        description="Hold before the cut-over, with the copy kept up to date, or hold no longer.",
    )
    def set_hold(self, change: HoldChange) -> CutoverPlan:
        """Hold before the cut-over, or release the hold; return the plan."""
        self.hold.set_hold(hold=change.hold)
        self.board.note(f"hold before the cut-over: {'on' if change.hold else 'off'}, set{by()}")
        return self.hold.plan

    @set_hold.validator
    def check_set_hold(self, change: HoldChange) -> None:
        """Refuse when it is too late, and to release a hold at which two persons must agree."""
        if self.hold.too_late:
            raise refused(self.hold.too_late)
        if not change.hold and self.input.two_persons and self.hold.after in TWO_PERSONS:
            raise refused("two persons must agree to the cut-over: one sends `proceed`, and another one `approve`")

    @workflow.update(
        name="cutover_at", description="When the cut-over begins at the earliest; null for as soon as it can."
    )
    def set_cutover_time(self, time: CutoverTime) -> CutoverPlan:
        """Set or clear the time of the cut-over; return the plan."""
        self.hold.set_time(time.at)
        at = f"not before {time.at:%Y-%m-%d %H:%M:%S %Z}" if time.at else "at any time"
        self.board.note(f"cut-over: {at}, set{by()}")
        return self.hold.plan

    @set_cutover_time.validator
    def check_set_cutover_time(self, time: CutoverTime) -> None:
        """Refuse when it is too late, and a time in the past."""
        if self.hold.too_late:
            raise refused(self.hold.too_late)
        if time.at and time.at <= workflow.now():
            raise refused(f"{time.at:%Y-%m-%d %H:%M:%S %Z} has passed; null lets the cut-over begin as soon as it can")
        if why := over_before(time.at, self.calendar.windows):
            raise refused(why)

    @workflow.update(
        name="set_change_windows",
        description="Other change windows, with a reason; without fields the cut-over may begin at any time.",
    )
    async def set_change_windows(self, change: ChangeWindowsChange) -> ChangeWindowsAnswer:
        """Replace the change windows, and return when they open.

        Where two persons must agree, the first update asks for it, and that of another person approves it.
        """
        reading = await self.calendar.reading_of(change.windows)
        if not reading.openings:
            raise refused(useless(self.input.longest_cutover))
        # The cut-over may have started since.
        self.check_set_change_windows(change)
        opens = "at any time" if change.windows.always else str(reading.openings[0])
        # mutant: shared/windows-widened-by-one-person
        approved = not self._needs_another_person(change.windows) or self._is_asked(change.windows)
        if approved:
            self.state.windows_asked = None
            self.calendar.replace(change.windows)
            self.hold.plan.window = None if change.windows.always else reading.openings[0]
            result, done = opens, "set"
        else:
            self.state.windows_asked = WindowsRequest(windows=change.windows, by=sender())
            result, done = f"asks another person to send the same; then {opens}", "requested"
        self.board.note(f"change windows: {result}{shown_reason(change.reason)}, {done}{by()}")
        self.record("set_change_windows", reason=change.reason, accepted=True, result=result)
        return ChangeWindowsAnswer(openings=reading.openings, blackout=reading.blackout, approved=approved)

    @set_change_windows.validator
    def check_set_change_windows(self, change: ChangeWindowsChange) -> None:
        """Refuse when nothing waits for them any more, and windows that end before the time of the cut-over.

        Of windows that need two persons, refuse those without a sender, and those that the sender has asked for.
        """
        if why := self.windows_too_late or over_before(self.hold.plan.at, change.windows):
            raise refused(why)
        if self._needs_another_person(change.windows):
            if not sender():
                raise refused(NO_NAME)
            asked = self.state.windows_asked
            if asked and self._is_asked(change.windows) and person(asked.by) == person(sender()):
                raise refused(f"{asked.by} has asked for it; another person must send the same")

    def _needs_another_person(self, windows: ChangeWindows) -> bool:
        """Return whether two persons must agree to windows, since these allow more than the current ones."""
        asks = self.input.two_persons and self.hold.after in TWO_PERSONS
        return asks and windows.allows_more_than(self.calendar.windows)

    def _is_asked(self, windows: ChangeWindows) -> bool:
        asked = self.state.windows_asked
        return asked is not None and asked.windows == windows

    @property
    def windows_too_late(self) -> str:
        """Reason why change windows have no effect any more; empty while they have."""
        return self.hold.too_late

    def take(self, verb: Verb, reason: str, asked: datetime | None = None) -> VerbResponse:
        """Apply a verb if it is legal, and note the response."""
        response = self.verbs.take(verb, workflow.now(), by=sender(), reason=reason, asked=asked)
        because, who = shown_reason(reason), by()
        if response.accepted:
            self.board.note(f"{verb}{because}{who}: {response.why}", verb=verb.value, accepted=True)
        else:
            refusal = f"{_refusal(response)}{because}{'; sent' if who else ''}{who}"
            self.board.note(refusal, level=logging.WARNING, verb=verb.value, accepted=False)
        self.record(verb, reason=reason, accepted=response.accepted, result=response.why)
        return response

    # The audit trail --------------------------------------------------------------------------------------------------

    def records_refusals(self) -> bool:
        """Return whether another refused update may enter the history, which is limited."""
        return self._refusals < MOST_REFUSALS and not self.verbs.ended

    @property
    def _refusals(self) -> int:
        return sum(not entry.accepted for entry in self.state.audit.entries)

    def record(self, what: str, *, reason: str = "", accepted: bool, result: str) -> None:
        """Add the request that a handler runs for to the audit trail; not each refused one, which anyone can repeat."""
        if not accepted and self._refusals >= MOST_REFUSALS:
            return
        self.state.audit = self.state.audit.with_entry(
            workflow.now(), sender() or UNNAMED, what, reason=reason, accepted=accepted, result=result
        )
        self.board.event(
            EventType.REQUEST_ACCEPTED if accepted else EventType.REQUEST_REFUSED,
            f"{what}: {result}",
            request=what,
            by=sender() or UNNAMED,
            reason=reason,
        )
        recorded(what)

    def _signalled(self, verb: Verb, given: Sequence[Any]) -> None:
        """Apply a verb that came as a signal; signals have no response, so errors are noted."""
        reason = given[0] if given else None
        if len(given) > 1 or not isinstance(reason, str | None):
            sent = shown(" ".join(str(value) for value in given))
            cure = "send no reason, or a text: --input '\"OPS-1\"'"
            self.board.note(f"{verb} refused: invalid reason {sent}{by()}; {cure}")
            self.record(verb, accepted=False, result=f"invalid reason {sent}")
            return
        self.take(verb, reason or "")

    # Reports of running activities ------------------------------------------------------------------------------------

    @workflow.signal(
        name="report_progress", description="Sent by the migration's own activities: progress and reasons to wait."
    )
    def report_progress(self, report: ProgressReport) -> None:
        """Show what a running activity waits for, or take note of what an item of a wave waits for."""
        if report.item:
            self.on_item_report(report)
        else:
            self.board.activity_reports(report)


def refused(why: str, fault: str = "", consumers: Sequence[str] = ()) -> ApplicationError:
    """Return the failure of an update that is refused now.

    Args:
        why: for people.
        fault: for programs, in the failure's details; empty for none.
        consumers: those of the update's consumers that are refused, also there; empty if that is not the cause.
    """
    details = {name: value for name, value in (("fault", fault), ("consumers", [*consumers])) if value}
    return ApplicationError(shown(why, _LONGEST_REFUSAL), *([details] if details else ()), type=FailureKind.REFUSED)


def _refusal(response: VerbResponse) -> str:
    legal = ", ".join(response.legal) or "none"
    return f"{response.verb} refused: {response.why}. Legal now: {legal}"
