"""The way back of a bookie cluster switch (PIP-477, "Phase 7: ROLLBACK"): what it does depends on how far it came."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.bookie_cluster.activities import BookieClusterActivities as Steps
    from models.bookie_cluster.input import BookieCluster, BookieClusterInput, Direction, Routing
    from models.bookie_cluster.phases import Phase
    from models.bookie_cluster.results import (
        BrokersOn,
        BrokersStopped,
        CopySummary,
        Directive,
        IdCheck,
        LedgersDeleted,
        Promotion,
        TailCopy,
    )
    from models.bookie_cluster.updates import ReadModeChange
    from models.bookie_registry import ReadMode
    from models.lifecycle.failures import FailureKind
    from workflows.bookie_cluster.policy import DELETION_DELAY
    from workflows.bookie_cluster.updates import FailedItems, SteeredSwitch

BACK = Direction.BACK

PROMOTE_ROUNDS = 5
"""How often contested positions are tried (PIP-477, "Phase 5: PROMOTE")."""

# How long one part of what a later start can do as well is tried.
_CLEARING = timedelta(minutes=10)


class CutoverStage(IntEnum):
    """How far a switch may have come; set before the step that makes it true."""

    NOTHING = 0
    COPIES = 1
    BROKERS_STOPPED = 2
    DIRECTED = 3
    PROMOTED = 4


class ReversibleSwitch(SteeredSwitch):
    """Steps that both directions take, and the way back that is made of them."""

    def __init__(self, input: BookieClusterInput) -> None:
        super().__init__(input)
        self.reached = CutoverStage.NOTHING
        self.resumed = False
        self.stopped: BrokersStopped | None = None

    async def roll_back(self, cause: str) -> bool:
        """Put brokers back on the source; never finds the switch committed."""
        if self.resumed and self.reached is CutoverStage.NOTHING:
            if not self.lifecycle.rollback_wanted:
                self.note("nothing was touched; start the switch again, and it goes on, or can be rolled back")
                return False
            self.reached = CutoverStage.PROMOTED
        came = self.reached
        self.note(f"the way back begins: {cause}")
        self.forget_troubles()
        undo = self._undo_restart if self.input.routing is Routing.RESTART else self._undo_attribution
        await self.phase(Phase.ROLLED_BACK, self.rules[Phase.ROLLED_BACK], undo, undoing=True)
        try:
            await self._settle_copies(came)
        finally:
            await self.release()
        return False

    async def _settle_copies(self, came: CutoverStage) -> None:
        """Brokers are on the source; what becomes of the target's ledgers depends on whether they are copies only."""
        if self.input.routing is Routing.RESTART and came >= CutoverStage.DIRECTED:
            self.note(
                f"the ledgers in {self.input.target.name} were left as they are; a new start of this switch uses them, "
                "and `bookkeeper shell nukeexistingcluster` removes them with that cluster"
            )
        elif came >= CutoverStage.PROMOTED:
            await self._keep_copies_for_a_while()
        elif came >= CutoverStage.COPIES:
            await self._remove_copies()

    # Routing `restart` ----------------------------------------------------------------------------------------------

    async def _undo_restart(self) -> None:
        if self.reached >= CutoverStage.DIRECTED:
            await self.stop_brokers(BACK)
            await self._lift_ids()
            tail = await self.copy_tail(BACK)
            await self.decide(*tail_troubles(tail), effect="brokers start on the source without these")
            await self.set_target(BACK)
            # Whatever fails from here on, brokers must not be stopped again.
            self.reached = CutoverStage.BROKERS_STOPPED
            self.certificate["copied_back"] = tail.copy_summary.copied
            self.certificate["compared_entries_on_the_way_back"] = tail.copy_summary.compared
        if self.reached >= CutoverStage.BROKERS_STOPPED:
            on = await self.start_brokers(BACK)
            self.certificate["brokers_on_the_source"] = list(on.brokers)
            self.reached = CutoverStage.COPIES
            if self.stopped:
                away = (on.since - self.stopped.since).total_seconds()
                self.figures["brokers_away_seconds_on_the_way_back"] = away

    async def _lift_ids(self) -> None:
        """Whatever the target handed out, the source's next id lies above it (I11 holds in both directions)."""
        await self.step(Steps.advance_ids, BACK, summary=f"Lift {self.input.source.name}'s ids above all in use")
        check = await self.step(Steps.check_ids, BACK, summary="Read the ids back")
        require_safe(check, self.input.source)

    # Routing `attribution` ------------------------------------------------------------------------------------------

    async def _undo_attribution(self) -> None:
        # A word that is under way ends first, or it would overtake this one.
        async with self.update_lock:
            if self.reached >= CutoverStage.DIRECTED and self.read_mode is not ReadMode.DUAL_READ:
                both = ReadModeChange(mode=ReadMode.DUAL_READ)
                await self.step(Steps.set_read_mode, both, summary="Brokers read both clusters again")
                self.read_mode = ReadMode.DUAL_READ
        if self.reached >= CutoverStage.DIRECTED:
            await self.set_target(BACK)
        if self.reached >= CutoverStage.PROMOTED:
            promotion = await self.promote(BACK)
            if promotion.contested:
                raise ApplicationError(
                    f"{promotion.contested:,} positions were changed by others again and again",
                    type=FailureKind.CONFLICT,
                )

    async def _keep_copies_for_a_while(self) -> None:
        """PIP-477: "new-cluster copies scheduled for delayed deletion"."""
        self.lifecycle.enter(DELETION_DELAY)
        await self.window("deletion", self.input.deletion_delay)
        kept = self.lifecycle.proceed_wanted
        self.lifecycle.enter(self.rules[Phase.ROLLED_BACK])
        if kept:
            self.note(f"the copies in {self.input.target.name} were left as they are")
        else:
            await self._remove_copies()

    # Steps of both directions ---------------------------------------------------------------------------------------

    async def stop_brokers(self, direction: Direction) -> BrokersStopped:
        """Wait until no broker is registered."""
        self.stopped = stopped = await self.step(
            Steps.stop_brokers, direction, summary="Stop brokers, wait until none is registered"
        )
        self.facts.update(pause_since=stopped.since.isoformat(), brokers_stopped=list(stopped.brokers))
        return stopped

    async def copy_tail(self, direction: Direction) -> TailCopy:
        """Bring the other side up to date while no broker runs."""
        ends = self.input.ends(direction)
        summary = f"Copy and compare what {ends.target.name} lacks; brokers are stopped"
        return await self.copy(Steps.copy_tail, direction, summary=summary)

    async def set_target(self, direction: Direction) -> Directive:
        """Write the directive."""
        name = self.input.ends(direction).target.name
        directive = await self.step(Steps.set_target, direction, summary=f"switch-target becomes {name}")
        self.facts["epoch"] = directive.epoch
        return directive

    async def start_brokers(self, direction: Direction) -> BrokersOn:
        """Wait until brokers are proven to write to the direction's target."""
        name = self.input.ends(direction).target.name
        on = await self.step(
            Steps.start_brokers, direction, summary=f"Start brokers on {name}, see that they write there"
        )
        self.facts.pop("pause_since", None)
        return on

    async def promote(self, direction: Direction) -> Promotion:
        """Change attributions; what others keep changing is tried a bounded number of times."""
        name, rounds = self.input.ends(direction).target.name, 1
        summary = f"Attributions become {name}"
        done = await self.step(Steps.promote, direction, summary=summary)
        while done.contested and rounds < PROMOTE_ROUNDS:
            rounds += 1
            done = await self.step(Steps.promote, direction, summary=f"{summary}, round {rounds}")
        self.tell(FailedItems(f"attribution(s) did not become {name}", done.failed, done.failed_count))
        return done

    async def release(self) -> None:
        """Take our own nodes out of the registry; if that fails, the next start of this switch takes them over."""
        await self.try_step(
            Steps.release,
            summary="Remove the switch's own nodes",
            total=_CLEARING,
            otherwise="the switch's own nodes could not be removed; the next start of this switch takes them over",
        )

    async def _remove_copies(self) -> None:
        removed, part = 0, LedgersDeleted(deleted=1, left=1)
        while part and part.left and part.deleted:
            part = await self.try_step(
                Steps.remove_copies,
                summary="Remove a part of the copies",
                total=_CLEARING,
                otherwise="not all copies could be removed from the target; the next start of this switch uses them",
            )
            removed += part.deleted if part else 0
        self.figures["copies_removed"] = removed
        if part and part.left:
            self.note(f"{part.left:,} copies stay in the target: they are still needed there")


def require_safe(check: IdCheck, cluster: BookieCluster) -> None:
    """The gate of I11.

    Raises:
        ApplicationError: new ledgers would get ids that are in use, or that lie below some.
    """
    if not check.safe:
        raise ApplicationError(
            f"the next ledger of {cluster.name} would get the id {check.next_id:,}, which is not above the highest in "
            f"use, {check.highest:,}: messages would be lost (PIP-477, I11). "
            f'Cure: set "advance_ids": true, or create {cluster.root.root}/idgen-long/HOB-{check.cure:010d}',
            type=FailureKind.PRECHECK_FAILED,
            non_retryable=True,
        )


def copy_trouble(summary: CopySummary) -> FailedItems:
    """The ledgers that a copy could not bring over."""
    return FailedItems("ledger(s) cannot be copied", summary.failed, summary.failed_count)


def tail_troubles(tail: TailCopy) -> tuple[FailedItems, FailedItems]:
    """What is not in the target when brokers are about to start there."""
    missing = FailedItems("position(s) refer to a ledger that is missing", tail.missing, tail.missing_count)
    return copy_trouble(tail.copy_summary), missing
