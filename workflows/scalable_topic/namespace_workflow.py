"""Make many regular topics scalable, in waves (PIP-475)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from activities.scalable_topic import cleanup, hold_release, precheck
from models.lifecycle.failures import FailedItems, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, ProgressUnit, Undo
from models.lifecycle.waves import WavesOutcome, WaveState
from models.scalable_topic.namespace_input import KIND, ScalableNamespaceInput
from models.scalable_topic.phases import NamespacePhase as Phase
from models.scalable_topic.results import CleanedUp, Released, Survey
from models.scalable_topic.state import NamespaceState
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.lifecycle.tasks import cancel_and_wait
from workflows.lifecycle.wave_steering import MigrationInWaves, MigrationSteering
from workflows.lifecycle.waves import Waves
from workflows.scalable_topic.grace import GraceWindow
from workflows.scalable_topic.policy import NAMESPACE_POLICIES
from workflows.scalable_topic.source import TopicSource


@workflow.defn
class ScalableNamespaceMigration(MigrationInWaves[ScalableNamespaceInput, NamespaceState]):
    """Make the topics of namespaces scalable, in waves (PIP-475)."""

    @workflow.init
    def __init__(self, input: ScalableNamespaceInput | Continued) -> None:
        input, state = read_start(ScalableNamespaceInput, NamespaceState, input)
        fresh = NamespaceState(
            verbs=VerbState(policy=NAMESPACE_POLICIES[Phase.PRECHECK]), waves=WaveState.begin(input.waves)
        )
        super().__init__(
            input,
            state or fresh,
            kind=KIND,
            target=input.target_name,
            first=Phase.PRECHECK,
            policies=NAMESPACE_POLICIES,
            after_cutover=Undo.NONE,
        )
        steering = MigrationSteering(self, ProgressUnit.TOPICS)
        self.waves = Waves(TopicSource(self), steering, self.continuation, self.state.waves, self.calendar)
        self.on_item_report = self.waves.item_reports
        self.window = GraceWindow(self, clean_up=self._clean_up, forget=self._forget)

    @workflow.run
    async def run(self, input: ScalableNamespaceInput | Continued) -> Report[Any, Any]:
        """Run the migration; the report holds figures and certificate."""
        del input
        return await self.execute(self._migrate)

    async def _migrate(self) -> Report[Any, Any]:
        await self.phases.run(Phase.PRECHECK, self._precheck)
        if self.input.dry_run:
            return self.report(Outcome.PLANNED, _plan_summary(self._facts))
        await self.phases.rollback_on_failure(self._make_scalable, undo=self._roll_back)
        await self.phases.undo(Phase.COMPLETE, self._complete)
        counts = self.state.waves.counts
        incomplete = (
            counts.failed or self.state.certificate.undrained or self.state.waves.outcome is WavesOutcome.STOPPED
        )
        outcome = await self.window.run(
            Phase.GRACE, Phase.CLEANUP, Outcome.DONE_WITH_FAILURES if incomplete else Outcome.DONE
        )
        return self.report(outcome, f"{counts.done} topics of {self.input.cluster} are scalable")

    # The phases -------------------------------------------------------------------------------------------------------

    async def _make_scalable(self) -> None:
        await self.phases.run(Phase.GUARD, self._guard, holds_inside=True)
        await self.phases.run(Phase.MIGRATE, self._run_waves)

    async def _precheck(self) -> None:
        facts = self.state.facts.survey = await self.activities.run(
            precheck.survey, Call(f"Check {self.input.target_name} of {self.input.cluster}")
        )
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")
        self.state.figures.update(backlog_messages=facts.backlog, stored_bytes=facts.stored_bytes)
        self.board.report_failures(
            FailedItems(what="topic(s) cannot become scalable", items=facts.blocked, count=facts.blocked_count)
        )
        if self.input.dry_run:
            self.state.figures.blockers = count_blockers(facts.blockers)
            return
        require_ready(facts.blockers)

    async def _guard(self) -> None:
        if not self.hold.reached:
            self._note_unrestored(
                await self.activities.run(hold_release.recover_all, Call("Recover from an earlier run"))
            )
        await self.hold.wait()
        call = Call("Claim the cluster and override the policies of all namespaces")
        self._note_unrestored(await self.activities.run(hold_release.hold_all, call))

    async def _run_waves(self) -> None:
        # Overridden policies keep more messages, which costs storage, so the time is bounded.
        remaining = self.state.history[-1].started + self.input.hold_limit - workflow.now()
        waves = asyncio.ensure_future(self.waves.run())
        try:
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    waves.done, timeout=max(remaining, timedelta(0)), timeout_summary="hold_limit"
                )
            if waves.done():
                waves.result()
            else:
                await self._stop(waves)
        except asyncio.CancelledError:
            # No topic may be in progress when policies are restored.
            await cancel_and_wait(waves)
            raise
        finally:
            counts = self.state.waves.counts
            self.state.figures.update(topics_scalable=counts.done, topics_failed=counts.failed)

    async def _stop(self, waves: asyncio.Future[Any]) -> None:
        why = f"policies were overridden for {self.input.hold_limit}, the hold_limit; no further topic starts"
        # Set first: an activity that completes despite its cancellation must not let the waves continue.
        self.state.waves.outcome, self.state.waves.why = WavesOutcome.STOPPED, why
        self.board.note(why)
        await cancel_and_wait(waves)
        await self.waves.drain()

    async def _complete(self) -> None:
        call = Call("Restore the policies of all namespaces")
        self._note_unrestored(await self.activities.run(hold_release.release_all, call))
        held = next(entry for entry in self.state.history if entry.phase == Phase.GUARD)
        self.state.figures.held_seconds = (workflow.now() - (held.ended or held.started)).total_seconds()
        self.state.certificate.completed_at = workflow.now()

    async def _roll_back(self, cause: str) -> str:
        """Restore the policies; scalable topics stay scalable."""

        async def release() -> None:
            await self.waves.drain_all()
            self._note_unrestored(
                await self.activities.run(hold_release.release_all, Call("Restore the policies of all namespaces"))
            )
            if done := self.state.waves.counts.done:
                self.board.note(f"{done} topics are scalable and stay scalable ({cause})")

        await self.phases.undo(Phase.ROLLBACK, release)
        return ""

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> CleanedUp:
        return await self.activities.run(
            cleanup.clean_up_all, Call("Delete regular topics that are not needed any more")
        )

    async def _forget(self, limit: timedelta | None) -> CleanedUp:
        call = Call("Delete the records of all topics", total=limit)
        return await self.activities.run(cleanup.forget_all, call)

    def _note_unrestored(self, released: Released) -> None:
        for note in released.notes:
            self.board.note(note)

    @property
    def _facts(self) -> Survey:
        """The result of PRECHECK."""
        facts = self.state.facts.survey
        assert facts is not None, "PRECHECK has passed"
        return facts


def _plan_summary(facts: Survey) -> str:
    if facts.blockers:
        return not_ready(facts.blockers)
    blocked = f"; {facts.blocked_count} of them cannot become scalable as they are" if facts.blocked_count else ""
    return (
        f"ready: {facts.topics} topics in {facts.namespaces} namespaces, with {facts.backlog} messages of "
        f"{facts.subscriptions} subscriptions{blocked}"
    )
