"""Routing `attribution`: brokers with the plugin of PIP-477 ask each ledger's attribution; no broker is stopped."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import attribution
from models.bookie_cluster.input import Direction
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CopySummary, Promotion
from models.bookie_cluster.state import CutoverStage
from models.bookie_cluster.updates import ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import FailureKind
from workflows.bookie_cluster.cutover import BACK, FORWARD, Cutover
from workflows.bookie_cluster.policy import DELETION_DELAY
from workflows.lifecycle.activity_calls import Call

PROMOTE_ROUNDS = 5
"""How often contested references are tried (PIP-477, "Phase 5: PROMOTE")."""


class AttributionCutover(Cutover):
    """Writes are directed at once; then the attributions of what was copied change, in bounded rounds."""

    # Forward ----------------------------------------------------------------------------------------------------------

    async def decide(self, built: CopySummary) -> bool:
        """Ask nothing: what cannot be copied stays attributed to the source."""
        del built
        return False

    async def switch(self) -> None:
        """Set the directive: brokers create new ledgers in the target from now on."""
        await self.require_ids()
        # Before the call: if its answer is lost, the rollback must assume that the directive was set.
        self.state.stage = CutoverStage.DIRECTED
        await self.set_target(FORWARD)

    async def promote(self) -> None:
        """Copy what was closed since BUILD, and attribute what is equal to the target."""
        # Again: ledgers were closed in the source until every broker had followed the directive.
        await self.copy()
        self.state.stage = CutoverStage.PROMOTED
        done = await self._set_attributions(FORWARD)
        self.state.figures.update(
            promoted_schemas=done.schemas,
            promoted_cursors=done.cursors,
            promoted_before=done.already,
            promoted_via_rollover_fallback=done.rollovers,
            deferred_cursors=done.deferred_count,
        )
        self.state.facts.deferred = list(done.deferred)
        if done.contested:
            why = "references are contested and stay as they are; start the switch again for them"
            self.migration.board.note(f"{done.contested:,} {why}")

    # Backward ---------------------------------------------------------------------------------------------------------

    async def roll_back(self) -> None:
        """Direct brokers to read both clusters and write to the source, and restore the attributions."""
        if self.state.stage < CutoverStage.DIRECTED:
            return
        # An update that is under way ends first, or it would overtake this one. It may wait for the same lock, so the
        # workflow must not wait here for its handlers.
        async with self.migration.update_lock:
            if self.state.read_mode is not ReadMode.DUAL_READ:
                both = ReadModeChange(mode=ReadMode.DUAL_READ)
                call = Call("Brokers read both clusters again")
                await self.activities.run(attribution.set_read_mode, call, both)
                self.state.read_mode = ReadMode.DUAL_READ
        # Writes first: what brokers create from now on is in the source, and needs no copy back.
        await self.set_target(BACK)
        if self.state.stage < CutoverStage.PROMOTED:
            return
        done = await self._set_attributions(BACK)
        if done.contested:
            raise ApplicationError(
                f"{done.contested:,} references were changed by others again and again", type=FailureKind.CONFLICT
            )
        self.state.facts.deferred = list(done.deferred)
        if done.deferred_count:
            target = self.input.target.name
            self.migration.board.note(
                f"{done.deferred_count:,} cursors and schemas stay attributed to {target}; keep its bookies until "
                "nothing refers to it"
            )

    async def tidy_target(self, stage: CutoverStage) -> None:
        """Remove copies, as PIP-477 says: "new-cluster copies scheduled for delayed deletion"."""
        if stage < CutoverStage.COPIES:
            return
        confirmed = False
        if stage >= CutoverStage.PROMOTED and not self.state.tidying:
            confirmed = await self._wait_for_deletion()
        if confirmed:
            self.migration.board.note(f"the copies in {self.input.target.name} were left as they are")
        else:
            self.state.tidying = True
            await self.remove_copies()

    async def _wait_for_deletion(self) -> bool:
        """Wait for the deletion of the copies; return whether the operator keeps them permanently."""
        verbs = self.migration.verbs
        if verbs.policy != DELETION_DELAY:
            verbs.enter(DELETION_DELAY)
        await self.migration.timers.window("deletion", self.input.deletion_delay)
        confirmed = verbs.proceed_wanted
        verbs.enter(self.migration.phases.policies[Phase.ROLLED_BACK])
        return confirmed

    # Both directions --------------------------------------------------------------------------------------------------

    async def _set_attributions(self, direction: Direction) -> Promotion:
        """Change attributions; retry contested ones a bounded number of times."""
        name = self.input.ends(direction).target.name
        done = await self.activities.run(attribution.promote, Call(f"Attributions become {name}"), direction)
        for rounds in range(2, PROMOTE_ROUNDS + 1):
            if not done.contested:
                break
            call = Call(f"Attributions become {name}, round {rounds}")
            done = await self.activities.run(attribution.promote, call, direction)
        self.migration.board.report_failures(done.failed)
        return done
