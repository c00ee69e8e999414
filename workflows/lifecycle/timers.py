"""What a migration waits for beside its steps: windows, deadlines, decisions, pauses, and who ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.execution import InputT
    from models.lifecycle.status import WaitKind
    from models.lifecycle.verbs import Verb
    from workflows.lifecycle.verbs import OperatorHandlers

ResultT = TypeVar("ResultT")

_WINDOW_ENDERS = (Verb.CLEANUP, Verb.PROCEED, Verb.ROLLBACK)
_CHECK_EVERY = timedelta(minutes=10)


class Interrupted(Exception):
    """A phase was left because of a rollback or a deadline."""

    def __init__(self, why: str, *, by_operator: bool) -> None:
        super().__init__(why)
        self.by_operator = by_operator


class Bounded(OperatorHandlers[InputT]):
    """A migration that waits for people and for time."""

    async def window(
        self, name: str, length: timedelta, *, check: Callable[[], Awaitable[object]] | None = None
    ) -> datetime:
        """Wait behind a durable timer that `cleanup`, `proceed` and `change_window` can end or move; returns its end.

        `check` keeps the status fresh: it runs at the begin and every ten minutes, and as the window grows old more
        seldom, since the history that it fills is limited.
        """
        opened = workflow.now()
        self.deadlines["window"] = opened + length
        enders = [verb for verb in _WINDOW_ENDERS if verb in self.lifecycle.legal()]
        self._wait_for(WaitKind.WINDOW, f"the {name} window", until=self.deadlines["window"], ends_on=enders)
        self.publish()
        try:
            while not self._window_ended():
                if check is not None:
                    await check()
                end = self.deadlines["window"]
                left, now = end - workflow.now(), workflow.now()
                await _until(
                    lambda end=end: self._window_ended() or self.deadlines["window"] != end,
                    max(min(left, max(_CHECK_EVERY, (now - opened) / 10)), timedelta(0)),
                    f"{name} window",
                )
        finally:
            self._waiting = None
            ended = self.deadlines.pop("window")
        return ended

    async def decision(self, why: str, effect: str) -> None:
        """Wait inside a phase for the operator's word: `proceed` goes on.

        A rollback, where it is legal, and a deadline leave the phase instead.

        Args:
            why: what has to be decided, in a sentence.
            effect: what `proceed` does.
        """
        self.lifecycle.close_gate(effect)
        enders = [verb for verb in (Verb.PROCEED, Verb.ROLLBACK) if verb in self.lifecycle.legal()]
        bound = self._next_bound()
        action = f"decide: proceed {effect}" + (", rollback goes back" if Verb.ROLLBACK in enders else "")
        self._wait_for(WaitKind.DECISION, why, action=action, until=bound[0] if bound else None, ends_on=enders)
        self.publish()
        try:
            await workflow.wait_condition(lambda: self.lifecycle.proceed_wanted)
        finally:
            self.lifecycle.open_gate()
            self._waiting = None
            self.publish()

    @asynccontextmanager
    async def deadline(self, name: str, length: timedelta, *, since: datetime | None = None) -> AsyncGenerator[None]:
        """Bound what is inside, phases or a part of one: past the deadline the running phase is interrupted.

        A pause before it is no part. The time counts from `since`, by default from now on.
        """
        await self.wait_if_paused()
        self.deadlines[name] = (since or workflow.now()) + length
        try:
            yield
        finally:
            self.deadlines.pop(name, None)

    async def wait_if_paused(self) -> None:
        """Wait for `resume`.

        Raises:
            Interrupted: a rollback was asked for.
        """
        if self.lifecycle.paused:
            self._wait_for(
                WaitKind.PAUSE,
                "paused by the operator",
                action="resume to go on",
                ends_on=("resume", "rollback"),
            )
            self.publish()
            await workflow.wait_condition(lambda: not self.lifecycle.paused)
            self._waiting = None
        if self.lifecycle.rollback_wanted:
            raise Interrupted("rolled back by the operator", by_operator=True)

    async def unless_interrupted(self, work: Awaitable[ResultT]) -> ResultT:
        """Run work until it ends, a rollback is asked for, or a deadline passes.

        Raises:
            Interrupted: one of the latter came; the work was cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        passed = ""
        try:
            while not task.done() and not passed and not self.lifecycle.rollback_wanted:
                bound = self._next_bound()
                left, name = (max(bound[0] - workflow.now(), timedelta(0)), bound[1]) if bound else (None, "")
                await _until(lambda bound=bound: self._attention(task, bound), left, name)
                # The work that is interrupted takes its deadline with it.
                passed = self._passed_bound()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        # A rollback that was accepted is honoured, even if the work ended at the same moment.
        if self.lifecycle.rollback_wanted:
            raise Interrupted("rolled back by the operator", by_operator=True)
        if passed and (task.cancelled() or task.exception() is not None):
            raise Interrupted(f"{passed}: the deadline passed", by_operator=False)
        return task.result()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _window_ended(self) -> bool:
        asked = self.lifecycle.cleanup_wanted or self.lifecycle.proceed_wanted or self.lifecycle.rollback_wanted
        return asked or workflow.now() >= self.deadlines["window"]

    def _next_bound(self) -> tuple[datetime, str] | None:
        """Time and name of the deadline that passes first."""
        return min(((at, name) for name, at in self.deadlines.items() if name != "window"), default=None)

    def _passed_bound(self) -> str:
        bound = self._next_bound()
        return bound[1] if bound and workflow.now() >= bound[0] else ""

    def _attention(self, task: asyncio.Future[Any], bound: tuple[datetime, str] | None) -> bool:
        return task.done() or self.lifecycle.rollback_wanted or self._next_bound() != bound


async def _until(condition: Callable[[], bool], longest: timedelta | None, summary: str) -> None:
    with suppress(TimeoutError):
        await workflow.wait_condition(condition, timeout=longest, timeout_summary=summary)
