"""Move a Pulsar cluster's metadata to another store (PIP-454)."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.metadata_store.activities import MetadataStoreActivities as Steps
    from models.lifecycle.failures import FailureKind
    from models.lifecycle.input import SourceCleanup
    from models.lifecycle.names import BLOCKED_GAUGE
    from models.lifecycle.report import Report
    from models.lifecycle.status import Outcome
    from models.lifecycle.verbs import Speed
    from models.metadata_store.input import KIND, MetadataStoreInput, Mode
    from models.metadata_store.phases import Phase
    from models.metadata_store.results import Census, ChangeCopy, Precheck, PreCopy, Verification
    from workflows.lifecycle.migration import Migration
    from workflows.lifecycle.precheck import not_ready, require_ready
    from workflows.metadata_store.policy import OFFLINE_COPY, POLICIES

# How long an unreachable target is tried before its leftovers are left to the next start.
_CLEARING = timedelta(minutes=10)

# How long a new throttle may take; the migration cannot end before its updates are answered.
_THROTTLING = timedelta(seconds=30)


@workflow.defn
class MetadataStoreMigration(Migration[MetadataStoreInput]):
    """Move a Pulsar cluster's metadata to another store (PIP-454)."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput) -> None:
        super().__init__(input, kind=KIND, target=input.target, first=Phase.PRECHECK, rules=POLICIES[Phase.PRECHECK])
        self._records = 0
        self._pre: PreCopy | None = None

    @workflow.run
    async def run(self, input: MetadataStoreInput) -> Report:
        """Run the migration; the report holds figures and certificate."""
        return await self.execute(self._migrate(input))

    async def _migrate(self, input: MetadataStoreInput) -> Report:
        facts = await self.phase(Phase.PRECHECK, POLICIES[Phase.PRECHECK], self._precheck)
        if input.dry_run:
            self.figures["blockers"] = len(facts.blockers)
            return self.report(Outcome.PLANNED, _plan_summary(facts))
        require_ready(facts.blockers)
        async with self.rollback_on_failure(self._fail):
            if input.mode is Mode.LIVE:
                await self._move_live(input)
            else:
                await self._move_offline()
        await self._watch_and_clean(input)
        return self.report(Outcome.DONE, f"the metadata of {input.cluster} is in {input.target}")

    # The phases of PIP-454, in its order ----------------------------------------------------------------------------

    async def _move_live(self, input: MetadataStoreInput) -> None:
        pre = await self.phase(Phase.PRE_COPY, POLICIES[Phase.PRE_COPY], self._pre_copy)
        async with self.deadline("longest time with writes blocked", input.blocked_deadline):
            await self.phase(Phase.PREPARATION, POLICIES[Phase.PREPARATION], lambda: self._prepare(pre))
            await self.phase(Phase.COPYING, POLICIES[Phase.COPYING], lambda: self._copy_changes(pre))
            await self.phase(Phase.VERIFY, POLICIES[Phase.VERIFY], lambda: self._verify(pre))
            await self.phase(Phase.COMPLETED, POLICIES[Phase.COMPLETED], lambda: self._complete(pre))

    async def _move_offline(self) -> None:
        copied = await self.phase(Phase.COPYING, OFFLINE_COPY, self._copy_whole)
        await self.phase(Phase.VERIFY, OFFLINE_COPY, lambda: self._verify(copied))
        await self.phase(Phase.COMPLETED, POLICIES[Phase.COMPLETED], lambda: self._complete(copied))

    async def _precheck(self) -> Precheck:
        facts = await self.step(Steps.precheck, summary=f"Check {self.input.source} and {self.input.target}")
        self.facts["precheck"] = facts.model_dump(mode="json")
        self._records = facts.survey.records if facts.survey else 0
        for warning in facts.warnings:
            self.note(f"warning: {warning}")
        return facts

    async def _pre_copy(self) -> PreCopy:
        pre = await self.step(Steps.pre_copy, self._records, summary="Copy and compare while brokers write")
        self._note_copy(pre)
        self._pre = pre
        return pre

    async def _copy_whole(self) -> PreCopy:
        copied = await self.step(Steps.copy_whole, self._records, summary="Copy and compare; all services are stopped")
        self._note_copy(copied)
        return copied

    async def _prepare(self, pre: PreCopy) -> None:
        ready = await self.step(
            Steps.prepare,
            summary="Brokers and bookies recreate their ephemerals in the target",
            queue=pre.worker_queue,
        )
        self.certificate["ephemerals_recreated"] = ready.ephemerals
        self.figures["preparation_seconds"] = ready.seconds

    async def _copy_changes(self, pre: PreCopy) -> ChangeCopy:
        changes = await self.step(
            Steps.copy_changes, pre, summary="Copy what changed since PRE_COPY", queue=pre.worker_queue
        )
        self.figures.update(
            changes_known_by=changes.by,
            changed_records=changes.changed,
            changes_written=changes.written,
            changes_deleted=changes.deleted,
            change_copy_seconds=changes.seconds,
        )
        if changes.gap:
            self.note(f"the source was scanned by transaction ids: {changes.gap}")
        return changes

    async def _verify(self, pre: PreCopy) -> Verification:
        result = await self.step(
            Steps.verify,
            pre,
            summary="Compare what was copied while writes were blocked",
            queue=pre.worker_queue,
        )
        self.certificate.update(
            source=self.input.source,
            target=self.input.target,
            compared_in_pre_copy=pre.compared,
            compared_while_blocked=result.compared,
            compared_whole_while_blocked=result.whole,
            caught_up=pre.repaired,
            repaired=result.repaired,
            differences=0,
            method="path, value, version and counters of every record: XXH3 sums by path, then record by record",
        )
        self.figures["verify_seconds"] = result.seconds
        return result

    async def _complete(self, pre: PreCopy) -> None:
        done = await self.step(
            Steps.complete,
            pre,
            summary="Commit: the flag becomes COMPLETED; late writes are followed",
            queue=pre.worker_queue,
        )
        self.figures["blocked_seconds"] = done.blocked_seconds
        self.certificate["late_writes_followed"] = done.late_copied
        for path in done.contested:
            self.failed_items.append(f"{path}: written in both stores around the commit; the target's state stands")
        self.certificate["completed_at"] = workflow.now().isoformat()
        gauge = workflow.metric_meter().create_gauge_float(BLOCKED_GAUGE, "Time with metadata writes blocked", "s")
        gauge.with_additional_attributes(self._labels()).set(done.blocked_seconds)

    async def _fail(self, cause: str) -> bool:
        """The way back before COMPLETED (PIP-454, "Failure Handling"); True if the commit had happened after all."""
        restored = await self.phase(
            Phase.FAILED,
            POLICIES[Phase.FAILED],
            lambda: self.step(Steps.unblock_writes, cause, summary="Give metadata writes back to the source"),
            undoing=True,
        )
        self.figures["blocked_seconds"] = restored.blocked_seconds
        if restored.committed:
            await self._finish()
            return True
        self.note(f"the source is in charge (flag: {restored.flag})")
        try:
            removed = await self.step(Steps.clear_target, summary="Remove the copy from the target", total=_CLEARING)
        except ActivityError:
            self.note("the copy could not be removed from the target; the next start of this migration uses it")
        else:
            self.figures["removed_from_target"] = removed
            self.note(f"{removed:,} records removed from the target")
        return False

    async def _finish(self) -> None:
        """Do what the commit that was interrupted had not done yet: late writes, the second flag, our record."""
        if pre := self._pre:
            await self.phase(Phase.COMPLETED, POLICIES[Phase.COMPLETED], lambda: self._complete(pre), undoing=True)

    # After the commit -----------------------------------------------------------------------------------------------

    async def _watch_and_clean(self, input: MetadataStoreInput) -> None:
        rules = POLICIES[Phase.VALIDATION]
        await self.phase(Phase.VALIDATION, rules, lambda: self._validate(input.validation_window))
        asked = self.lifecycle.cleanup_wanted or (input.cleanup_at_window_end and not self.lifecycle.proceed_wanted)
        if asked and input.cleanup is SourceCleanup.REMOVE:
            await self.phase(Phase.CLEANUP, POLICIES[Phase.CLEANUP], self._clean_source)
        else:
            self.note(f"the source {input.source} was left as it is")

    async def _validate(self, length: timedelta) -> None:
        """Wait for the end of the window; a cleanup that would hit a running service waits for that service."""
        opened, told = workflow.now(), ""
        ends = opened + length
        while True:
            ends = await self.window("validation", max(ends - workflow.now(), timedelta(0)), check=self._take_census)
            removal = self.input.cleanup is SourceCleanup.REMOVE and not self.lifecycle.proceed_wanted
            if not removal or not (self.lifecycle.cleanup_wanted or self.input.cleanup_at_window_end):
                return
            census = await self._take_census()
            if not census.services:
                return
            refused = f"cleanup refused, the source is still in use: {'; '.join(census.services)}"
            # Whoever never leaves must not fill the history: tell each state once, and look ever more seldom.
            if self.lifecycle.cleanup_wanted or refused != told:
                self.note(refused)
            told, self.lifecycle.cleanup_wanted = refused, False
            now = workflow.now()
            ends = max(ends, now + max(timedelta(minutes=10), (now - opened) / 10))

    async def _take_census(self) -> Census:
        census = await self.step(Steps.take_census, summary="Who still uses the source?")
        self.facts["still_on_source"] = list(census.services)
        self.facts["not_known"] = list(census.unknown)
        self.publish()
        return census

    async def _clean_source(self) -> None:
        count = await self.step(Steps.count_source, summary="Dry run: count what will be removed")
        self.note(f"cleanup removes {count:,} records from {self.input.source}")
        removed, remaining = 0, 1
        while remaining:
            part = await self.step(Steps.clean_source, summary="Remove a bounded part of the source")
            removed, remaining = removed + part.removed, part.remaining
        self.figures["removed_from_source"] = removed

    # Speed ----------------------------------------------------------------------------------------------------------

    @workflow.update(description="Limit the bulk copy to megabytes of values per second; null lifts the limit.")
    async def set_throttle(self, speed: Speed) -> Speed:
        """Change the throttle of the running copy."""
        limit = "off" if speed.megabytes_per_second is None else f"{speed.megabytes_per_second:g} MB/s"
        await self.step(Steps.set_speed, speed, summary=f"Throttle: {limit}", total=_THROTTLING)
        self.note(f"throttle is now {limit}")
        return speed

    @set_throttle.validator
    def check_set_throttle(self, speed: Speed) -> None:
        """Refuse where no bulk copy runs."""
        del speed
        phase = next((entry.phase for entry in self.history[-1:] if not entry.ended), "")
        if phase != Phase.PRE_COPY and not (phase == Phase.COPYING and self.input.mode is Mode.OFFLINE):
            raise ApplicationError("no bulk copy runs now", type=FailureKind.REFUSED)

    def _note_copy(self, pre: PreCopy) -> None:
        self.figures.update(
            copied_records=pre.copied,
            copied_bytes=pre.copied_bytes,
            copy_seconds=pre.copy_seconds,
            compare_seconds=pre.compare_seconds,
            catch_up_rounds=pre.rounds,
        )


def _plan_summary(facts: Precheck) -> str:
    if facts.blockers:
        return not_ready(facts.blockers)
    return (
        f"ready: about {facts.estimated_copy_seconds:.0f} s of copying beside the traffic, then about "
        f"{facts.estimated_blocked_seconds:.0f} s with metadata writes blocked ({facts.estimate_basis})"
    )
