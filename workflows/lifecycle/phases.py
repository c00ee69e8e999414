"""The phases of a migration: entered once, recorded, interrupted, and undone when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.policy import PhasePolicy
from models.lifecycle.state import MigrationState
from models.lifecycle.status import Outcome, PhaseEntry, WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.continuation import Continuation, ContinuationDue
from workflows.lifecycle.failures import FAILURES, Interrupted, cause_of, failure_of, raised_again
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.timers import Timers

ResultT = TypeVar("ResultT")

PHASE_KEY = SearchAttributeKey.for_keyword("MigrationPhase")

_SHORTEST_PATIENCE = timedelta(seconds=5)
_LONGEST_PATIENCE = timedelta(minutes=10)


class Phases:
    """Runs the phases of one migration.

    Args:
        state: of the migration.
        status: where phases are shown.
        timers: interrupt them.
        continuation: asked before each phase, and before a phase of the way back is tried again.
        policies: what an operator may do in each phase, by its name.
    """

    def __init__(
        self,
        state: MigrationState[Any, Any, Any],
        status: StatusBoard,
        timers: Timers,
        *,
        continuation: Continuation,
        policies: Mapping[Any, PhasePolicy],
    ) -> None:
        self._state = state
        self._status = status
        self._timers = timers
        self._continuation = continuation
        self.policies = policies

    async def run(
        self,
        phase: str,
        work: Callable[[], Awaitable[object]],
        *,
        policy: PhasePolicy | None = None,
        holds_inside: bool = False,
    ) -> None:
        """Enter a phase, record it, and run its work until it ends, is rolled back, or a deadline passes.

        A phase that was done in an earlier run of the workflow is not entered; one that was left there continues.

        Args:
            phase: its name.
            work: what it does.
            policy: other than the one of its name.
            holds_inside: a pause is honoured by the work, and not before it.

        Raises:
            Interrupted: a rollback was asked for, or a deadline passed; the work was cancelled and has ended.
        """
        if phase in self._state.passed:
            return
        if self._state.running_phase != phase:
            # A pause holds here, between phases: inside of one, writes may be blocked or brokers stopped.
            if not holds_inside:
                await self._timers.wait_if_paused()
            await self._continuation.checkpoint()
        entry = self._enter(phase, policy or self.policies[phase])
        await self._recorded(entry, self._timers.until_interrupted(work()))

    async def shielded(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run phases that must come to their end, since half of what they do is worse than all or nothing of it.

        A cancellation of the workflow waits for them; how they end is what counts then.
        """
        return await self._shielded(work(), "what is under way ends first")

    async def undo(self, phase: str, work: Callable[[], Awaitable[object]]) -> None:
        """Enter a phase of the way back: it is interrupted by nothing, and repeated until it succeeds."""
        if phase in self._state.passed:
            return
        self._state.verbs.undo()
        entry = self._enter(phase, self.policies[phase])
        shielded = self._shielded(self._repeat(work), "the way back that is under way ends first")
        await self._recorded(entry, shielded)

    async def rollback_on_failure(
        self, work: Callable[[], Awaitable[None]], *, undo: Callable[[str], Awaitable[str]]
    ) -> None:
        """Run phases, and undo what they did when one fails, is interrupted, or the workflow is cancelled.

        Args:
            work: the phases; where it ends well, nothing of them is undone any more.
            undo: undoes, retrying for as long as it takes; gets the cause. What it returns says why the migration goes
                on all the same: it turned out to be committed, or the operator has given the way back up. It is empty
                where everything is undone.

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
                # In the state, so that a run which continues as new during the way back continues with it.
                state.undoing = failure_of(error)
                # A rollback that meets the start of a run finds those of the phases that it does not come to any more.
                state.deadlines.clear()
        if state.undoing is not None:
            goes_on = await undo(state.undoing.why)
            if not goes_on:
                raise raised_again(state.undoing)
            state.cancelled |= state.undoing.how == "cancelled"
            self._status.note(goes_on)
        state.undoing, state.committed = None, True
        state.verbs.commit()  # mutant: shared/a-rollback-after-the-commit

    async def rest(self, why: str, patience: timedelta, *, effect: str) -> None:
        """Wait before another attempt, which `proceed` begins at once.

        Args:
            why: what is waited for, in words.
            patience: how long.
            effect: what `proceed` does.
        """
        verbs = self._state.verbs
        verbs.close_gate(effect)
        enders = [verb for verb in (Verb.PROCEED, Verb.ROLLBACK) if verb in verbs.legal()]
        self._status.wait_for(WaitKind.RETRY, why, until=workflow.now() + patience, ends_on=enders)
        try:
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: verbs.proceed_wanted, timeout=patience, timeout_summary=why)
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
        upsert(PHASE_KEY.value_set(phase))
        gauge = workflow.metric_meter().create_gauge("pulsar_migrate_phase", "Index of the running phase")
        gauge.with_additional_attributes(self._status.labels(phase=phase)).set(len(state.history))
        self._status.publish()
        return state.history[-1]

    async def _recorded(self, entry: PhaseEntry, work: Awaitable[object]) -> None:
        try:
            await work
        # No end of the phase: the next run continues with this entry.
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
        entry.ended, entry.outcome, entry.note = workflow.now(), outcome, note
        meter = workflow.metric_meter()
        seconds = meter.create_gauge_float("pulsar_migrate_phase_seconds", "Time that a phase took", "s")
        labels = self._status.labels(phase=entry.phase)
        seconds.with_additional_attributes(labels).set(entry.seconds(workflow.now()))
        self._status.publish()

    async def _shielded(self, work: Awaitable[ResultT], why: str) -> ResultT:
        """Wait for the end of the work; a cancellation of the workflow waits for it as well."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                # Temporal tells it once only.
                self._state.cancelled = True
                self._status.note(f"the workflow was cancelled; {why}")
        return task.result()

    async def _repeat(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat the work until it succeeds."""
        patience = _SHORTEST_PATIENCE
        while True:
            try:
                return await work()
            except (ActivityError, ApplicationError) as error:
                failure = cause_of(error)
            self._status.note(f"the way back failed and is tried again in {patience.total_seconds():.0f} s: {failure}")
            await self.rest("the next attempt of the way back", patience, effect="the way back is tried again at once")
            patience = min(2 * patience, _LONGEST_PATIENCE)
            # Another try repeats the whole phase, in whichever run.
            await self._continuation.checkpoint()


def upsert(*updates: SearchAttributeUpdate[str]) -> None:
    """Set search attributes."""
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
