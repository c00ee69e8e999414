"""Routing `restart`: brokers of today stop on one cluster and start on the other; every ledger moves."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.bookie_cluster.activities import BookieClusterActivities as Activities
    from models.bookie_cluster.input import Direction
    from models.bookie_cluster.results import BrokersOn, BrokersStopped, TailCopy
    from models.bookie_cluster.state import CopyFigures, CutoverStage
    from models.lifecycle.names import BROKERS_AWAY_GAUGE
    from workflows.bookie_cluster.cutover import BACK, FORWARD, Cutover, require_safe
    from workflows.lifecycle.activities import Call


class RestartCutover(Cutover):
    """Brokers are away from SWITCH to PROMOTE, and once more in a rollback."""

    # Forward ----------------------------------------------------------------------------------------------------------

    async def build(self) -> None:
        """Copy closed ledgers; what cannot be copied needs a decision."""
        self.state.stage = CutoverStage.COPIES
        if self.input.advance_ids:
            await self.advance_ids()
        built = await self.copy_closed()
        effect = "goes on without these ledgers: brokers on the target will not find them"
        await self.migration.decisions.decide(built.failed, effect=effect)

    async def switch(self) -> None:
        """Stop brokers, bring the target up to date, and set the directive."""
        # Before the stop is ordered: whatever fails from here on, brokers have to be started again.
        self.state.stage = CutoverStage.BROKERS_STOPPED
        stopped = await self._stop_brokers(FORWARD)
        async with self.migration.timers.deadline("longest pause", self.input.pause_deadline, since=stopped.since):
            # PRECHECK asked while brokers created ledgers; with all of them stopped the answer stays true (I11).
            await self.require_ids()
            tail = await self._copy_tail(FORWARD)
            self._certify(tail)
            effect = "brokers start on the target without these"
            await self.migration.decisions.decide(tail.copy_summary.failed, tail.missing, effect=effect)
            # Before the call: where its answer is lost, the way back has to take the directive for given.
            self.state.stage = CutoverStage.DIRECTED
            directive = await self.set_target(FORWARD)
        pause = self.state.figures.pause_seconds = (directive.at - stopped.since).total_seconds()
        gauge = workflow.metric_meter().create_gauge_float(BROKERS_AWAY_GAUGE, "Time without any broker", "s")
        gauge.with_additional_attributes(self.migration.board.labels()).set(pause)

    async def promote(self) -> None:
        """Start brokers on the target, and see that they write there."""
        on = await self._start_brokers(FORWARD)
        self.state.certificate.brokers_on_the_target = list(on.brokers)
        self.state.figures.new_ledgers = on.new_ledgers
        if self.state.stopped:
            self.state.figures.brokers_away_seconds = (on.since - self.state.stopped.since).total_seconds()

    # Backward ---------------------------------------------------------------------------------------------------------

    async def roll_back(self) -> None:
        """Start brokers on the source again; what the target gained is copied back first."""
        if self.state.stage >= CutoverStage.DIRECTED:
            await self._bring_back()
            # Whatever fails from here on, brokers must not be stopped again.
            self.state.stage = CutoverStage.BROKERS_STOPPED
        if self.state.stage >= CutoverStage.BROKERS_STOPPED:
            on = await self._start_brokers(BACK)
            self.state.certificate.brokers_on_the_source = list(on.brokers)
            self.state.stage = CutoverStage.COPIES
            if self.state.stopped:
                away = (on.since - self.state.stopped.since).total_seconds()
                self.state.figures.rollback_brokers_away_seconds = away

    async def _bring_back(self) -> None:
        await self._stop_brokers(BACK)
        # Before brokers write to the source again: ids below the target's would be read out of order, and messages lost
        # (I11).
        await self._lift_source_ids()
        tail = await self._copy_tail(BACK)
        effect = "brokers start on the source without these"
        await self.migration.decisions.decide(tail.copy_summary.failed, tail.missing, effect=effect)
        await self.set_target(BACK)
        self.state.certificate.copied_back = tail.copy_summary.copied
        self.state.certificate.compared_entries_in_rollback = tail.copy_summary.compared

    async def _lift_source_ids(self) -> None:
        """Whatever the target handed out, the source's next id lies above it (I11 holds in both directions)."""
        name = self.input.source.name
        await self.activities.run(Activities.advance_ids, Call(f"Lift {name}'s ids above all in use"), BACK)
        check = await self.activities.run(Activities.check_ids, Call("Read the ids back"), BACK)
        require_safe(check, self.input.source)

    async def tidy_target(self, stage: CutoverStage) -> None:
        """Remove copies; ledgers that brokers may have written to are left as they are."""
        if stage >= CutoverStage.DIRECTED:
            self.migration.note(
                f"the ledgers in {self.input.target.name} were left as they are; a new start of this switch uses them, "
                "and `bookkeeper shell nukeexistingcluster` removes them with that cluster"
            )
        elif stage >= CutoverStage.COPIES:
            await self.remove_copies()

    # Both directions --------------------------------------------------------------------------------------------------

    async def _stop_brokers(self, direction: Direction) -> BrokersStopped:
        """Wait until no broker is registered."""
        call = Call("Stop brokers, wait until none is registered")
        stopped = self.state.stopped = await self.activities.run(Activities.stop_brokers, call, direction)
        self.state.facts.update(pause_since=stopped.since, brokers_stopped=list(stopped.brokers))
        return stopped

    async def _copy_tail(self, direction: Direction) -> TailCopy:
        """Bring the other side up to date while no broker runs."""
        name = self.input.ends(direction).target.name
        call = Call(f"Copy and compare what {name} lacks; brokers are stopped")
        return await self.activities.run(Activities.copy_tail, call, direction)

    async def _start_brokers(self, direction: Direction) -> BrokersOn:
        """Wait until brokers are proven to write to the direction's target."""
        name = self.input.ends(direction).target.name
        call = Call(f"Start brokers on {name}, see that they write there")
        on = await self.activities.run(Activities.start_brokers, call, direction)
        self.state.facts.pause_since = None
        return on

    def _certify(self, tail: TailCopy) -> None:
        done = tail.copy_summary
        self.state.figures.tail = CopyFigures.of(done)
        self.state.figures.removed_copies = tail.removed
        self.state.certificate.update(
            compared_entries_in_tail=done.compared,
            ledgers_compared=tail.checked,
            references_found=tail.references,
            references_missing=tail.missing.count,
        )
