"""Routing `restart`: brokers of today stop on one cluster and start on the other; every ledger moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.bookie_cluster import brokers, build, rollback, tail
from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.results import BrokersOn, BrokersStopped, CopySummary, Directive, RollbackReadiness, TailCopy
from models.bookie_cluster.state import CopyFigures, CutoverStage
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Undo, WaitKind
from models.lifecycle.verbs import Verb
from workflows.bookie_cluster.cutover import BACK, CLEARING, FORWARD, Cutover, require_safe
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.tasks import cancel_and_wait

ResultT = TypeVar("ResultT")

# Between checks of a cluster that cannot take brokers back; grows, since each check stays in the history.
_LOOK_AGAIN = timedelta(seconds=15)
# Brokers serve on the source: a target that has failed does not keep the switch from its end for longer.
_EARLY = timedelta(minutes=15)
_PROCEED = (Verb.PROCEED,)
# A `proceed` for the previous gate, sent twice or a moment late, must not give up the rollback.
_GATE_DELAY = timedelta(seconds=5)


class RestartCutover(Cutover):
    """Brokers are away from SWITCH to PROMOTE, and again in a rollback."""

    # Forward ----------------------------------------------------------------------------------------------------------

    async def copy(self, length: timedelta = timedelta(0)) -> CopySummary:
        """Copy ledgers while brokers serve; what a broker wrote to the target in the meantime must be copied back.

        Args:
            length: how long to continue.

        Raises:
            ApplicationError: an earlier round had the proof that brokers must stop, when the hold ended.
        """
        # mutant: bookie-cluster/a-proof-at-the-end-of-the-hold-is-lost
        if self.state.brokers_returned:
            raise ApplicationError(
                f"a broker was started on {self.input.target.name} too early: what it wrote there is copied back. "
                "Cure: configure brokers for it only when the status asks for their start",
                type=FailureKind.CONFLICT,
                non_retryable=True,
            )
        try:
            return await super().copy(length)
        except ActivityError as error:
            # Kept at once: the stores may be away when the rollback asks again.
            if isinstance(error.cause, ApplicationError) and brokers.TOO_EARLY in error.cause.details:
                self._require_copy_back()  # mutant: bookie-cluster/the-rollback-forgets-what-was-written-too-early
            raise

    async def decide(self, built: CopySummary) -> bool:
        """Ask for a decision on ledgers that cannot be copied; return whether one was needed."""
        effect = "continues without these ledgers: brokers on the target will not find them"
        return await self.migration.decisions.decide(built.failed, effect=effect)

    async def switch(self) -> None:
        """Stop brokers, bring the target up to date, and set the directive."""
        # Before the stop is ordered: whatever fails from here on, brokers must be started again.
        self.state.stage = CutoverStage.BROKERS_STOPPED
        stopped = await self._stop_brokers(FORWARD)
        # mutant: bookie-cluster/no-longest-pause
        async with self.migration.timers.deadline("longest pause", self.input.pause_deadline, since=stopped.since):
            # PRECHECK asked while brokers created ledgers; with all of them stopped the answer stays true (I11).
            await self.require_ids()  # mutant: bookie-cluster/ids-are-not-checked
            tail, directive = await self._direct(await self._copy_tail(FORWARD), FORWARD)
            self._certify(tail)
        self.state.figures.pause_seconds = (directive.at - stopped.since).total_seconds()

    async def promote(self) -> None:
        """Start brokers on the target, and verify that they write there."""
        on = await self._start_brokers(FORWARD)
        self.state.stage = CutoverStage.PROMOTED
        self.state.certificate.brokers_on_the_target = list(on.brokers)
        self.state.figures.new_ledgers = on.new_ledgers
        if on.away_since:
            self.state.figures.brokers_away_seconds = (on.since - on.away_since).total_seconds()

    # Backward ---------------------------------------------------------------------------------------------------------

    async def roll_back(self) -> None:
        """Copy back what the target gained, then start brokers on the source again."""
        misrouted = await self._find_early_ledgers() or await self._return_brokers()
        while misrouted:
            self.migration.board.note(
                f"a broker created {misrouted} in {self.input.target.name}: brokers stop again, and the copy back "
                "follows"
            )
            self._require_copy_back()  # mutant: bookie-cluster/brokers-stay-though-a-ledger-is-misrouted
            await self.migration.continuation.checkpoint()
            misrouted = await self._return_brokers()

    def _require_copy_back(self) -> None:
        """Note that the source lacks ledgers of the target, and that brokers may run on both clusters."""
        self.state.stage = CutoverStage.DIRECTED
        self.state.brokers_returned = True

    async def _find_early_ledgers(self) -> str:
        """Name ledgers of brokers that started on the target before any was asked to stop; empty if there are none.

        For a rollback with another cause: rounds of BUILD may not have noticed them yet.
        """
        if self.state.stage is not CutoverStage.COPIES:
            return ""
        name = self.input.target.name
        call = Call(f"Did a broker write to {name} too early?", total=_EARLY)
        otherwise = f"it could not be seen whether a broker wrote to {name} too early; what it wrote stays there"
        # mutant: bookie-cluster/what-was-written-too-early-stays-in-the-target
        return await self.activities.try_run(brokers.find_early_ledgers, call, otherwise) or ""

    async def _return_brokers(self) -> str:
        """Return brokers to the source, and ledgers that one of them created in the target after the copy back."""
        if self.state.stage >= CutoverStage.DIRECTED:
            self.state.stays = self.state.stays or not await self._bring_back()
            if self.state.stays:
                await self._start_brokers(FORWARD)
                return ""
            # Whatever fails from here on, brokers must not be stopped again.
            self.state.stage = CutoverStage.BROKERS_STOPPED
        elif self.state.stopped is not None:
            # A broker may have started on the target by mistake.
            await self._lift_source_ids()  # mutant: bookie-cluster/ids-of-the-source-are-not-lifted
        # Not after this point: brokers may run from here on, and some would continue with ids that they remember.
        self.state.stopped = None
        if self.state.stage >= CutoverStage.BROKERS_STOPPED:
            on = await self._start_brokers(BACK)
            if on.misrouted:
                return on.misrouted
            if on.unread:
                self.migration.board.note(
                    f"it could not be seen whether a broker created {on.unread}; what it wrote stays there"
                )
            self.state.certificate.brokers_on_the_source = list(on.brokers)
            self.state.stage = CutoverStage.COPIES
            if on.away_since:
                away = (on.since - on.away_since).total_seconds()
                self.state.figures.rollback_brokers_away_seconds = away
        return ""

    @property
    def _giving_up(self) -> str:
        target, source = self.input.target.name, self.input.source.name
        return f"the rollback is given up: brokers stay on {target}, and the ledgers of {source} are left"

    async def _may_go_back(self) -> bool:
        """Wait until brokers can be brought back; return False if the operator gives up the rollback."""
        verbs, state, effect = self.migration.verbs, self.state, self._giving_up
        backoff = _LOOK_AGAIN
        while True:
            call = Call(f"Can {self.input.source.name} take brokers back?")
            readiness = await self.activities.run(rollback.check_rollback, call)
            without = state.without_target
            # mutant: bookie-cluster/a-source-that-is-dead-takes-brokers-back, bookie-cluster/goes-back-without-consent
            if not readiness.blockers and (without or not readiness.target_blockers):
                return True
            verbs.close_gate(effect, proceed_not_before=workflow.now() + _GATE_DELAY)
            self._show_what_is_waited_for(readiness, until=workflow.now() + backoff)
            try:
                with suppress(TimeoutError):
                    await workflow.wait_condition(self._given_up_since(without=without), timeout=backoff)
                given_up = verbs.proceed_wanted
            finally:
                verbs.open_gate()
                self.migration.board.stop_waiting()
            if given_up:
                return False
            backoff = min(2 * backoff, CLEARING)
            # This starts the rollback, which any run can repeat from here.
            await self.migration.continuation.checkpoint()

    def _show_what_is_waited_for(self, readiness: RollbackReadiness, until: datetime) -> None:
        source, target, action = self.input.source.name, self.input.target.name, "cure that"
        causes: list[str] = []
        if readiness.blockers:
            causes.append(f"{source} cannot take brokers back: {'; '.join(map(str, readiness.blockers))}")
        if readiness.target_blockers and not self.state.without_target:
            causes.append(
                f"{target} cannot be read, from which is copied what only it has: "
                f"{'; '.join(map(str, readiness.target_blockers))}"
            )
            action += f", or give {target} up by the update rollback_without_target: what only it has is lost then"
            if asked_by := self.state.loss_asked_by:
                action += f" ({asked_by} has asked for it; another person must send it too)"
        action += f"; or proceed: {self._giving_up}"
        board, why = self.migration.board, "; ".join(causes)
        board.wait_for(WaitKind.BOOKIES, why, action=action, until=until, ends_on=_PROCEED)

    async def _bring_back(self) -> bool:
        """Copy back what the target gained, and stop brokers in between; return false if the operator gives that up."""
        state, figures = self.state, self.state.figures
        # Brokers that serve on both clusters are stopped at once, also if one of these cannot be read.
        # mutant: bookie-cluster/a-rollback-is-given-up-though-brokers-are-back
        if not state.brokers_returned and not await self._prepare_to_go_back():
            return False
        await self._stop_brokers(BACK)  # mutant: bookie-cluster/the-rollback-stops-no-brokers
        # No broker serves any more: a repeated rollback must not copy at the limited speed of a copy during traffic.
        state.stage = CutoverStage.DIRECTED
        tail = await self._fill_source()
        if tail is None:
            return False
        tail, _ = await self._direct(tail, BACK)
        figures.rollback_tail = CopyFigures.of(tail.copy_summary, before=figures.rollback_tail)
        copies = [copy for copy in (figures.rollback_build, figures.rollback_tail) if copy]
        state.certificate.update(
            copied_back=sum(copy.copied_ledgers for copy in copies),
            compared_entries_in_rollback=sum(copy.compared_entries for copy in copies),
            ledgers_compared_in_rollback=tail.checked,
            rolled_back_without=self.input.target.name if state.without_target else None,
        )
        return True

    async def _prepare_to_go_back(self) -> bool:
        """Copy back while brokers serve, until they can be stopped; return false if the operator gives that up."""
        state, figures = self.state, self.state.figures
        if not await self._may_go_back():
            return False
        if state.stage >= CutoverStage.PROMOTED and not state.without_target:
            # While brokers serve, so that they are stopped only for the last copy, which scans again.
            built = await self._unless_given_up(self._build_back())
            if built is not None:
                # At once: a retry of the rollback, in any run, finds these equal.
                figures.rollback_build = CopyFigures.of(built, before=figures.rollback_build)
            if (built is None and not state.without_target) or not await self._may_go_back():
                return False
            if built is not None:
                self.tell_what_is_left(built)
        return True

    async def _build_back(self) -> CopySummary:
        call = Call(f"Copy back what {self.input.target.name} gained; brokers serve")
        return await self.activities.run(build.build, call, BACK, 0.0)

    async def _fill_source(self) -> TailCopy | None:
        """Bring the source up to date while no broker runs; return None if the operator gives up the rollback."""
        while True:
            without = self.state.without_target
            # A cluster may fail: steps are retried until it is back, or until the operator gives it up.
            tail = await self._unless_given_up(self._lift_and_copy())
            if tail is not None or self.state.without_target == without:
                return tail

    async def _lift_and_copy(self) -> TailCopy:
        # Before brokers write to the source again: ids below the target's would be read out of order, and messages lost
        # (I11).
        if not self.state.without_target:
            await self._lift_source_ids()
        return await self._copy_tail(BACK)

    async def _lift_source_ids(self) -> None:
        """Raise the source's next id above all ids of the target (I11 holds in both directions)."""
        name = self.input.source.name
        await self.activities.run(build.advance_ids, Call(f"Lift {name}'s ids above all in use"), BACK)
        check = await self.activities.run(build.check_ids, Call("Read the ids back"), BACK)
        require_safe(check, self.input.source)  # mutant: bookie-cluster/low-ids-are-accepted-in-the-rollback

    async def tidy_target(self, stage: CutoverStage) -> None:
        """Leave all ledgers: bookies refuse deleted ids for days, and a new start needs these ids."""
        if stage >= CutoverStage.COPIES:
            self.migration.board.note(
                f"the ledgers in {self.input.target.name} were left as they are; a new start of this switch uses them, "
                "and `bookkeeper shell nukeexistingcluster` removes them with that cluster"
            )

    # Both directions --------------------------------------------------------------------------------------------------

    async def _stop_brokers(self, direction: Direction) -> BrokersStopped:
        """Wait until no broker is left: no registration, session or open port."""

        async def stop(proof: Proof) -> BrokersStopped:
            call = Call("Stop brokers, wait until nothing is left of them")
            return await self.activities.run(brokers.stop, call, direction, proof)

        effect = "you confirm that no broker runs any more, whatever answers at their ports"
        stopped = self.state.stopped = await self._proven_or_waived(stop, effect)
        self.state.facts.update(pause_since=stopped.since, brokers_stopped=list(stopped.brokers))
        return stopped

    async def _proven_or_waived(self, step: Callable[[Proof], Awaitable[ResultT]], effect: str) -> ResultT:
        """Run a step that waits for proof, until it comes or `proceed` waives it."""
        proven = await self._unless(step(Proof.FULL), lambda: self.migration.verbs.proceed_wanted, effect=effect)
        if proven is not None:
            return proven
        self.migration.board.note(f"without proof: {effect}")
        return await step(Proof.WAIVED)

    async def _unless_given_up(self, step: Awaitable[ResultT]) -> ResultT | None:
        """Run a step of the rollback until it ends; return None if the operator gives up the rollback or the target."""
        given_up = self._given_up_since(without=self.state.without_target)
        # mutant: bookie-cluster/a-copy-back-that-is-repeated-is-given-up
        effect = "" if self.state.brokers_returned else self._giving_up
        return await self._unless(step, given_up, effect=effect, proceed_not_before=workflow.now() + _GATE_DELAY)

    def _given_up_since(self, *, without: bool) -> Callable[[], bool]:
        """Return a check: has the operator given up the rollback, or the target since `without_target` was read?"""
        state, verbs = self.state, self.migration.verbs
        return lambda: verbs.proceed_wanted or state.without_target != without

    async def _unless(
        self,
        step: Awaitable[ResultT],
        given_up: Callable[[], bool],
        *,
        effect: str,
        proceed_not_before: datetime | None = None,
    ) -> ResultT | None:
        """Run a step until it ends; return None if the operator gives up before that.

        Args:
            step: the step to run.
            given_up: returns whether the operator has given up.
            effect: what `proceed` does during the step; if empty, it is refused.
            proceed_not_before: see `VerbState.close_gate`.
        """
        verbs = self.migration.verbs
        if effect:
            verbs.close_gate(effect, proceed_not_before=proceed_not_before)
        running = asyncio.ensure_future(step)
        try:
            await workflow.wait_condition(lambda: running.done() or given_up())
            if running.done():
                return running.result()
        finally:
            if not running.done():
                await cancel_and_wait(running)
            verbs.open_gate()
        return None

    async def _copy_tail(self, direction: Direction) -> TailCopy:
        """Bring the other side up to date while no broker runs."""
        name = self.input.ends(direction).target.name
        if direction is BACK and self.state.without_target:
            call = Call(f"Lift {name}'s ids, name what it lacks; brokers are stopped")
            return await self.activities.run(rollback.do_without_target, call)
        call = Call(f"Copy and compare what {name} lacks; brokers are stopped")
        return await self.activities.run(tail.copy_tail, call, direction)

    async def _direct(self, tail: TailCopy, direction: Direction) -> tuple[TailCopy, Directive]:
        """Set the directive once all is copied; if a broker has come since, copy again."""
        name = self.input.ends(direction).target.name
        while True:
            effect = f"brokers start on the {'source' if direction is BACK else 'target'} without these"
            await self.migration.decisions.decide(tail.copy_summary.failed, tail.missing, effect=effect)
            # Before the call: if its answer is lost, the rollback must assume that the directive was set.
            # mutant: bookie-cluster/a-directive-whose-answer-is-lost-is-not-undone
            self.state.stage = max(self.state.stage, CutoverStage.DIRECTED)
            directive = await self.set_target(direction, tail.mark)
            if directive.alone:  # mutant: bookie-cluster/a-broker-that-came-before-the-directive-is-ignored
                return tail, directive
            self.migration.board.note(
                f"a broker came after everything had been copied to {name}: the copy follows again"
            )
            tail = await self._copy_tail(direction)

    async def _start_brokers(self, direction: Direction) -> BrokersOn:
        """Wait until brokers are proven to write to the direction's target."""
        name = self.input.ends(direction).target.name
        undo = Undo.NONE if self.state.stays or self.state.without_target else Undo.COPY_BACK

        async def start(proof: Proof) -> BrokersOn:
            call = Call(f"Start brokers on {name}, see that each writes there")
            return await self.activities.run(brokers.start, call, direction, proof, undo)

        effect = "the brokers that run are enough" + (", also without proof" if direction is BACK else "")
        on = await self._proven_or_waived(start, effect)
        if not on.misrouted:
            self.state.facts.pause_since = None
        return on

    def _certify(self, tail: TailCopy) -> None:
        done = tail.copy_summary
        self.state.figures.tail = CopyFigures.of(done)
        self.state.figures.removed_copies = (self.state.figures.removed_copies or 0) + tail.removed
        self.state.certificate.update(
            compared_entries_in_tail=done.compared,
            ledgers_compared=tail.checked,
            references_found=tail.references,
            references_missing=tail.missing.count,
        )
