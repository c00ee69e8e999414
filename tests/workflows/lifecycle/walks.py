"""Random walks of operators and failures through a migration: what can come, one move after another, and the end.

`make test` plays a small fixed sample of walks, `make test-walks` as many random ones as are asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Run, is_at_rest

LET, CANCEL = "let", "cancel"
"""Moves other than verbs: the running activity ends; the workflow is cancelled."""

FAIL, DEAF = "fail", "deaf"
"""What can be wrong with an activity: it fails when it may end, or it answers although it was cancelled."""

_FAILURE = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
_LIMIT = 180.0


def moves(most: int) -> SearchStrategy[list[str]]:
    """Return up to `most` moves; the end of an activity is as likely as all others together."""
    return st.lists(st.one_of(st.just(LET), st.sampled_from([*Verb, CANCEL])), max_size=most)


def faults(activities: Iterable[str]) -> SearchStrategy[dict[str, str]]:
    """Return at most two activities, each with its fault."""
    return st.dictionaries(st.sampled_from(sorted(set(activities))), st.sampled_from([FAIL, DEAF]), max_size=2)


def hang(fault: str, answer: Any) -> Hang:
    """Return an activity that continues until a move ends it."""
    return Hang(deaf=fault == DEAF, failure=_FAILURE if fault == FAIL else None, answer=answer)


class Walk:
    """Takes one migration through its moves.

    Args:
        run: the migration.
        undo_phase: in which it is undone; a cancellation interrupts nothing there.
        is_idle: returns whether nothing more happens, in a status with a reason to wait, until an operator acts.
        unbroken: activities that neither a cancellation nor a rollback interrupts, in whatever phase.
    """

    def __init__(
        self, run: Run, *, undo_phase: str, is_idle: Callable[[Status], bool], unbroken: Collection[str] = ()
    ) -> None:
        self._run, self._undo_phase, self._is_idle, self._unbroken = run, undo_phase, is_idle, unbroken
        self._cancelled = False

    async def play(self, moves: Iterable[str], hangs: Iterable[Hang]) -> Status:
        """Make all moves, each at a moment at which the migration waits; then end it, and return its last status."""
        for move in moves:
            await self._until_waiting()
            if not await self._run.running():
                break
            await self._make(move)
        await self._end(hangs)
        status = await self._run.status()
        assert status.legal_verbs == []
        assert all(entry.ended and entry.outcome is not Outcome.RUNNING for entry in status.history)
        return status

    async def _make(self, move: str) -> None:
        """Make a move, and wait until an activity that it ends has ended."""
        hanging, before = self._run.script.hanging, await self._run.status()
        if move == LET:
            if hanging:
                hanging.release()
        elif move == CANCEL:
            await self._run.handle.cancel()
        else:
            await self._run.signal(Verb(move))
        undoing = any(entry.phase == self._undo_phase for entry in before.history)
        stops = (move == CANCEL and not undoing and not self._cancelled) or (
            move == Verb.ROLLBACK and move in before.legal_verbs
        )
        # Temporal tells a workflow once only that it was cancelled.
        self._cancelled |= move == CANCEL
        ends = move == LET or (stops and self._run.script.calls[-1].step not in self._unbroken)
        async with asyncio.timeout(_LIMIT):
            # The activity ends on the worker's side.
            while ends and hanging and self._run.script.hanging is hanging:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _until_waiting(self) -> None:
        """Wait until the migration itself waits: for an activity, for an operator, or for nothing any more."""
        async with asyncio.timeout(_LIMIT):
            while await self._run.running():
                status = await self._run.status()
                if self._run.script.hanging:
                    return
                # The test server cannot cancel a step, such as a round of a hold, that ends at that moment.
                if status.waiting and self._is_idle(status) and await is_at_rest(self._run.handle):
                    return
                await asyncio.sleep(0.02)

    async def _end(self, hangs: Iterable[Hang]) -> None:
        """Walk to an end, which every state can reach: activities end, decisions are taken, a pause is ended."""
        await self._until_waiting()
        for activity in hangs:
            activity.release()
        await self._until_waiting()
        while await self._run.running():
            status = await self._run.status()
            if status.paused:
                await self._run.signal(Verb.RESUME)
            elif status.waiting and status.waiting.kind in (WaitKind.DECISION, WaitKind.HOLD):
                await self._run.signal(Verb.PROCEED)
            else:
                break
            await self._until_waiting()
        with contextlib.suppress(WorkflowFailureError):
            await self._run.report()
