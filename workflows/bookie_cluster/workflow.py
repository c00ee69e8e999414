"""Switch a Pulsar cluster to another BookKeeper cluster (PIP-477)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.bookie_cluster import cleanup, precheck, registry
from models.bookie_cluster.input import KIND, BookieClusterInput, Routing
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets, SwitchPrecheck
from models.bookie_cluster.state import BookieClusterState, CutoverStage
from models.bookie_cluster.updates import (
    CleanupOrder,
    ClientClosing,
    Concurrency,
    Pace,
    ReadModeChange,
    TargetLoss,
    TargetLossAnswer,
)
from models.lifecycle.failures import FailedItem, FailedItems, FailureKind, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Speed
from workflows.bookie_cluster.cutover import CLEARING, Cutover
from workflows.bookie_cluster.cutover_attribution import AttributionCutover
from workflows.bookie_cluster.cutover_restart import RestartCutover
from workflows.bookie_cluster.policy import AFTER_CUTOVER, POLICIES, with_target_only
from workflows.bookie_cluster.updates import SwitchUpdates
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import FAILURES, cause_of
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.lifecycle.throttled import ThrottledMigration

LAB_ONLY = "LAB ONLY: ids are not checked; messages can be lost"

_CUTOVERS: dict[Routing, type[Cutover]] = {Routing.RESTART: RestartCutover, Routing.ATTRIBUTION: AttributionCutover}

_PERMANENT = "after it brokers use the target permanently, and a rollback is not possible"

# A check must not delay the end of the window.
_CENSUS = timedelta(minutes=5)
# A store that has never answered has most likely another address; nothing was written, and a start can be repeated.
_FIRST_WORD = timedelta(minutes=1)


@workflow.defn
class BookieClusterMigration(ThrottledMigration[BookieClusterInput, BookieClusterState]):
    """Switch a Pulsar cluster to another BookKeeper cluster (PIP-477)."""

    @workflow.init
    def __init__(self, input: BookieClusterInput | Continued) -> None:
        input, state = read_start(BookieClusterInput, BookieClusterState, input)
        policies = POLICIES[input.routing]
        pace = Pace(throttle=input.throttle, concurrency=input.migration_concurrency)
        super().__init__(
            input,
            state or BookieClusterState(verbs=VerbState(policy=policies[Phase.REGISTER]), pace=pace),
            kind=KIND,
            target=input.target.name,
            first=Phase.REGISTER,
            policies=policies,
            after_cutover=AFTER_CUTOVER[input.routing],
        )
        self.cutover = _CUTOVERS[input.routing](self)
        self.updates = SwitchUpdates(self)

    @workflow.run
    async def run(self, input: BookieClusterInput | Continued) -> Report[Any, Any]:
        """Run the switch; the report holds figures and certificate."""
        del input
        return await self.execute(self._switch)

    async def _switch(self) -> Report[Any, Any]:
        if self.input.dry_run:
            return await self._preview()
        await self.phases.rollback_on_failure(self._move, undo=self._roll_back)
        if self.state.running_phase != Phase.CLEANUP:
            self.state.order = self._cleanup_order()
        await self.phases.run(Phase.CLEANUP, self._clean_up)
        outcome = Outcome.DONE_WITH_FAILURES if self.state.failed else Outcome.DONE
        with_failures = ", with failures" if self.state.failed else ""
        return self.report(outcome, f"{self.input.cluster} uses {self.input.target.name}{with_failures}")

    async def _move(self) -> None:
        await self.phases.run(Phase.REGISTER, self._register)
        if self.input.last_phase and (self.state.flipped or self.state.resumed):
            raise ApplicationError(
                f"an earlier run of this switch has committed, and a rehearsal up to {self.input.last_phase} is not "
                "possible any more. Leave `until` out, and the switch continues",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        if self.state.flipped:
            return
        await self.phases.run(Phase.PRECHECK, self._precheck)
        require_ready(self._facts.blockers)
        if self.state.resumed:
            self.hold.begin()
            self.state.stage = max(self.state.stage, CutoverStage.DIRECTED)
        else:
            await self.phases.run(Phase.BUILD, self.cutover.build, holds_inside=True)
            await self.phases.run(Phase.SWITCH, self.cutover.switch)
        await self.phases.run(Phase.PROMOTE, self.cutover.promote)
        await self.phases.run(Phase.ROLLBACK_WINDOW, self._watch)

    async def _preview(self) -> Report[Any, Any]:
        await self.phases.run(Phase.PRECHECK, self._precheck)
        for number, step in enumerate(self._facts.steps, 1):
            self.board.note(f"step {number}: {step}")
        self.state.figures.blockers = count_blockers(self._facts.blockers)
        return self.report(Outcome.PLANNED, self._plan_summary(self._facts))

    # Registration and precheck (PIP-477, phases 1 and 2) --------------------------------------------------------------

    async def _register(self) -> None:
        call = Call(f"{self.input.source.name} and {self.input.target.name} are registered", total=_FIRST_WORD)
        registration = await self.activities.run(registry.register, call)
        self.state.facts.update(registered=list(registration.added), epoch=registration.epoch)
        self.state.resumed, self.state.flipped = registration.committed, registration.flipped
        if registration.flipped:
            self.board.note(
                "a previous run was terminated in CLEANUP; resuming from there, with the deletion that "
                "`cleanup_at_window_end` orders"
            )
        elif registration.committed:
            self.board.note("a previous run was terminated after its commit; resuming from there")

    async def _precheck(self) -> None:
        if self.input.skip_idgen_precheck:
            self.state.facts.ids_checked = False
            self.board.alarm(LAB_ONLY)
        facts = await self.activities.run(precheck.precheck, Call("Look for what would stop the switch"))
        self.state.facts.precheck = facts
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")

    # The rollback (PIP-477, "Phase 7: ROLLBACK") ----------------------------------------------------------------------

    async def _roll_back(self, cause: str) -> str:
        """Roll back to the source; return a reason if the operator leaves brokers on the target after all."""
        state = self.state
        if state.flipped and not self.input.last_phase:
            return f"a rollback is not possible: an earlier run has made {self.input.target.name} ACTIVE"
        if state.rolled_back_from is None:
            if state.resumed and state.stage is CutoverStage.NOTHING:
                # Brokers are on the target, and this run has changed nothing: only the operator may order a rollback.
                if not self.verbs.rollback_wanted:
                    self.board.note(
                        "nothing was touched; start the switch again, and it continues, or can be rolled back"
                    )
                    return ""
                state.stage = CutoverStage.PROMOTED
            # Kept, because the rollback lowers the stage step by step, and may take several runs of the workflow.
            state.rolled_back_from = state.stage
            self.board.note(f"the rollback starts: {cause}")
            self.decisions.forget()
        await self.phases.undo(Phase.ROLLED_BACK, self.cutover.roll_back)
        if state.stays:
            return f"the switch ends as if its window had: {self.input.cluster} uses {self.input.target.name}"
        try:
            await self.cutover.tidy_target(state.rolled_back_from)
        except FAILURES:
            # Brokers are on the source again; a claim that stays would block the next migration.
            await self._release()
            raise
        await self._release()
        return ""

    # Window and cleanup (phases 6 and 7) ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        # `cleanup_at_window_end` is the order for what cannot be undone.
        held = self.input.hold_before_cutover and not self.input.cleanup_at_window_end
        await self.timers.window(
            "rollback", self.input.rollback_window, check=self._take_census, then_hold=_PERMANENT if held else ""
        )

    async def _take_census(self) -> None:
        call, otherwise = Call("Who uses which cluster?", total=_CENSUS), "it could not be seen who uses which cluster"
        census = await self.activities.try_run(cleanup.take_census, call, otherwise)
        if census is None:
            return
        self.state.targets = census.targets
        if census.misplaced and list(census.misplaced) != self.state.facts.misplaced_brokers:
            # A broker that starts late with the old configuration drops ledgers that it cannot find from topics' lists.
            name, who = self.input.target.name, "; ".join(census.misplaced)
            self.board.note(f"🔴 stop these brokers at once, and start them on {name}: {who}")
        self.state.facts.update(
            brokers=list(census.brokers),
            misrouted_ledgers=list(census.misrouted_ledgers),
            misplaced_brokers=list(census.misplaced),
            target_only_ledgers=census.target_only,
            target_only_bytes=census.target_only_bytes,
        )
        if census.attributions_set_again:
            self.board.note(f"{census.attributions_set_again:,} attributions that brokers had dropped were set again")
        self.verbs.revise(with_target_only(self.phases.policies[Phase.ROLLBACK_WINDOW], census))
        self.board.publish()

    def _cleanup_order(self) -> CleanupOrder | None:
        """Return the order of the cleanup at the end of the window; None to delete nothing."""
        if self.verbs.proceed_wanted or self.state.stays:
            return None
        if self.verbs.cleanup_wanted and self.state.order:
            return self.state.order
        asked = self.verbs.cleanup_wanted or self.input.cleanup_at_window_end
        own = CleanupOrder(src_cluster=self.input.source.name)
        return own if asked and self.input.deletes_source else None

    async def _clean_up(self) -> None:
        """Make the target ACTIVE, and delete what was requested; a failure here does not undo the switch."""
        try:
            # Before anything is deleted: ledgers of the cluster that is ACTIVE are never deleted (I12).
            await self.activities.run(registry.flip_statuses, Call("The target becomes ACTIVE in the registry"))
            if self.state.order:
                if not await self.timers.until_proceed(self._delete(self.state.order)):
                    self.board.note(
                        f"the cleanup was ended by `proceed`; the other ledgers of {self.input.source.name} stay"
                    )
            else:
                self.board.note(f"the ledgers of {self.input.source.name} were left as they are")
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                await self._release()
                raise
            failed = FailedItem(path="cleanup", reason=cause_of(error))
            self.board.report_failures(FailedItems(what="cleanup(s) failed", items=(failed,), count=1))
        await self._release()

    async def _delete(self, order: CleanupOrder) -> None:
        # A run that continues during the parts knows that some are left.
        remaining, cluster = 1, self.input.source.name
        if self.state.to_delete is None:
            call = Call("List what will be deleted")
            self.state.targets = targets = await self.activities.run(cleanup.list_targets, call, order)
            self.board.note(f"cleanup deletes {targets.ledgers:,} ledgers of {cluster}, and keeps {targets.retained:,}")
            self.state.to_delete = remaining = targets.ledgers
        most = min((n for n in (order.max_deletions, self.input.max_deletions) if n is not None), default=None)
        deleted, more = self.state.figures.deleted_from_source or 0, True
        while remaining > 0 and more and (most is None or deleted < most):
            rest = order.model_copy(update={"max_deletions": None if most is None else most - deleted})
            call = Call("Delete a part of them")
            deletion = await self.activities.run(cleanup.delete_ledgers, call, rest)
            remaining, more = deletion.remaining, deletion.deleted > 0
            # A part that was repeated counts also what its lost attempt may not have deleted: never more than allowed.
            deleted = self.state.figures.deleted_from_source = min(deleted + deletion.deleted, self.state.to_delete)
            if remaining > 0 and more:
                await self.continuation.checkpoint()
        if remaining > 0:
            self.board.note(f"{remaining:,} ledgers of {cluster} that could be deleted are still there")

    async def _release(self) -> None:
        """Remove our own nodes from the registry; if that fails, the next start of this switch takes them over."""
        untouched = self.state.stage is CutoverStage.NOTHING
        await self.activities.try_run(
            registry.release,
            Call("Remove the switch's own nodes", total=_FIRST_WORD if untouched else CLEARING),
            "the switch's own nodes could not be removed; the next start of this switch takes them over",
        )

    # Updates and queries ----------------------------------------------------------------------------------------------

    @workflow.update(description="Limit the copy to megabytes of entries per second; null lifts the limit.")
    async def set_throttle(self, speed: Speed) -> Speed:
        """Change the throttle of the copy that runs."""
        limit = speed.megabytes_per_second
        summary = f"throttle is now {'off' if limit is None else f'{limit:g} MB/s'}"
        await self.updates.set_pace(summary, throttle=limit)
        return speed

    @set_throttle.validator
    def check_set_throttle(self, speed: Speed) -> None:
        """Refuse where no ledgers are copied."""
        del speed
        self.updates.require_copy()

    @workflow.update(description="Set how many batches of ledgers are copied at once.")
    async def set_concurrency(self, concurrency: Concurrency) -> Concurrency:
        """Change the concurrency of the copy that runs."""
        batches = concurrency.batches
        await self.updates.set_pace(f"concurrency is now {batches:,} batches", concurrency=batches)
        return concurrency

    @set_concurrency.validator
    def check_set_concurrency(self, concurrency: Concurrency) -> None:
        """Refuse where no ledgers are copied."""
        del concurrency
        self.updates.require_copy()

    @workflow.update(description="Tell brokers from which clusters to read: DUAL_READ, OLD_CLUSTER_ONLY, …")
    async def set_read_mode(self, change: ReadModeChange) -> ReadModeChange:
        """Change the brokers' read mode (PIP-477, "REST API")."""
        await self.updates.set_read_mode(change)
        return change

    @set_read_mode.validator
    def check_set_read_mode(self, change: ReadModeChange) -> None:
        """Refuse for brokers without the plugin, and before brokers write to the target."""
        del change
        self.updates.check_read_mode()

    @workflow.update(description="Have brokers close their client of the old cluster, once nothing refers to that.")
    async def close_client(self, closing: ClientClosing) -> ClientClosing:
        """Close the old cluster's client (PIP-477, I5)."""
        await self.updates.close_client(closing)
        return closing

    @close_client.validator
    def check_close_client(self, closing: ClientClosing) -> None:
        """Refuse for brokers without the plugin, for another cluster, and while something refers to the old one."""
        self.updates.check_close_client(closing)

    @workflow.update(description="A rollback waits for a target that is lost: give up what only that has.")
    async def rollback_without_target(self, loss: TargetLoss) -> TargetLossAnswer:
        """Roll back without a target that cannot be read: copy nothing from it."""
        return await self.updates.rollback_without_target(loss)

    @rollback_without_target.validator
    def check_rollback_without_target(self, loss: TargetLoss) -> None:
        """Refuse for another cluster, and where nothing is copied back."""
        self.updates.check_rollback_without_target(loss)

    @workflow.query(description="The ledgers of the old cluster that a cleanup would delete, as last listed.")
    def list_cleanup_targets(self) -> CleanupTargets | None:
        """Answer the query `list_cleanup_targets`; None before the first listing."""
        return self.state.targets

    @workflow.update(description="End the window and delete the old cluster's ledgers, or list them (dry_run).")
    async def clean_up(self, order: CleanupOrder) -> CleanupTargets:
        """List what would be deleted; unless it is a dry run, end the window with this order."""
        return await self.updates.clean_up(order)

    @clean_up.validator
    def check_clean_up(self, order: CleanupOrder) -> None:
        """Refuse for another cluster, and outside of the window."""
        self.updates.check_clean_up(order)

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _facts(self) -> SwitchPrecheck:
        """The result of PRECHECK."""
        facts = self.state.facts.precheck
        assert facts is not None, "PRECHECK has passed"
        return facts

    def _plan_summary(self, facts: SwitchPrecheck) -> str:
        if facts.blockers:
            return not_ready(facts.blockers)
        ledgers = f"{facts.survey.ledgers:,} ledgers" if facts.survey else "ledgers"
        copying = f"ready: about {facts.estimated_copy_seconds:.0f} s of copying {ledgers} next to the traffic"
        if self.input.routing is Routing.ATTRIBUTION:
            return f"{copying} ({facts.estimate_basis})"
        pause = f"about {facts.estimated_pause_seconds:.0f} s between the brokers' stop and start"
        return f"{copying}, then {pause} ({facts.estimate_basis})"
