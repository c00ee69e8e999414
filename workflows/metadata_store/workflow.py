"""Move a Pulsar cluster's metadata to another store (PIP-454).

Terms of all steps:

- The *flag* is the znode in the source by which brokers and bookies follow the migration. Its phases PREPARATION and
  COPYING block metadata writes, FAILED unblocks them, and COMPLETED makes services use the target: the commit.
- The *watch* reports what changes in the source. It lives in one worker process, the *watcher*, so later steps are sent
  to that worker's own task queue.
- A *gap* says why the watch may have missed changes, for example because its worker died. It is closed by a scan of the
  source by transaction ids, which takes long. So a gap is closed before writes are blocked, if it is known by then.
- *Late writes* reach the source after the commit, from services that have not read the flag yet.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.metadata_store import catch_up, cutover, pre_copy, precheck, preparation, rollback
from models.lifecycle.failures import FailureKind, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Undo
from models.lifecycle.verbs import Speed
from models.metadata_store.input import KIND, MetadataStoreInput, Mode
from models.metadata_store.phases import Phase
from models.metadata_store.results import Precheck, PreCopy
from models.metadata_store.state import MetadataStoreState
from models.migration_flag import BLOCKING_PHASES, FlagPhase
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.caller import by
from workflows.lifecycle.failures import FAILURES
from workflows.lifecycle.migration import refused
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.lifecycle.throttled import ThrottledMigration
from workflows.metadata_store.policy import POLICIES, offline_copy, policies_of
from workflows.metadata_store.watcher import on_watcher
from workflows.metadata_store.window import LATE, ValidationWindow

# How long an unreachable target is retried before its records are left to the next start.
_CLEAR_TIMEOUT = timedelta(minutes=10)

# How long an unreachable source is retried for writes that an earlier run left blocked, with a wait for late copies.
_UNBLOCK_TIMEOUT = timedelta(minutes=2)

# How long a new throttle may take; the migration cannot end before its updates are answered.
_THROTTLE_TIMEOUT = timedelta(seconds=30)

_BLOCKED = "longest time with writes blocked"

# Attempts at the cut-over that find a gap, or too many changes: two more attempts follow at once, and the others within
# about ten minutes.
_GAPS_WITHOUT_REST, _MOST_GAPS = 2, 10
_SHORTEST_REST, _LONGEST_REST = timedelta(seconds=5), timedelta(minutes=5)

_AUTORECOVERY = (
    "Autorecovery ended in all bookies, and in daemons, when metadata writes were blocked (5.0.1); restart those in "
    "which it should run"
)

_METHOD = "path, value, version and counters of every record: XXH3 sums by path, then record by record"


@workflow.defn
class MetadataStoreMigration(ThrottledMigration[MetadataStoreInput, MetadataStoreState]):
    """Move a Pulsar cluster's metadata to another store (PIP-454)."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput | Continued) -> None:
        input, state = read_start(MetadataStoreInput, MetadataStoreState, input)
        super().__init__(
            input,
            state or MetadataStoreState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK])),
            kind=KIND,
            target=input.target,
            first=Phase.PRECHECK,
            policies=policies_of(input),
            after_cutover=Undo.COPY_BACK,
        )
        self.window = ValidationWindow(self)

    @workflow.run
    async def run(self, input: MetadataStoreInput | Continued) -> Report[Any, Any]:
        """Run the migration; the report holds figures and certificate."""
        del input
        return await self.execute(self._migrate)

    async def _migrate(self) -> Report[Any, Any]:
        try:
            await self.phases.run(Phase.PRECHECK, self._precheck)
        except FAILURES:
            await self._unblock_leftover()  # mutant: metadata-store/precheck-leaves-writes-blocked
            raise
        if self.input.dry_run:
            return self.report(Outcome.PLANNED, _plan_summary(self._facts))
        require_ready(self._facts.blockers)
        move = self._move_live if self.input.mode is Mode.LIVE else self._move_offline
        await self.phases.rollback_on_failure(move, undo=self._roll_back)
        await self.phases.run(Phase.VALIDATION, self.window.watch)
        cleaned = await self.window.clean_up()
        outcome = Outcome.DONE_WITH_FAILURES if self.state.failed else cleaned
        return self.report(outcome, f"the metadata of {self.input.cluster} is in {self.input.target}")

    # The phases of PIP-454, in its order ------------------------------------------------------------------------------

    async def _move_live(self) -> None:
        await self.phases.run(Phase.PRE_COPY, self._pre_copy, holds_inside=True)
        await self.phases.run(Phase.CATCH_UP, self._catch_up, holds_inside=True)
        # Metadata writes are blocked from the flag PREPARATION to the commit, so the deadline covers these phases.
        # mutant: metadata-store/no-deadline-while-writes-are-blocked
        async with self.timers.deadline(_BLOCKED, self.input.blocked_deadline):
            await self.phases.run(Phase.PREPARATION, self._prepare)
            await self.phases.run(Phase.COPYING, self._copy_changes)
            await self.phases.run(Phase.VERIFY, self._verify)
            await self.phases.run(Phase.COMPLETED, self._complete)

    async def _move_offline(self) -> None:
        policy = offline_copy(self.input)
        # Services must not start from now on, so the hold is before the copy, not after it.
        await self.phases.run(Phase.COPYING, self._copy_whole, policy=policy)
        await self.phases.run(Phase.VERIFY, self._verify, policy=policy)
        await self.phases.run(Phase.COMPLETED, self._complete)

    async def _precheck(self) -> None:
        call = Call(f"Check {self.input.source} and {self.input.target}")
        facts = self.state.facts.precheck = await self.activities.run(precheck.precheck, call)
        if self.input.dry_run:
            self.state.figures.blockers = count_blockers(facts.blockers)
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")

    async def _unblock_leftover(self) -> None:
        """Unblock writes that an earlier, terminated run left blocked, before this run ends in PRECHECK."""
        if self.input.dry_run:
            return
        otherwise = "it is not known whether an earlier run left metadata writes blocked; see break-glass"
        call = Call("Unblock writes that an earlier run left blocked", total=_UNBLOCK_TIMEOUT)
        if await self.activities.try_run(rollback.unblock_leftover, call, otherwise):
            self.board.note("an earlier run was ended while writes were blocked; they are unblocked now")

    async def _pre_copy(self) -> None:
        call = Call("Copy and compare while brokers write")
        self._record_copy(await self.activities.run(pre_copy.pre_copy, call, self._records))
        # The certificate of a rehearsal; VERIFY adds to it.
        self.state.certificate.update(
            source=self.input.source,
            target=self.input.target,
            compared_in_pre_copy=self.state.copied.compared,
            differences=0,
            method=_METHOD,
        )

    async def _copy_whole(self) -> None:
        await self.hold.wait()
        call = Call("Copy and compare; all services are stopped")
        self._record_copy(await self.activities.run(pre_copy.copy_whole, call, self._records))

    async def _catch_up(self) -> None:
        """Hold for as long as the operator wants, and copy changes during the hold."""
        await self.hold.wait(self._catch_up_for)

    async def _catch_up_for(self, length: timedelta) -> None:
        """Copy changes for this long on the watcher; if it is gone, another worker closes the gap and becomes it."""
        pre = self.state.copied
        call = on_watcher(self.state, "Copy what changes, while brokers write")
        done = await self.activities.run(catch_up.catch_up, call, pre, length.total_seconds())
        if done.gap:
            self.board.note(f"the source was scanned by transaction ids: {done.gap}")
        self.state.figures.caught_up_before_cutover = (self.state.figures.caught_up_before_cutover or 0) + done.changed
        # The worker answers, so its queue is not lost any more.
        self.state.lost_queues.discard(done.worker_queue)
        # Keep the result of each round: a later round that is cancelled returns nothing, and steps need the watcher.
        update = {"since_zxid": done.since_zxid, "version_floor": done.version_floor, "worker_queue": done.worker_queue}
        self.state.pre = pre.model_copy(update=update)

    async def _prepare(self) -> None:
        """Block writes and wait for the services; if the watch has a gap, catch up first."""
        while True:
            call = on_watcher(self.state, "Brokers and bookies recreate their ephemerals in the target")
            ready = await self.activities.run(preparation.prepare, call)
            if not ready.gap:
                break
            # The step found a gap, and did not block writes. Another attempt follows when a worker has caught up.
            self.timers.stop(_BLOCKED)  # mutant: metadata-store/a-deadline-before-writes-are-blocked
            await self._rest_after_gap(ready.gap)
            await self._catch_up_for(timedelta(0))  # mutant: metadata-store/the-cutover-does-not-wait-for-a-new-watcher
            await self.continuation.checkpoint()
            self.timers.restart(_BLOCKED, self.input.blocked_deadline)
        self.state.certificate.ephemerals_recreated = ready.ephemerals
        self.state.figures.preparation_seconds = ready.seconds

    async def _rest_after_gap(self, gap: str) -> None:
        """Wait before the next attempt at the cut-over, after one that found this gap.

        Raises:
            ApplicationError: after the last attempt.
        """
        self.state.cutover_gaps += 1
        if self.state.cutover_gaps >= _MOST_GAPS:
            raise ApplicationError(
                f"the cut-over was tried {_MOST_GAPS} times, and each time changes of the source were not known: "
                f"{gap}. Start again when workers stay alive and the source changes less",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        if (rests := self.state.cutover_gaps - _GAPS_WITHOUT_REST) > 0:
            rest = min(_SHORTEST_REST * 2 ** (rests - 1), _LONGEST_REST)
            await self.phases.rest(f"the next try of the cut-over ({gap})", rest, effect="it is retried immediately")

    async def _copy_changes(self) -> None:
        call = on_watcher(self.state, "Copy what changed since PRE_COPY")
        changes = await self.activities.run(cutover.copy_changes, call, self.state.copied)
        self.state.figures.update(
            changes_known_by=changes.by,
            changed_records=changes.changed,
            changes_written=changes.written,
            changes_deleted=changes.deleted,
            change_copy_seconds=changes.seconds,
        )
        if changes.gap:
            self.board.note(f"the source was scanned by transaction ids: {changes.gap}")

    async def _verify(self) -> None:
        pre = self.state.copied
        call = on_watcher(self.state, "Compare what was copied while writes were blocked")
        result = await self.activities.run(cutover.verify, call, pre)
        if result.version_floor > pre.version_floor:
            self.state.pre = pre.model_copy(update={"version_floor": result.version_floor})
        self.state.certificate.update(
            source=self.input.source,
            target=self.input.target,
            compared_in_pre_copy=pre.compared,
            compared_while_blocked=result.compared,
            compared_whole_while_blocked=result.whole,
            caught_up=pre.repaired,
            repaired=result.repaired,
            differences=0,
            method=_METHOD,
        )
        self.state.figures.verify_seconds = result.seconds

    async def _complete(self) -> None:
        call = on_watcher(self.state, "Commit: the flag becomes COMPLETED; late writes are followed")
        done = await self.activities.run(cutover.complete, call, self.state.copied)
        self.state.figures.blocked_seconds, self.state.sessions = done.blocked_seconds, done.sessions
        self.state.certificate.late_writes_followed = done.late_copied
        self.state.certificate.completed_at = workflow.now()
        self.window.report_contested(done)
        if not done.quiet:
            self.board.alarm(LATE)

    # The rollback before COMPLETED (PIP-454, "Failure Handling") ------------------------------------------------------

    async def _roll_back(self, cause: str) -> str:
        """Unblock writes to the source, and remove the copy from the target.

        Returns:
            Why the migration continues instead, if the commit has happened; empty after a rollback.
        """
        # mutant: metadata-store/the-target-is-cleared-before-writes-are-free
        await self.phases.undo(Phase.FAILED, lambda: self._unblock(cause))
        # mutant: metadata-store/a-commit-that-happened-is-undone
        if (restored := self.state.restored) and restored.committed:
            # The flag is COMPLETED, but the commit step was interrupted. Repeat it: it copies late writes, sets the
            # flag again for services that missed it, and releases the claim of the target.
            if self.state.pre:
                await self.phases.undo(Phase.COMPLETED, self._complete)
            return "the migration had been committed before it was interrupted, and continues"
        # Only after writes are unblocked: services wait for them, and no service waits for an empty target.
        await self._clear_target()
        await self.window.forget_watch()
        return ""

    async def _unblock(self, cause: str) -> None:
        call = Call("Unblock metadata writes to the source")
        restored = self.state.restored = await self.activities.run(rollback.unblock_writes, call, cause)
        self.state.figures.blocked_seconds = restored.blocked_seconds
        if restored.flag in BLOCKING_PHASES:
            self.board.note(
                f"metadata writes are blocked: the flag is {restored.flag}, which is not this migration's; see "
                "break-glass in the docs"
            )
        elif restored.flag is FlagPhase.COMPLETED and not restored.committed:
            self.board.note("another command moved the metadata (flag: COMPLETED): services have left the source")
        elif not restored.committed:
            # In one note: a second one would add a command that saved histories do not have.
            ended = f". {_AUTORECOVERY}" if restored.blocked_seconds else ""
            self.board.note(f"brokers write to the source again (flag: {restored.flag}){ended}")

    async def _clear_target(self) -> None:
        removed = await self.activities.try_run(
            rollback.clear_target,
            Call("Remove the copy from the target", total=_CLEAR_TIMEOUT),
            "the copy could not be removed from the target; the next start of this migration uses it",
        )
        if removed is not None:
            self.state.figures.removed_from_target = removed
            self.board.note(f"{removed:,} records removed from the target")

    # Speed ------------------------------------------------------------------------------------------------------------

    @workflow.update(description="Limit the bulk copy to megabytes of values per second; null lifts the limit.")
    async def set_throttle(self, speed: Speed) -> Speed:
        """Change the throttle of the running copy."""
        limit = "off" if speed.megabytes_per_second is None else f"{speed.megabytes_per_second:g} MB/s"
        await self.activities.ask(pre_copy.set_speed, Call(f"Throttle: {limit}", total=_THROTTLE_TIMEOUT), speed)
        self.board.note(f"throttle is now {limit}, set{by()}")
        return speed

    @set_throttle.validator
    def check_set_throttle(self, speed: Speed) -> None:
        """Refuse where no bulk copy runs."""
        del speed
        phase = self.state.running_phase
        if phase != Phase.PRE_COPY and not (phase == Phase.COPYING and self.input.mode is Mode.OFFLINE):
            raise refused("no bulk copy runs now")

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _facts(self) -> Precheck:
        """The result of PRECHECK."""
        facts = self.state.facts.precheck
        assert facts is not None, "PRECHECK has passed"
        return facts

    @property
    def _records(self) -> int:
        """Estimated number of records."""
        return self._facts.survey.records if self._facts.survey else 0

    def _record_copy(self, pre: PreCopy) -> None:
        """Keep the result of the bulk copy in the state, and show its figures."""
        self.state.pre = pre
        if 0 < pre.version_floor < pre.highest_version:
            self.board.note(
                f"warning: records have versions up to {pre.highest_version:,}, and the target numbers what changes "
                f"from {pre.version_floor:,} on: restart clients that keep versions across the commit"
            )
        self.state.figures.update(
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
        f"ready: about {facts.estimated_copy_seconds:.0f} s of copying next to the traffic, then about "
        f"{facts.estimated_blocked_seconds:.0f} s with metadata writes blocked ({facts.estimate_basis})"
    )
