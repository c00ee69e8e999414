"""Phases of a migration: entered once, recorded, interrupted, and undone when they fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.hook_events import EventType
from models.lifecycle.names import summary_line
from models.lifecycle.policy import PhasePolicy
from models.lifecycle.state import MigrationState
from models.lifecycle.status import Outcome, PhaseEntry, WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.continuation import Continuation, ContinuationDue
from workflows.lifecycle.failures import FAILURES, Interrupted, Rehearsed, cause_of, failure_of, to_exception
from workflows.lifecycle.log import log
from workflows.lifecycle.search_attributes import PHASE_KEY, SearchAttributes
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.timers import Timers

ResultT = TypeVar("ResultT")

_SHORTEST_BACKOFF = timedelta(seconds=5)
_LONGEST_BACKOFF = timedelta(minutes=10)


class Phases:
    """Runs the phases of one migration.

    Args:
        state: of the migration.
        status: shows the phases.
        timers: interrupt them.
        continuation: may end the run before each phase, and before a retry of the rollback.
        attributes: search attributes; one has the phase.
        policies: of the phases, by name.
        last: last phase of a rehearsal; empty for a migration.
    """

    def __init__(
        self,
        state: MigrationState[Any, Any, Any],
        status: StatusBoard,
        timers: Timers,
        *,
        continuation: Continuation,
        attributes: SearchAttributes,
        policies: Mapping[Any, PhasePolicy],
        last: str,
    ) -> None:
        self._state = state
        self._status = status
        self._timers = timers
        self._continuation = continuation
        self._attributes = attributes
        self.policies = policies
        self._last = last

    async def run(
        self,
        phase: str,
        work: Callable[[], Awaitable[object]],
        *,
        policy: PhasePolicy | None = None,
        holds_inside: bool = False,
    ) -> None:
        """Enter a phase, record it, and run its work until it ends, is rolled back, or a deadline passes.

        A phase that is done in an earlier run of the workflow is skipped; one that was interrupted there continues.

        Args:
            phase: its name.
            work: of the phase.
            policy: replaces the one of its name.
            holds_inside: the work handles a pause itself.

        Raises:
            Interrupted: by a rollback or a deadline; the work was cancelled and has ended.
            Rehearsed: the phase has ended, and is the last one of a rehearsal.
        """
        if phase in self._state.passed:
            return
        if self._state.running_phase != phase:
            # Pause between phases: inside of one, writes may be blocked or brokers stopped.
            if not holds_inside:
                await self._timers.wait_if_paused()
            await self._continuation.checkpoint()
        entry = self._enter(phase, policy or self.policies[phase])
        await self._recorded(entry, self._timers.until_interrupted(work()))
        if phase == self._last:
            raise Rehearsed(f"rehearsed up to {phase}")

    async def shielded(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run phases that must not be half-finished; a cancellation of the workflow waits for their end."""
        return await self._shielded(work(), "the running step ends first")

    async def undo(self, phase: str, work: Callable[[], Awaitable[object]]) -> None:
        """Enter a phase of the rollback: it cannot be interrupted, and is retried until it succeeds."""
        if phase in self._state.passed:
            return
        self._state.verbs.undo()
        entry = self._enter(phase, self.policies[phase])
        shielded = self._shielded(self._repeat(work), "the running rollback ends first")
        await self._recorded(entry, shielded)

    async def rollback_on_failure(
        self, work: Callable[[], Awaitable[None]], *, undo: Callable[[str], Awaitable[str]]
    ) -> None:
        """Run phases, and undo them if one fails, is interrupted, or the workflow is cancelled.

        Args:
            work: the phases; once it succeeds, they cannot be undone any more.
            undo: undoes them, and retries until it succeeds; gets the cause. It returns a reason to continue all the
                same: the migration was already committed, or the operator gave up the rollback. Empty if all is undone.

        Raises:
            Interrupted, ApplicationError, CancelledError: why the phases were undone.
        """
        state = self._state
        if state.committed:
            return
        if state.undoing is None:
            try:
                await work()
            except FAILURES as error:
                # In the state, so that after continue-as-new the next run continues the rollback.
                state.undoing = failure_of(error)
                # Deadlines of phases that do not run any more.
                state.deadlines.clear()
        if state.undoing is not None:
            reason_to_continue = await undo(state.undoing.why)
            if not reason_to_continue:
                raise to_exception(state.undoing)
            state.cancelled |= state.undoing.how == "cancelled"
            self._status.note(reason_to_continue)
        state.undoing, state.committed = None, True
        state.verbs.commit()  # mutant: shared/a-rollback-after-the-commit

    async def rest(self, why: str, backoff: timedelta, *, effect: str) -> None:
        """Wait before the next attempt; `proceed` starts it at once.

        Args:
            why: what is waited for.
            backoff: how long.
            effect: what `proceed` does.
        """
        verbs = self._state.verbs
        verbs.close_gate(effect)
        enders = [verb for verb in (Verb.PROCEED, Verb.ROLLBACK) if verb in verbs.legal()]
        self._status.wait_for(WaitKind.RETRY, why, until=workflow.now() + backoff, ends_on=enders)
        try:
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: verbs.proceed_wanted, timeout=backoff, timeout_summary=summary_line(why)
                )
        finally:
            verbs.open_gate()
            self._status.stop_waiting()

    # Inside -----------------------------------------------------------------------------------------------------------

    def _enter(self, phase: str, policy: PhasePolicy) -> PhaseEntry:
        state = self._state
        if state.running_phase == phase:
            self._status.publish()
            return state.history[-1]
        state.verbs.enter(policy)
        state.progress = state.waiting = state.activity_waiting = None
        state.history.append(PhaseEntry(phase=phase, started=workflow.now(), undo=policy.undo))
        self._attributes.set(PHASE_KEY.value_set(phase))
        log(f"phase {phase} starts", phase=phase, undo=policy.undo.value)
        self._status.event(EventType.PHASE_STARTED, f"phase {phase} starts")
        self._status.publish()
        return state.history[-1]

    async def _recorded(self, entry: PhaseEntry, work: Awaitable[object]) -> None:
        try:
            await work
        # The phase has not ended: the next run continues with this entry.
        except ContinuationDue:
            raise
        except Interrupted as stop:
            self._close(entry, Outcome.ROLLED_BACK if stop.by_operator else Outcome.FAILED, str(stop))
            raise
        except BaseException as error:
            self._close(entry, Outcome.FAILED, cause_of(error))
            raise
        self._state.passed.add(entry.phase)
        self._close(entry, Outcome.DONE, "")

    def _close(self, entry: PhaseEntry, outcome: Outcome, note: str) -> None:
        because = f": {note}" if note else ""
        text = f"phase {entry.phase} ends, {outcome}{because}"
        # While it still is the running phase.
        self._status.event(EventType.PHASE_ENDED, text, outcome=outcome)
        entry.ended, entry.outcome, entry.note = workflow.now(), outcome, note
        seconds = round(entry.seconds(workflow.now()), 3)
        level = logging.INFO if outcome is Outcome.DONE else logging.WARNING
        log(text, level, phase=entry.phase, seconds=seconds)
        self._status.publish()

    async def _shielded(self, work: Awaitable[ResultT], why: str) -> ResultT:
        """Wait for the end of the work, also when the workflow is cancelled."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                # Temporal delivers a cancellation only once.
                self._state.cancelled = True
                self._status.note(f"the workflow was cancelled; {why}")
        return task.result()

    async def _repeat(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat the work until it succeeds."""
        backoff = _SHORTEST_BACKOFF
        while True:
            try:
                return await work()
            except (ActivityError, ApplicationError) as error:
                failure = cause_of(error)
            self._status.note(f"the rollback failed; it is retried in {backoff.total_seconds():.0f} s: {failure}")
            await self.rest("the next attempt of the rollback", backoff, effect="the rollback is retried now")
            backoff = min(2 * backoff, _LONGEST_BACKOFF)
            # A retry repeats the whole phase, in this run or the next one.
            await self._continuation.checkpoint()
