"""Switch a Pulsar cluster to another BookKeeper cluster (PIP-477)."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.bookie_cluster.activities import BookieClusterActivities as Steps
    from models.bookie_cluster.input import BookieClusterInput, Direction, Routing
    from models.bookie_cluster.phases import Phase
    from models.bookie_cluster.results import CopySummary, SwitchPrecheck, TailCopy
    from models.bookie_cluster.updates import CleanupOrder
    from models.lifecycle.input import SourceCleanup
    from models.lifecycle.names import BROKERS_AWAY_GAUGE
    from models.lifecycle.report import Report
    from models.lifecycle.status import Outcome
    from workflows.bookie_cluster.policy import with_gain
    from workflows.bookie_cluster.rollback import (
        CutoverStage,
        ReversibleSwitch,
        copy_trouble,
        require_safe,
        tail_troubles,
    )
    from workflows.bookie_cluster.updates import FailedItems
    from workflows.lifecycle.precheck import not_ready, require_ready

FORWARD = Direction.FORWARD
LAB_ONLY = "LAB ONLY: ids are not checked; messages can be lost"

# A look at how things stand must not hold up the end of the window.
_LOOK = timedelta(minutes=5)


@workflow.defn
class BookieClusterSwitch(ReversibleSwitch):
    """Switch a Pulsar cluster to another BookKeeper cluster (PIP-477)."""

    @workflow.init
    def __init__(self, input: BookieClusterInput) -> None:
        super().__init__(input)

    @workflow.run
    async def run(self, input: BookieClusterInput) -> Report:
        """Run the switch; the report holds figures and certificate."""
        return await self.execute(self._switch(input))

    async def _switch(self, input: BookieClusterInput) -> Report:
        if input.dry_run:
            return await self._plan_only()
        async with self.rollback_on_failure(self.roll_back):
            await self.phase(Phase.REGISTER, self.rules[Phase.REGISTER], self._register)
            facts = await self.phase(Phase.PRECHECK, self.rules[Phase.PRECHECK], self._precheck)
            require_ready(facts.blockers)
            restart = input.routing is Routing.RESTART
            if self.resumed:
                self.reached = CutoverStage.DIRECTED
            else:
                await self.phase(Phase.BUILD, self.rules[Phase.BUILD], self._build_all if restart else self._build)
                cut_over = self._cut_over if restart else self._direct_writes
                await self.phase(Phase.SWITCH, self.rules[Phase.SWITCH], cut_over)
            promote = self._open_for_brokers if restart else self._promote_copies
            await self.phase(Phase.PROMOTE, self.rules[Phase.PROMOTE], promote)
            await self.phase(Phase.ROLLBACK_WINDOW, self.rules[Phase.ROLLBACK_WINDOW], self._watch)
        order = self._cleanup_order()
        await self.phase(Phase.CLEANUP, self.rules[Phase.CLEANUP], lambda: self._clean(order))
        return self.report(
            Outcome.DONE_WITH_FAILURES if self.failed_items else Outcome.DONE,
            f"{input.cluster} uses {input.target.name}" + (", with failures" if self.failed_items else ""),
        )

    async def _plan_only(self) -> Report:
        facts = await self.phase(Phase.PRECHECK, self.rules[Phase.PRECHECK], self._precheck)
        for number, step in enumerate(facts.steps, 1):
            self.note(f"step {number}: {step}")
        self.figures["blockers"] = len(facts.blockers)
        return self.report(Outcome.PLANNED, self._plan_summary(facts))

    # Registration and precheck (PIP-477, phases 1 and 2) ------------------------------------------------------------

    async def _register(self) -> None:
        names = f"{self.input.source.name} and {self.input.target.name}"
        registration = await self.step(Steps.register, summary=f"{names} stand in the registry")
        self.facts.update(registered=list(registration.added), epoch=registration.epoch)
        self.resumed = registration.committed
        if self.resumed:
            self.note("an earlier run was ended from outside behind its commit; this one goes on there")

    async def _precheck(self) -> SwitchPrecheck:
        if self.input.skip_idgen_precheck:
            self.facts["ids_checked"] = False
            self.alarm(LAB_ONLY)
        facts = await self.step(Steps.precheck, summary="Look for what would stop the switch")
        self.facts["precheck"] = facts.model_dump(mode="json")
        for warning in facts.warnings:
            self.note(f"warning: {warning}")
        return facts

    # Build (phase 4), while brokers serve ---------------------------------------------------------------------------

    async def _build(self) -> CopySummary:
        self.reached = CutoverStage.COPIES
        if self.input.advance_ids:
            await self._advance_ids()
        return await self._copy_closed()

    async def _build_all(self) -> None:
        built = await self._build()
        await self.decide(
            copy_trouble(built), effect="goes on without these ledgers: brokers on the target will not find them"
        )

    async def _copy_closed(self) -> CopySummary:
        built = await self.copy(Steps.build, FORWARD, summary="Copy closed ledgers, compare each in full")
        self.tell(copy_trouble(built))
        self._figure_copy(built, "build")
        return built

    # Switch and promote with routing `restart`: brokers are stopped in between ---------------------------------------

    async def _cut_over(self) -> None:
        self.reached = CutoverStage.BROKERS_STOPPED
        stopped = await self.stop_brokers(FORWARD)
        async with self.deadline("longest pause", self.input.pause_deadline, since=stopped.since):
            await self._require_ids()
            tail = await self.copy_tail(FORWARD)
            self._figure_tail(tail)
            await self.decide(*tail_troubles(tail), effect="brokers start on the target without these")
            self.reached = CutoverStage.DIRECTED
            directive = await self.set_target(FORWARD)
        self.figures["pause_seconds"] = pause = (directive.at - stopped.since).total_seconds()
        gauge = workflow.metric_meter().create_gauge_float(BROKERS_AWAY_GAUGE, "Time without any broker", "s")
        gauge.with_additional_attributes(self._labels()).set(pause)

    async def _open_for_brokers(self) -> None:
        on = await self.start_brokers(FORWARD)
        self.certificate["brokers_on_the_target"] = list(on.brokers)
        self.figures["new_ledgers"] = on.new_ledgers
        if self.stopped:
            self.figures["brokers_away_seconds"] = (on.since - self.stopped.since).total_seconds()

    # Switch and promote with routing `attribution` (phases 3 and 5) -------------------------------------------------

    async def _direct_writes(self) -> None:
        await self._require_ids()
        self.reached = CutoverStage.DIRECTED
        await self.set_target(FORWARD)

    async def _promote_copies(self) -> None:
        await self._copy_closed()
        self.reached = CutoverStage.PROMOTED
        done = await self.promote(FORWARD)
        self.figures.update(
            promoted_schemas=done.schemas,
            promoted_cursors=done.cursors,
            promoted_before=done.already,
            promoted_via_rollover_fallback=done.rollovers,
            deferred_cursors=done.deferred_count,
        )
        self.facts["deferred"] = list(done.deferred)
        if done.contested:
            self.note(
                f"{done.contested:,} positions are contested and stay as they are; start the switch again for them"
            )

    # Ids (invariant I11) --------------------------------------------------------------------------------------------

    async def _require_ids(self) -> None:
        if self.input.skip_idgen_precheck:
            return
        check = await self.step(Steps.check_ids, FORWARD, summary="Are new ids above all in use?")
        if not check.safe and self.input.advance_ids:
            await self._advance_ids()
        else:
            require_safe(check, self.input.target)

    async def _advance_ids(self) -> None:
        summary = f"Lift {self.input.target.name}'s ids above all in use"
        check = await self.step(Steps.advance_ids, FORWARD, summary=summary)
        require_safe(check, self.input.target)
        self.note(f"the next ledger of {self.input.target.name} gets the id {check.next_id:,}")

    # Window and cleanup (phases 6 and 7) ----------------------------------------------------------------------------

    async def _watch(self) -> None:
        await self.window("rollback", self.input.rollback_window, check=self._take_census)

    async def _take_census(self) -> None:
        census = await self.try_step(
            Steps.take_census,
            summary="Who uses which cluster?",
            total=_LOOK,
            otherwise="it could not be seen who uses which cluster",
        )
        if census is None:
            return
        self.targets = census.targets
        self.facts.update(
            brokers=list(census.brokers),
            misrouted_ledgers=list(census.misrouted_ledgers),
            gained_ledgers=census.gained,
            gained_bytes=census.gained_bytes,
        )
        if census.attributions_set_again:
            self.note(f"{census.attributions_set_again:,} attributions that brokers had dropped were set again")
        self.lifecycle.revise(with_gain(self.rules[Phase.ROLLBACK_WINDOW], census))
        self.publish()

    def _cleanup_order(self) -> CleanupOrder | None:
        """What the end of the window asks to delete; None to delete nothing."""
        own = CleanupOrder(src_cluster=self.input.source.name)
        if self.lifecycle.proceed_wanted:
            return None
        if self.lifecycle.cleanup_wanted and self.order:
            return self.order
        asked = self.lifecycle.cleanup_wanted or self.input.cleanup_at_window_end
        return own if asked and self.input.cleanup is SourceCleanup.REMOVE else None

    async def _clean(self, order: CleanupOrder | None) -> None:
        """Make the target the one that is ACTIVE, and delete what was asked; the switch stands whatever fails here."""
        try:
            await self.step(Steps.flip_statuses, summary="The target becomes ACTIVE in the registry")
            if order:
                await self._delete(order)
            else:
                self.note(f"the ledgers of {self.input.source.name} were left as they are")
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self.tell(FailedItems("cleanups", (f"cleanup: {error.cause or error}",), 1))
        finally:
            await self.release()

    async def _delete(self, order: CleanupOrder) -> None:
        self.targets = targets = await self.step(Steps.list_targets, order, summary="List what will be deleted")
        self.note(f"cleanup deletes {targets.ledgers:,} ledgers of {targets.cluster}, and keeps {targets.kept:,}")
        most = min((n for n in (order.max_deletions, self.input.max_deletions) if n is not None), default=None)
        deleted, left = 0, targets.ledgers
        while left and (most is None or deleted < most):
            rest = order.model_copy(update={"max_deletions": None if most is None else most - deleted})
            part = await self.step(Steps.delete_ledgers, rest, summary="Delete a part of them")
            deleted, left = deleted + part.deleted, part.left if part.deleted else 0
            self.figures["deleted_from_source"] = deleted
        if part_left := targets.ledgers - deleted:
            self.note(f"{part_left:,} ledgers of {targets.cluster} that could be deleted are still there")

    # What is told ---------------------------------------------------------------------------------------------------

    def _figure_copy(self, done: CopySummary, phase: str) -> None:
        self.figures.update(
            {
                f"{phase}_copied_ledgers": done.copied,
                f"{phase}_equal_ledgers": done.equal + done.known,
                f"{phase}_copied_entries": done.entries,
                f"{phase}_copied_bytes": done.entry_bytes,
                f"{phase}_compared_entries": done.compared,
                f"{phase}_recovered_ledgers": done.recovered,
                f"{phase}_seconds": done.seconds,
            }
        )
        self.certificate.update(
            source=self.input.source.metadataServiceUri,
            target=self.input.target.metadataServiceUri,
            method="every entry's bytes, read back from the target; every ledger's metadata",
        )
        self.certificate[f"compared_entries_in_{phase}"] = done.compared

    def _figure_tail(self, tail: TailCopy) -> None:
        self._figure_copy(tail.copy_summary, "tail")
        self.figures["removed_copies"] = tail.removed
        self.certificate.update(
            ledgers_compared=tail.checked, references_found=tail.references, references_missing=tail.missing_count
        )

    def _plan_summary(self, facts: SwitchPrecheck) -> str:
        if facts.blockers:
            return not_ready(facts.blockers)
        ledgers = f"{facts.survey.ledgers:,} ledgers" if facts.survey else "ledgers"
        copying = f"ready: about {facts.estimated_copy_seconds:.0f} s of copying {ledgers} beside the traffic"
        if self.input.routing is Routing.ATTRIBUTION:
            return f"{copying} ({facts.estimate_basis})"
        pause = f"about {facts.estimated_pause_seconds:.0f} s between the brokers' stop and start"
        return f"{copying}, then {pause} ({facts.estimate_basis})"
