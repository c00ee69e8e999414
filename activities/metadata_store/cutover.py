"""The steps of the metadata store migration that run with metadata writes blocked, and the way back from them."""

from __future__ import annotations

import time
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.registrations import participants, registered, still_registered
from activities.lifecycle.source_watch import SourceWatch
from activities.metadata_store.catch_up import not_caught_up
from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.convergence import all_changes, converge, follow_late_writes, follow_once
from activities.metadata_store.flag import FlagState
from activities.metadata_store.pre_copy import raise_floor
from activities.metadata_store.repair import repair_many
from clients.equivalence import is_recreated
from clients.store import StoreReader
from clients.stores import last_transaction, open_reader
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind
from models.metadata_store.input import Mode
from models.metadata_store.results import (
    ChangeCopy,
    Completion,
    LateWrites,
    PreCopy,
    Preparation,
    Restoration,
    Verification,
)
from models.migration_flag import FlagPhase
from spark.metadata_store import jobs
from spark.metadata_store.replica import CommitPoint, Replica

# Writes are blocked meanwhile. Pulsar's own coordinator doubles its pause up to seconds, and was seen to lose 2 s so.
_FIRST_POLL, _LONGEST_POLL = 0.02, 0.25
# Seconds after which the flag is set once more: clients of ZooKeeper are back soon after the servers, or the network.
_REBROADCAST_AFTER = 3.0
# Seconds that ephemerals may be left which are no service's: nobody will recreate them, and writes are blocked.
_STRANGERS_AFTER = 10.0
# Paths that may still be on the move at the commit; they are followed after it.
_FEW_CHANGES = 50


def prepare(task: MetadataStoreTask, context: ActivityContext, patience: float) -> Preparation:
    """Set the flag to PREPARATION, and wait until every participant's ephemerals stand in the target.

    A worker that would have to scan the source, or to copy much, with writes blocked, does not set the flag.

    An empty list of participants is no proof: after a failed attempt they do not register again. So each ephemeral of
    the source must stand in the target with a live session, save sequential ones, which nobody recreates.

    Raises:
        ApplicationError: `ParticipantsNotReady` after so many seconds of patience, naming who is missing.
        StoreConflict: somebody else moved the flag.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        if not flag.stands_at(FlagPhase.PREPARATION) and (gap := not_caught_up(task)):
            return Preparation(ephemerals=0, seconds=0.0, gap=gap)
        task.watch_deadline()
        context.blocked_since = flag.advance(FlagPhase.PREPARATION, task.input.target).since_ms / 1000
        watch = _watch_or_scan(task, context)
        with (
            open_reader(task.input.source_url, task.runtime.access) as source,
            task.replica(FlagPhase.PREPARATION) as replica,
        ):
            pause = _FIRST_POLL
            told = helped = time.monotonic()
            while (ready := _readiness(task, source, replica, watch)).missing:
                missing = ready.missing
                if not ready.strangers:
                    helped = time.monotonic()
                if time.monotonic() - helped > _STRANGERS_AFTER:
                    cure = "Stop these clients, which take no part in a migration, and start again"
                    raise _not_ready(f"nobody recreates {missing}. {cure}")
                if time.monotonic() - begun > patience:
                    raise _not_ready(
                        f"{task.input.preparation_timeout.total_seconds():g} s after PREPARATION not ready: {missing}. "
                        f"Look into their logs; can they reach {task.input.target}?"
                    )
                context.waiting_for(WaitKind.PARTICIPANTS, missing)
                # A service that was cut off when the flag moved does not learn of it otherwise, and would never get
                # ready.
                if time.monotonic() - told > _REBROADCAST_AFTER:
                    told = time.monotonic()
                    flag.rebroadcast()
                context.pause(pause)
                pause = min(2 * pause, _LONGEST_POLL)
    context.waits_no_more()
    return Preparation(ephemerals=ready.ephemerals, seconds=time.monotonic() - begun)


def copy_changes(task: MetadataStoreTask, context: ActivityContext, since_zxid: int) -> ChangeCopy:
    """Set the flag to COPYING, and copy what changed since PRE_COPY.

    Raises:
        StoreConflict: somebody else moved the flag.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        task.watch_deadline()
        context.blocked_since = _blocked_since(flag.advance(FlagPhase.COPYING, task.input.target))
        changes = all_changes(task, context, since_zxid)
        context.check()
        with task.replica(FlagPhase.COPYING) as replica:
            # Nothing is marked clean here: VERIFY compares these paths, and what changed since, by reading them again.
            applied = replica.apply(changes.dirty.paths)
    return ChangeCopy(
        by="scan" if changes.gap else "watch",
        gap=changes.gap,
        changed=len(changes.dirty.paths),
        written=applied.written,
        deleted=applied.deleted,
        seconds=time.monotonic() - begun,
    )


