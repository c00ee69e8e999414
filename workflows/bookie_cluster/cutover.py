"""Base of both routings of the bookie cluster migration: each routing is a `Cutover` of its own, there and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import build, cleanup, registry
from models.bookie_cluster.input import BookieCluster, BookieClusterInput, Direction
from models.bookie_cluster.results import CopySummary, Directive, IdCheck, LedgersDeleted
from models.bookie_cluster.state import BookieClusterState, CopyFigures, CutoverStage
from models.lifecycle.failures import FailureKind
from models.lifecycle.units import Quantity, Unit
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration

FORWARD, BACK = Direction.FORWARD, Direction.BACK

# How long a step is tried that a later start can repeat.
CLEARING = timedelta(minutes=10)

_SIZE = Unit(Quantity.SIZE)
_METHOD = "every entry's bytes, read back from the target; every ledger's metadata"


class Cutover(ABC):
    """Strategy of a routing to move brokers from the source to the target, and back.

    Args:
        migration: the switch.
    """

    def __init__(self, migration: Migration[BookieClusterInput, BookieClusterState]) -> None:
        self.migration = migration
        self.input = migration.input
        self.state = migration.state
        self.activities = migration.activities

    # Forward: BUILD, SWITCH, PROMOTE ----------------------------------------------------------------------------------

    async def build(self) -> None:
        """Copy ledgers while brokers serve, until little is left, and while the cut-over is held (PIP-477, phase 4)."""
        self.state.stage = CutoverStage.COPIES
        if not self.migration.hold.reached:
            if self.input.advance_ids:
                await self.advance_ids()
            if await self.decide(await self.copy()):
                # Ledgers changed during the decision.
                self.state.needs_catch_up = True
        await self.migration.hold.wait(self._catch_up)
        # An operator who gives `proceed` in the hold has read what is left.
        asked = self.state.rest_accepted or self.input.hold_before_cutover
        if not (self.state.left_little or asked or self.input.last_phase):
            self.migration.hold.reopen()
            await self.migration.decisions.wait(
                _much_left(self.state.figures.left_bytes or 0), "cuts over all the same, with longer downtime"
            )
            # Ledgers changed during the decision, the window may have ended, and the operator may hold.
            self.state.rest_accepted = self.state.needs_catch_up = True
            await self.migration.hold.wait(self._catch_up)

    @abstractmethod
    async def decide(self, built: CopySummary) -> bool:
        """Wait for the operator's decision on what cannot be copied; return whether a decision was needed."""

    @abstractmethod
    async def switch(self) -> None:
        """Direct writes to the target (PIP-477, phase 3)."""

    @abstractmethod
    async def promote(self) -> None:
        """Direct brokers to the target (PIP-477, phase 5)."""

    # Backward: ROLLED_BACK --------------------------------------------------------------------------------------------

    @abstractmethod
    async def roll_back(self) -> None:
        """Return brokers to the source, from any stage (PIP-477, "Phase 7: ROLLBACK")."""

    @abstractmethod
    async def tidy_target(self, stage: CutoverStage) -> None:
        """Clean up the target's ledgers after brokers are back on the source, by the stage that was reached."""

    # Both directions --------------------------------------------------------------------------------------------------

    async def copy(self, length: timedelta = timedelta(0)) -> CopySummary:
        """Copy ledgers to the target while brokers serve, in rounds until little is left, and for this time on.

        Args:
            length: how long to continue.
        """
        call = Call("Copy ledgers while brokers serve, compare each in full")
        built = await self.activities.run(build.build, call, FORWARD, length.total_seconds())
        self.migration.board.report_failures(built.failed)
        figures, certificate = self.state.figures, self.state.certificate
        figures.build = CopyFigures.of(built, before=figures.build)
        figures.update(
            catch_up_rounds=(figures.catch_up_rounds or 0) + built.rounds,
            left_bytes=built.left_bytes,
            removed_copies=(figures.removed_copies or 0) + built.removed,
        )
        certificate.update(
            source=self.input.source.metadataServiceUri,
            target=self.input.target.metadataServiceUri,
            method=_METHOD,
            compared_entries_in_build=figures.build.compared_entries,
        )
        self.state.left_little = built.little
        if not length:
            self.tell_what_is_left(built)
        return built

    def tell_what_is_left(self, built: CopySummary) -> None:
        """Note if much is left to copy without brokers, and further rounds do not reduce it."""
        if not built.little:
            self.migration.board.note(_much_left(built.left_bytes))

    async def _catch_up(self, length: timedelta) -> None:
        """Copy new ledgers while the cut-over is held; at the end, repeat until no decision is left."""
        built = await self.copy(length)
        while not length and await self.decide(built):
            built = await self.copy()

    async def set_target(self, direction: Direction, mark: int | None = None) -> Directive:
        """Write the directive, unless a broker has registered since this mark."""
        name = self.input.ends(direction).target.name
        call = Call(f"switch-target becomes {name}")
        directive = await self.activities.run(registry.set_target, call, direction, mark)
        self.state.facts.epoch = directive.epoch
        return directive

    async def remove_copies(self) -> None:
        """Remove the copies from the target, in bounded parts."""
        step = LedgersDeleted(deleted=1, remaining=1)
        # The first step that deletes nothing is the last: the copies that remain are kept for a reason.
        while step and step.remaining and step.deleted:  # mutant: bookie-cluster/copies-are-removed-indefinitely
            step = await self.activities.try_run(
                cleanup.remove_copies,
                Call("Remove a part of the copies", total=CLEARING),
                "not all copies could be removed from the target; the next start of this switch uses them",
            )
            removed = step.deleted if step else 0
            self.state.figures.copies_removed = (self.state.figures.copies_removed or 0) + removed
            if step and step.remaining and step.deleted:
                await self.migration.continuation.checkpoint()
        if step and step.remaining:
            self.migration.board.note(f"{step.remaining:,} copies stay in the target: they are still needed there")

    # Ids (invariant I11) ----------------------------------------------------------------------------------------------

    async def require_ids(self) -> None:
        """Check the gate of I11 before brokers write to the target."""
        if self.input.skip_idgen_precheck:
            return
        call = Call("Are new ids above all in use?")
        check = await self.activities.run(build.check_ids, call, FORWARD)
        if not check.safe and self.input.advance_ids:
            await self.advance_ids()
        else:
            require_safe(check, self.input.target)

    async def advance_ids(self) -> None:
        """Lift the target's next id above all that are in use."""
        name = self.input.target.name
        check = await self.activities.run(build.advance_ids, Call(f"Lift {name}'s ids above all in use"), FORWARD)
        require_safe(check, self.input.target)
        self.migration.board.note(f"the next ledger of {name} gets the id {check.next_id:,}")


def _much_left(left_bytes: int) -> str:
    return (
        f"what is left to copy without brokers does not shrink: {_SIZE.format(left_bytes)}; fewer messages, a higher "
        "throttle or more concurrency help"
    )


def require_safe(check: IdCheck, cluster: BookieCluster) -> None:
    """Raise unless the ids of both clusters are disjoint: the gate of I11.

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
