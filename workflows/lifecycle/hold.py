"""The hold before a cut-over: until `proceed`, a set time or a change window, while the copy is kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from temporalio import workflow

from models.lifecycle.change_windows import WindowsReading
from models.lifecycle.policy import ENDED
from models.lifecycle.state import MigrationState
from models.lifecycle.status import RESUME_IT, CutoverPlan, Undo, WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.calendar import Calendar
from workflows.lifecycle.continuation import Continuation
from workflows.lifecycle.hooks import Hooks, veto_gate
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.tasks import cancel_and_wait

Round = Callable[[timedelta], Awaitable[object]]
"""Brings the copy up to date, and may keep it so for the given time; the next round starts after that time."""

# Each round stays in the history, so rounds get longer with the age of the hold: a week takes about 300 rounds.
_SHORTEST_ROUND, _LONGEST_ROUND, _ROUNDS_PER_AGE = timedelta(seconds=10), timedelta(hours=1), 20
_BEGUN = "the cut-over has started"
_STEP = "the cut-over"
_EFFECT = "the cut-over begins"


class _Reason(NamedTuple):
    kind: WaitKind
    why: str
    action: str
    ends_on: tuple[str, ...]
    until: datetime | None = None


class CutoverHold:
    """Holds a migration before its cut-over.

    Args:
        state: of the migration; `cutover` is the operator's plan.
        status: shows the wait.
        continuation: may end the run between rounds.
        hooks: may refuse the cut-over.
        plan: of the input, for a new migration.
        calendar: when the cut-over may begin.
        after: how the cut-over is undone.
        rehearses: the migration ends before its cut-over, and is not held.
    """

    def __init__(
        self,
        state: MigrationState[Any, Any, Any],
        status: StatusBoard,
        continuation: Continuation,
        hooks: Hooks,
        *,
        plan: CutoverPlan,
        calendar: Calendar,
        after: Undo,
        rehearses: bool,
    ) -> None:
        self._state = state
        self._verbs = state.verbs
        self._status = status
        self._continuation = continuation
        self._hooks = hooks
        self._calendar = calendar
        self.after = after
        self._rehearses = rehearses
        self.plan = state.cutover = state.cutover or plan

    @property
    def too_late(self) -> str:
        """Reason why hold and time cannot be changed any more; empty while they can."""
        if self._verbs.ended:
            return ENDED
        return "the rollback has started" if self._state.undoing else _BEGUN if self.plan.begun else ""

    @property
    def reached(self) -> bool:
        """True once the phase has reached its hold; a run that continues there does not repeat the work before it."""
        return self._state.hold_reached

    def set_hold(self, *, hold: bool) -> None:
        """Hold before the cut-over, or hold no longer."""
        self.plan.hold = hold
        if hold:
            self._drop_proceed()

    def set_time(self, at: datetime | None) -> None:
        """Set or clear the time of the cut-over."""
        self.plan.at = at
        if at:
            self._drop_proceed()

    def begin(self) -> None:
        """Start the cut-over: from now on it cannot be held."""
        self.plan.begun = True
        if not self._verbs.policy.no_pause:
            # During a pause no changes would be copied.
            self._verbs.revise(self._verbs.policy.model_copy(update={"no_pause": _BEGUN}))
        self._status.publish()

    def reopen(self) -> None:
        """Allow to hold and to pause again: the cut-over was refused, or is decided on, and has changed nothing."""
        self.plan.begun = False
        if self._verbs.policy.no_pause == _BEGUN:
            self._verbs.revise(self._verbs.policy.model_copy(update={"no_pause": ""}))

    async def wait(self, catch_up: Round | None = None) -> None:
        """Hold for as long as the operator wants, and then for as long as a hook refuses the cut-over.

        An operator holds by `hold_before_cutover`, `cutover_at`, change windows or `pause`.

        Call it at the end of a phase that can be paused and rolled back, right before the phase that cuts over. A
        rollback or a failed round interrupts the phase.

        Args:
            catch_up: repeated during the hold, and again, without waiting, after it, so that little is left to
                copy. The end of the hold cancels a running round.
        """
        if self._rehearses:
            return
        self._state.hold_reached = True
        await self._wait(catch_up)
        # A veto holds, and so does what an operator sends during the question.
        while await self._ask() or self._reason():
            await self._wait(catch_up)
        self.begin()

    async def read_windows(self) -> WindowsReading:
        """Read when the cut-over may begin, unless that is known; return it."""
        reading = await self._calendar.read()
        self.plan.window = next(iter(reading.openings), None)
        return reading

    # Inside -----------------------------------------------------------------------------------------------------------

    def _drop_proceed(self) -> None:
        """Drop a `proceed` to the cut-over that was not acted on yet: the later order counts."""
        verbs = self._verbs
        if verbs.proceed_wanted and verbs.policy.gate == _EFFECT:
            verbs.proceed_wanted = False  # mutant: shared/a-proceed-before-a-hold-counts
            self._status.note("the `proceed` to cut over is dropped, since a later order holds the cut-over")

    async def _wait(self, catch_up: Round | None) -> None:
        await self.read_windows()
        while self._reason() or (catch_up is not None and self._state.needs_catch_up):
            if self._reason():
                # In the state, because the run may end between the hold and the last round.
                self._state.needs_catch_up = True
                await self._hold(catch_up)
            if catch_up is not None:
                # Completes the cancelled round. The operator may hold again during it.
                await catch_up(timedelta(0))
                self._state.needs_catch_up = False
            # The window may have ended during the round.
            await self.read_windows()

    async def _ask(self) -> bool:
        """Ask the hooks, unless an operator overrides their vetoes; return whether one has a veto."""
        return not self._state.veto_overridden and await self._hooks.ask(_STEP) is not None

    async def _ask_during(self, rounds: asyncio.Future[None]) -> None:
        """Ask the hooks, unless the rounds end first: what happens after the end of the run would be lost."""
        question = asyncio.ensure_future(self._ask())
        try:
            await workflow.wait([question, rounds], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(question)
        if rounds.done():
            rounds.result()
        question.result()

    async def _hold(self, catch_up: Round | None) -> None:
        self.reopen()
        over = asyncio.Event()
        task = asyncio.ensure_future(self._repeat(catch_up, over))
        try:
            while reason := await self._read_reason():
                self._show(reason)
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda reason=reason: task.done() or self._verbs.proceed_wanted or self._reason() != reason,
                        timeout=reason.until and reason.until - workflow.now(),
                        timeout_summary="cut-over",
                    )
                if task.done():
                    task.result()
                if self._verbs.proceed_wanted:
                    if reason.kind is WaitKind.VETO:
                        self._hooks.override(_STEP)
                        self._state.veto_overridden = True
                    else:
                        self.plan.hold, self.plan.at = False, None
                    self._verbs.open_gate()
                elif reason.kind is WaitKind.VETO and self._reason() == reason:
                    await self._ask_during(task)
            # It may have ended while the windows were read.
            if task.done():
                task.result()
        finally:
            # A round that completes in spite of its cancellation must not start another one.
            over.set()
            await cancel_and_wait(task)
            self._verbs.open_gate()
            self._status.stop_waiting()

    async def _repeat(self, catch_up: Round | None, over: asyncio.Event) -> None:
        while not over.is_set():
            now = workflow.now()
            age = now - self._state.history[-1].started
            end = now + min(max(age / _ROUNDS_PER_AGE, _SHORTEST_ROUND), _LONGEST_ROUND)
            if catch_up is not None:
                await catch_up(end - now)
            if (remaining := end - workflow.now()) > timedelta(0) or catch_up is None:
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: over.is_set() or self._continuation.due,
                        timeout=remaining if catch_up is not None else None,
                        timeout_summary="next round",
                    )
            await self._continuation.checkpoint()

    def _show(self, reason: _Reason) -> None:
        if reason.kind is WaitKind.VETO:
            self._hooks.show_veto(_STEP, after=self.after)
            return
        if Verb.PROCEED in reason.ends_on:
            self._verbs.close_gate(_EFFECT, after=self.after)
        else:
            self._verbs.open_gate(reason.why)
        self._status.wait_for(reason.kind, reason.why, action=reason.action, until=reason.until, ends_on=reason.ends_on)

    async def _read_reason(self) -> _Reason | None:
        await self.read_windows()
        return self._reason()

    def _reason(self) -> _Reason | None:
        """Return why the cut-over does not start now; None if it does."""
        if (pause := self._verbs.pause) is not None:
            enders = (Verb.RESUME, Verb.ROLLBACK)
            return _Reason(WaitKind.PAUSE, str(pause), RESUME_IT, enders)
        if self.plan.hold:
            return _HELD
        at = self.plan.at
        if at and at > workflow.now():
            why = f"the cut-over begins at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
            return _Reason(WaitKind.HOLD, why, "", (Verb.PROCEED, "cutover_at", Verb.ROLLBACK), at)
        if closed := self._calendar.closed():
            action = "" if closed.until else "set other change windows, or roll back"
            enders = ("set_change_windows", Verb.ROLLBACK)
            return _Reason(WaitKind.CHANGE_WINDOW, closed.why, action, enders, closed.until)
        if self._state.veto:
            gate = veto_gate(self._state, _STEP)
            return _Reason(WaitKind.VETO, gate.why, gate.action, (Verb.PROCEED, Verb.ROLLBACK), self._state.ask_again)
        return None


_HELD = _Reason(
    WaitKind.HOLD,
    "the operator's `proceed` to cut over",
    "give `proceed` to cut over",
    (Verb.PROCEED, "hold_before_cutover", Verb.ROLLBACK),
)