def verify(task: MetadataStoreTask, context: ActivityContext, pre: PreCopy) -> Verification:
    """Compare all that changed since PRE_COPY compared both stores; where asked, both stores whole once more.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        context.blocked_since = _blocked_since(flag.state())
    changes = all_changes(task, context, pre.since_zxid)
    todo = set(changes.dirty.paths)
    compared, repaired, highest = len(todo), 0, 0
    if task.input.full_verify:
        comparison = jobs.compare(task.engine, task.pair, records=pre.compared, tag=task.tag(context))
        rest = repair_many(task, context, comparison)
        compared, todo, highest = comparison.records, todo | set(rest.paths), rest.highest
        repaired = comparison.different.paths - len(rest.paths)
    with task.replica(FlagPhase.COPYING) as replica:
        context.check()
        different = set(replica.differences(todo))
        # The mark is from before the comparison: what changed while it ran stays dirty.
        changes.watch.mark_clean(todo - different, changes.dirty.mark)
        if different:
            converge(task, context, replica, changes, different)
        floor = raise_floor(task, context, max(replica.highest, highest), pre.version_floor)
    return Verification(
        compared=compared,
        repaired=repaired + len(different),
        whole=task.input.full_verify,
        version_floor=floor,
        seconds=time.monotonic() - begun,
    )


def verify_offline(task: MetadataStoreTask, context: ActivityContext, pre: PreCopy) -> Verification:
    """Compare both stores whole; nobody writes.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    begun = time.monotonic()
    comparison = jobs.compare(task.engine, task.pair, records=pre.compared, tag=task.tag(context))
    context.check()
    rest = repair_many(task, context, comparison)
    with task.replica() as replica:
        # Repaired once: nobody writes, so a record that differs again has another writer or cannot be kept.
        replica.apply(rest.paths)
        if stays := replica.differences(rest.paths):
            raise ApplicationError(
                f"{len(stays)} records of the target differ after they were written again: {some(stays)}",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
    return Verification(
        compared=comparison.records,
        repaired=comparison.different.paths,
        whole=True,
        seconds=time.monotonic() - begun,
    )


def complete(task: MetadataStoreTask, context: ActivityContext, pre: PreCopy) -> Completion:
    """Commit: set the flag to COMPLETED, follow late writes, and release the target.

    Raises:
        StoreConflict: somebody else moved the flag.
    """
    task.urgent = True
    floor = pre.version_floor
    with task.flag() as flag:
        if not flag.stands_at(FlagPhase.COMPLETED):
            context.blocked_since = _blocked_since(flag.state())
            # Marked before the changes are collected. A worker that takes over after the commit looks for late writes
            # from here on.
            settled = flag.mark()
            changes = all_changes(task, context, pre.since_zxid)
            if changes.dirty.paths:
                with task.replica(FlagPhase.COPYING) as replica:
                    converge(task, context, replica, changes, changes.dirty.paths, enough=_FEW_CHANGES)
                    floor = raise_floor(task, context, replica.highest, floor)
            if task.input.target_url.scheme == "zk":
                with task.target_claim() as claim:
                    claim.forget_flag()
            # Behind all that was copied, and before any service writes there.
            settled_target = last_transaction(task.input.target_url, task.runtime.access) or floor
            context.check()
            # The check before this is the last moment at which a rollback or a deadline can prevent the commit.
            flag.advance(FlagPhase.COMPLETED, task.input.target, settled_zxid=settled, settled_target=settled_target)
            context.blocked_since = None
        # An attempt that finds the commit done takes the claim over, so that the one before it writes no more.
        state = flag.advance(FlagPhase.COMPLETED, task.input.target)
        commit = _commit_point(state, pre, floor)
        # Where the watch was lost with its worker, the source is scanned from the commit's mark on: brokers may write
        # to it still.
        with task.replica(FlagPhase.COMPLETED) as replica:
            late = follow_late_writes(task, context, replica, commit)
            _rebroadcast_flag(task, context)
            # Who learned of the commit only by the second flag wrote to the source until then.
            later = follow_late_writes(task, context, replica, commit)
    with task.target_claim() as claim:
        claim.release()
    task.repeat_flag()
    contested = sorted({*late.contested, *later.contested})
    return Completion(
        blocked_seconds=state.since_ms / 1000 - _blocked_since(state),
        late_copied=late.copied + later.copied,
        contested=tuple(path.decode(errors="backslashreplace") for path in contested),
        quiet=later.quiet,
    )


def follow(task: MetadataStoreTask, context: ActivityContext, pre: PreCopy) -> LateWrites:
    """In the window: copy what services that have not followed the commit wrote to the source, and tell them again.

    Raises:
        StoreError: a store failed; the look can be repeated.
    """
    with task.flag() as flag:
        if not flag.stands_at(FlagPhase.COMPLETED):
            return LateWrites()
        flag.rebroadcast()
        commit = _commit_point(flag.state(), pre, pre.version_floor)
        services = bool(still_registered(task.input.source_url, task.runtime.access))
        with task.replica(FlagPhase.COMPLETED) as replica:
            late = follow_once(task, context, replica, commit, services=services)
    return LateWrites(
        copied=late.copied,
        contested=tuple(path.decode(errors="backslashreplace") for path in late.contested),
        kept=late.kept,
    )


def _commit_point(state: FlagState, pre: PreCopy, floor: int) -> CommitPoint:
    if state.claim is None:
        return CommitPoint(pre.since_zxid, floor)
    return CommitPoint(state.claim.settled_zxid, state.claim.settled_target or floor)


def complete_offline(task: MetadataStoreTask, context: ActivityContext) -> Completion:
    """Finish an offline migration: nobody came to use the source meanwhile, and the target is free to be used.

    Raises:
        ApplicationError: `SourceInUse` if services registered in the source.
    """
    if running := still_registered(task.input.source_url, task.runtime.access):
        raise ApplicationError(
            f"services registered in the source while it was copied: {', '.join(running)}. Stop them, and start again",
            type=FailureKind.IN_USE,
            non_retryable=True,
        )
    context.check()
    with task.target_claim() as claim:
        if task.input.target_url.scheme == "zk":
            claim.forget_flag()
        claim.release()
    release(task)
    return Completion(blocked_seconds=0.0)


def unblock_writes(task: MetadataStoreTask) -> Restoration:
    """Set the flag to FAILED where this migration blocked writes; brokers then write to the source again."""
    if not task.source_has_flag:
        return Restoration(committed=False, flag=FlagPhase.NOT_STARTED)
    with task.flag() as flag:
        state = flag.unblock()
    # Of this run: a later one may have been committed, if this one was reset after its end.
    mine = state.owned_by(task.workflow_id) and state.claim is not None and state.claim.is_of(task.attempt)
    # The flag decides: a commit whose answer was lost has happened, and its late writes are still to be followed.
    committed = mine and state.flag.phase is FlagPhase.COMPLETED
    if not committed:
        task.forget_watch()
    blocked = state.since_ms / 1000 - _blocked_since(state) if mine else 0.0
    return Restoration(committed=committed, flag=state.flag.phase, blocked_seconds=blocked)


def give_back(task: MetadataStoreTask) -> bool:
    """Set the flag to FAILED where an earlier run of this migration left writes blocked; returns whether it had."""
    if not task.source_has_flag:
        return False
    with task.flag() as flag:
        blocked = flag.state().blocked_by(task.workflow_id)
        if blocked:
            flag.release()
    return blocked


def clear_target(task: MetadataStoreTask, context: ActivityContext) -> int:
    """Remove the copy from the target, then both claims; does nothing where the target or the source is not ours.

    A late attempt of this step may run while the migration was started again, and must not empty that one's target.
    """
    removed = 0
    with task.source_claim() as claim:
        if (held := claim.read()) is not None and not held.claim.is_of(task.attempt):
            return removed
    if task.input.mode is Mode.LIVE:
        # A broker that missed FAILED refuses writes until it is told again.
        _rebroadcast_flag(task, context)
    with task.target_claim() as claim:
        if claim.is_held():
            # Claimed before the first delete: a bulk task of an earlier attempt would refill what is being cleared.
            if claim.claim(None).ours:
                removed, _ = jobs.clear(task.engine, task.fenced_pair, "target", tag=task.tag(context))
            claim.release()
    release(task)
    if task.input.mode is Mode.LIVE:
        task.repeat_flag()
    return removed


def take_source(task: MetadataStoreTask) -> None:
    """Claim the source for its cleanup.

    Live, it has been ours since PRE_COPY, and says who set the flag to COMPLETED; offline, the commit released it.
    """
    with task.source_claim() as claim:
        if task.input.mode is Mode.LIVE:
            claim.renew()
        else:
            claim.take()


def release(task: MetadataStoreTask) -> None:
    """Release the source; the flag stays as it is, unless this migration still blocks writes by it.

    Offline too: a live run of this migration that was terminated may have left it so.
    """
    if task.source_has_flag:
        with task.flag() as flag:
            flag.release()
    else:
        with task.source_claim() as claim:
            claim.release()


def _rebroadcast_flag(task: MetadataStoreTask, context: ActivityContext) -> None:
    """Set the flag once more, some seconds after it was moved, for services that were cut off at that instant."""
    with task.flag() as flag:
        state = flag.state()
        if state.owned_by(task.workflow_id):
            # The flag's time is the server's and `now` is ours: whatever their difference, the pause is bounded.
            context.pause(min(max(state.since_ms / 1000 + _REBROADCAST_AFTER - time.time(), 0), _REBROADCAST_AFTER))
            flag.rebroadcast()


def _blocked_since(state: FlagState) -> float:
    """When writes were blocked: seconds since the epoch, by the source's clock."""
    return (state.claim.blocked_since_ms if state.claim else state.since_ms) / 1000


def _watch_or_scan(task: MetadataStoreTask, context: ActivityContext) -> SourceWatch:
    """The watch of this run; where it was lost, the source is scanned for ephemerals, which no longer change now."""
    watch = task.watch
    if watch.gap():
        with context.waiting(WaitKind.SCAN, "a scan of the source for ephemerals, because the watch was lost"):
            watch.add_ephemerals(jobs.ephemerals(task.engine, task.pair, tag=task.tag(context)))
    return watch


class _Readiness(NamedTuple):
    """Who is missing.

    Attributes:
        missing: the same in words, empty when nobody is.
        ephemerals: how many stand in the target, when nobody is missing.
        strangers: whether only clients are missing that are no services and take no part.
    """

    missing: str
    ephemerals: int = 0
    strangers: bool = False


def _readiness(task: MetadataStoreTask, source: StoreReader, replica: Replica, watch: SourceWatch) -> _Readiness:
    # Participants beneath a chroot never unregister (seen with 5.0.0-M1): there the ephemerals alone show readiness.
    sessions = set[int]() if task.input.source_url.root else participants(source)
    if sessions:
        names = {service.owner: service.name for service in registered(source)}
        waiting = sorted({names.get(owner, f"session 0x{owner:x}") for owner in sessions})
        return _Readiness(f"participants {', '.join(waiting)}")
    # An ephemeral may have come after the bulk compare; which of these paths are ephemerals shows when they are read.
    watch.add_ephemerals(watch.collect(task.runtime.access.timeout).paths)
    found = replica.ephemerals(path for path in watch.ephemerals if is_recreated(path))
    absent = [one for one in found if not one.recreated]
    if not absent:
        return _Readiness("", len(found))
    names = {service.owner: service.name for service in registered(source)}
    owners = sorted({names.get(one.owner, f"session 0x{one.owner:x}") for one in absent})
    # Beneath a chroot participants are not known, and a helper of theirs may have a session of its own.
    strangers = not task.input.source_url.root and names.keys().isdisjoint(one.owner for one in absent)
    told = f"{len(absent)} ephemerals of {', '.join(owners)}: {some(one.path for one in absent)}"
    return _Readiness(told, strangers=strangers)


def _not_ready(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.NOT_READY, non_retryable=True)
