"""What a migration waits for beside its activities: windows, deadlines and pauses, and who ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow

from models.lifecycle.state import MigrationState
from models.lifecycle.status import WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.continuation import Continuation
from workflows.lifecycle.failures import Interrupted
from workflows.lifecycle.status import StatusBoard

ResultT = TypeVar("ResultT")

WINDOW = "window"
"""Name of the window among the deadlines; there is one at a time."""

_WINDOW_ENDERS = (Verb.CLEANUP, Verb.PROCEED, Verb.ROLLBACK)
_CHECK_EVERY = timedelta(minutes=10)
_ROLLED_BACK = "rolled back by the operator"


class Timers:
    """Durable timers of one migration, which stand in its state.

    Args:
        state: of the migration.
        status: where waits are shown.
        continuation: asked in a window, and in a pause between phases.
    """

    def __init__(self, state: MigrationState[Any, Any, Any], status: StatusBoard, continuation: Continuation) -> None:
        self._state = state
        self._verbs = state.verbs
        self._deadlines = state.deadlines
        self._status = status
        self._continuation = continuation

    async def window(
        self, name: str, length: timedelta, *, check: Callable[[], Awaitable[object]] | None = None
    ) -> datetime:
        """Wait behind a durable timer that `cleanup`, `proceed` and `change_window` can end or move; returns its end.

        `check` keeps the status fresh: it runs at the begin, behind each `change_window`, and every ten minutes, as
        the window grows old more seldom, since the history that it fills is limited.
        """
        # Of the phase, so that it is the same in all runs of the workflow.
        begun = self._state.history[-1].started
        # The run before has just looked: looking again at once, runs would follow each other without time passing.
        looks = WINDOW not in self._deadlines
        self._deadlines.setdefault(WINDOW, workflow.now() + length)
        enders = [verb for verb in _WINDOW_ENDERS if verb in self._verbs.legal()]
        try:
            while not self._window_ended():
                end = self._deadlines[WINDOW]
                self._status.wait_for(WaitKind.WINDOW, f"the {name} window", until=end, ends_on=enders)
                if check is not None and looks:
                    await check()
                looks = True
                # Whoever moved the end while the check ran may have done it for a fresh look.
                left = self._deadlines[WINDOW] - (now := workflow.now())
                await self._until(
                    lambda end=end: self._window_ended() or self._deadlines[WINDOW] != end,
                    max(min(left, max(_CHECK_EVERY, (now - begun) / 10)), timedelta(0)),
                    f"{name} window",
                )
        finally:
            self._status.stop_waiting()
            ended = self._deadlines.pop(WINDOW)
        return ended

    def change_window(self, remaining: timedelta) -> datetime:
        """Move the end of the open window; returns the new end."""
        self._deadlines[WINDOW] = workflow.now() + remaining
        return self._deadlines[WINDOW]

    @asynccontextmanager
    async def deadline(self, name: str, length: timedelta, *, since: datetime | None = None) -> AsyncGenerator[None]:
        """Bound what is inside, phases or a part of one: past the deadline the running phase is interrupted.

        A pause before it is no part. The time counts from `since`, by default from now on.
        """
        await self.wait_if_paused()
        self._deadlines.setdefault(name, (since or workflow.now()) + length)
        try:
            yield
        finally:
            self._deadlines.pop(name, None)

    def stop(self, name: str) -> None:
        """Stop a deadline that runs until `restart`: what it bounds has not begun yet."""
        self._deadlines.pop(name, None)

    def restart(self, name: str, length: timedelta) -> None:
        """Count a deadline from now on again: what it bounds begins only now."""
        self._deadlines[name] = workflow.now() + length

    async def wait_if_paused(self) -> None:
        """Wait for `resume`.

        Raises:
            Interrupted: a rollback was asked for.
        """
        while self._verbs.paused:
            self._status.wait_for(
                WaitKind.PAUSE,
                "paused by the operator",
                action="give `resume` to go on",
                ends_on=[verb for verb in (Verb.RESUME, Verb.ROLLBACK) if verb in self._verbs.legal()],
            )
            await self._until(lambda: not self._verbs.paused, None, "", may_continue=not self._state.running_phase)
            self._status.stop_waiting()
        if self._verbs.rollback_wanted:
            raise Interrupted(_ROLLED_BACK, by_operator=True)

    async def until_interrupted(self, work: Awaitable[ResultT]) -> ResultT:
        """Run work until it ends, a rollback is asked for, or a deadline passes.

        Raises:
            Interrupted: one of the latter came; the work was cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        passed = ""
        try:
            while not task.done() and not passed and not self._verbs.rollback_wanted:
                bound = self.next_bound()
                left, name = (max(bound[0] - workflow.now(), timedelta(0)), bound[1]) if bound else (None, "")
                await _wait(lambda bound=bound: self._attention(task, bound), left, name)
                # The work that is interrupted takes its deadline with it.
                passed = self._passed_bound()
        finally:
            if not task.done():
                await _end(task)
        # A rollback that was accepted is honoured, even if the work ended at the same moment.
        if self._verbs.rollback_wanted:
            raise Interrupted(_ROLLED_BACK, by_operator=True)
        if passed and (task.cancelled() or task.exception() is not None):
            raise Interrupted(f"{passed}: the deadline passed", by_operator=False)
        return task.result()

    async def until_proceed(self, work: Awaitable[object], *, or_cancelled: bool = False) -> bool:
        """Run work until it ends or `proceed` ends it; returns whether it came to its own end.

        Call it in a phase whose policy has a gate that says what `proceed` does there.

        Args:
            work: what may be left out.
            or_cancelled: a cancellation of the workflow that what is around it waits for ends the work as well.
        """
        task = asyncio.ensure_future(work)

        def told() -> bool:
            return self._verbs.proceed_wanted or (or_cancelled and self._state.cancelled)

        try:
            await workflow.wait_condition(lambda: task.done() or told())
        except asyncio.CancelledError:
            await _end(task)
            # How the activity inside took its cancellation, which is what callers look for.
            task.result()
            raise
        if task.done():
            task.result()
            return True
        await _end(task)
        return False

    def next_bound(self) -> tuple[datetime, str] | None:
        """Time and name of the deadline that passes first."""
        return min(((at, name) for name, at in self._deadlines.items() if name != WINDOW), default=None)

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _until(
        self, condition: Callable[[], bool], longest: timedelta | None, summary: str, *, may_continue: bool = True
    ) -> None:
        """Wait for a condition or for time; where the run may be left, leave it when its history has grown enough."""
        await _wait(lambda: condition() or (may_continue and self._continuation.due), longest, summary)
        if may_continue and not condition():
            await self._continuation.checkpoint()

    def _window_ended(self) -> bool:
        # A rollback interrupts the phase, see `until_interrupted`.
        asked = self._verbs.cleanup_wanted or self._verbs.proceed_wanted
        return asked or workflow.now() >= self._deadlines[WINDOW]

    def _passed_bound(self) -> str:
        bound = self.next_bound()
        return bound[1] if bound and workflow.now() >= bound[0] else ""

    def _attention(self, task: asyncio.Future[Any], bound: tuple[datetime, str] | None) -> bool:
        return task.done() or self._verbs.rollback_wanted or self.next_bound() != bound


async def _wait(condition: Callable[[], bool], longest: timedelta | None, summary: str) -> None:
    with suppress(TimeoutError):
        await workflow.wait_condition(condition, timeout=longest, timeout_summary=summary)


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        # Looked at, or asyncio would report it as never retrieved.
        task.exception()
