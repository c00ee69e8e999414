"""Timers of a migration: windows, deadlines and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow

from models.lifecycle.names import summary_line
from models.lifecycle.state import MigrationState
from models.lifecycle.status import RESUME_IT, WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.continuation import Continuation
from workflows.lifecycle.failures import Interrupted
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.tasks import cancel_and_wait, growing_pause

ResultT = TypeVar("ResultT")

WINDOW = "window"
"""Name of the window among the deadlines; only one is open at a time."""

_WINDOW_ENDERS = (Verb.CLEANUP, Verb.PROCEED, Verb.ROLLBACK)
_CHECK_EVERY = timedelta(minutes=10)
_ROLLED_BACK = "rolled back by the operator"


class Timers:
    """Durable timers of one migration; their ends are in its state.

    Args:
        state: of the migration.
        status: shows waits.
        continuation: may end the run in a window, and in a pause between phases.
    """

    def __init__(self, state: MigrationState[Any, Any, Any], status: StatusBoard, continuation: Continuation) -> None:
        self._state = state
        self._verbs = state.verbs
        self._deadlines = state.deadlines
        self._status = status
        self._continuation = continuation

    async def window(
        self,
        name: str,
        length: timedelta,
        *,
        check: Callable[[], Awaitable[object]] | None = None,
        then_hold: str = "",
    ) -> datetime:
        """Wait for the end of a window, which `cleanup`, `proceed` and `change_window` can end or move; return its end.

        `check` updates the status. It runs at the start, after each `change_window`, and every ten minutes; in an old
        window more rarely, since the history is limited. `then_hold` says what is decided at the end: the time alone
        does not end the window, but a verb does.
        """
        # The start of the phase is the same in all runs of the workflow.
        started = self._state.history[-1].started
        # The previous run has just checked. Another check at once would let runs follow each other without a pause.
        checks = WINDOW not in self._deadlines
        self._deadlines.setdefault(WINDOW, workflow.now() + length)
        enders = [verb for verb in _WINDOW_ENDERS if verb in self._verbs.legal()]
        try:
            while not self._window_ended(holds=bool(then_hold)):
                end = self._deadlines[WINDOW]
                if held := then_hold and workflow.now() >= end:
                    why = f"a decision at the end of the {name} window: {then_hold}"
                    self._status.wait_for(WaitKind.HOLD, why, action="give `proceed` or `cleanup`", ends_on=enders)
                else:
                    self._status.wait_for(WaitKind.WINDOW, f"the {name} window", until=end, ends_on=enders)
                if check is not None and checks:
                    await check()
                checks = True
                # `end` is from before the check: an operator who moved it during the check gets another one.
                next_check = growing_pause(_CHECK_EVERY, started)
                remaining = next_check if held else self._deadlines[WINDOW] - workflow.now()
                await self._until(
                    lambda end=end: self._window_ended(holds=bool(then_hold)) or self._deadlines[WINDOW] != end,
                    max(min(remaining, next_check), timedelta(0)),
                    f"{name} window",
                )
        finally:
            self._status.stop_waiting()
            ended = self._deadlines.pop(WINDOW)
        return ended

    def change_window(self, remaining: timedelta) -> datetime:
        """Move the end of the open window, and return it."""
        self._deadlines[WINDOW] = workflow.now() + remaining
        return self._deadlines[WINDOW]

    @asynccontextmanager
    async def deadline(self, name: str, length: timedelta, *, since: datetime | None = None) -> AsyncGenerator[None]:
        """Interrupt the running phase when the block takes longer than `length`, from `since` or now.

        A pause before the block does not count.
        """
        await self.wait_if_paused()
        self._deadlines.setdefault(name, (since or workflow.now()) + length)
        try:
            yield
        finally:
            self._deadlines.pop(name, None)

    def stop(self, name: str) -> None:
        """Stop a deadline until `restart`."""
        self._deadlines.pop(name, None)

    def restart(self, name: str, length: timedelta) -> None:
        """Start a deadline again from now on."""
        self._deadlines[name] = workflow.now() + length

    async def wait_if_paused(self) -> None:
        """Wait for `resume` while the migration is paused.

        Raises:
            Interrupted: by a rollback.
        """
        while (pause := self._verbs.pause) is not None:
            self._status.wait_for(
                WaitKind.PAUSE,
                str(pause),
                action=RESUME_IT,
                ends_on=[verb for verb in (Verb.RESUME, Verb.ROLLBACK) if verb in self._verbs.legal()],
            )
            await self._until(lambda: not self._verbs.paused, None, "", may_continue=not self._state.running_phase)
            self._status.stop_waiting()
        if self._verbs.rollback_wanted:
            raise Interrupted(_ROLLED_BACK, by_operator=True)

    async def until_interrupted(self, work: Awaitable[ResultT]) -> ResultT:
        """Run work until it ends, a rollback is requested, or a deadline passes.

        Raises:
            Interrupted: by a rollback or a deadline; the work was cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        passed = ""
        try:
            while not task.done() and not passed and not self._verbs.rollback_wanted:
                bound = self.next_bound()
                remaining, name = (max(bound[0] - workflow.now(), timedelta(0)), bound[1]) if bound else (None, "")
                await _wait(lambda bound=bound: self._attention(task, bound), remaining, name)
                # Read before the end: interrupted work removes its deadline.
                passed = self._passed_bound()
        finally:
            if not task.done():
                await cancel_and_wait(task)
        # An accepted rollback counts, even if the work ended at the same moment.
        if self._verbs.rollback_wanted:
            raise Interrupted(_ROLLED_BACK, by_operator=True)
        if passed and (task.cancelled() or task.exception() is not None):
            raise Interrupted(f"{passed}: the deadline passed", by_operator=False)
        return task.result()

    async def until_proceed(self, work: Awaitable[object], *, or_cancelled: bool = False) -> bool:
        """Run work until it ends or `proceed` cancels it; return whether it ended by itself.

        Call it in a phase whose policy has a gate that describes `proceed`.

        Args:
            work: may be cancelled.
            or_cancelled: a cancellation of the workflow, which a shielded caller delays, also cancels the work.
        """
        task = asyncio.ensure_future(work)

        def must_end() -> bool:
            return self._verbs.proceed_wanted or (or_cancelled and self._state.cancelled)

        try:
            await workflow.wait_condition(lambda: task.done() or must_end())
        except asyncio.CancelledError:
            await cancel_and_wait(task)
            # Raise the activity's own error, which callers check for the cancellation.
            task.result()
            raise
        if task.done():
            task.result()
            return True
        await cancel_and_wait(task)
        return False

    def next_bound(self) -> tuple[datetime, str] | None:
        """Return time and name of the deadline that passes first."""
        return min(((at, name) for name, at in self._deadlines.items() if name != WINDOW), default=None)

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _until(
        self, condition: Callable[[], bool], longest: timedelta | None, summary: str, *, may_continue: bool = True
    ) -> None:
        """Wait for a condition, at most for `longest`; end the run if that is allowed and its history has grown."""
        await _wait(lambda: condition() or (may_continue and self._continuation.due), longest, summary)
        if may_continue and not condition():
            await self._continuation.checkpoint()

    def _window_ended(self, *, holds: bool) -> bool:
        # A rollback interrupts the phase, see `until_interrupted`.
        asked = self._verbs.cleanup_wanted or self._verbs.proceed_wanted
        return asked or (not holds and workflow.now() >= self._deadlines[WINDOW])

    def _passed_bound(self) -> str:
        bound = self.next_bound()
        return bound[1] if bound and workflow.now() >= bound[0] else ""

    def _attention(self, task: asyncio.Future[Any], bound: tuple[datetime, str] | None) -> bool:
        return task.done() or self._verbs.rollback_wanted or self.next_bound() != bound


async def _wait(condition: Callable[[], bool], longest: timedelta | None, summary: str) -> None:
    with suppress(TimeoutError):
        await workflow.wait_condition(condition, timeout=longest, timeout_summary=summary_line(summary))
