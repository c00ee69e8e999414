"""The steps of the metadata store migration that run with metadata writes blocked, and the way back from them."""

from __future__ import annotations

import time

from temporalio.exceptions import ApplicationError

from activities.lifecycle.registrations import is_sequential, participants, registered, still_registered
from activities.lifecycle.runner import ActivityContext
from activities.lifecycle.runtime import SourceWatch
from activities.metadata_store.context import Work, some
from activities.metadata_store.convergence import converge, follow_late_writes, whole_watch
from activities.metadata_store.flag import FlagState
from activities.metadata_store.replica import Replica
from clients.errors import StoreConflict
from clients.store import StoreReader
from clients.stores import open_reader
from clients.zookeeper.coordination import Coordination
from models.lifecycle.failures import FailureKind
from models.metadata_store.flag import FLAG, FlagPhase
from models.metadata_store.input import Mode
from models.metadata_store.results import ChangeCopy, Completion, PreCopy, Preparation, Restoration, Verification
from spark.metadata_store import jobs

_FIRST_POLL, _LONGEST_POLL = 0.02, 0.25
# Seconds after which the flag is set once more: clients of ZooKeeper are back soon after the servers, or the network.
_SAY_AGAIN = 3.0
# Paths that may still be on the move at the commit; they are followed after it.
_FEW_CHANGES = 50


def prepare(work: Work, context: ActivityContext, deadline: float) -> Preparation:
    """Set the flag to PREPARATION, and wait until every participant's ephemerals stand in the target.

    An empty list of participants is no proof: after a failed attempt they do not register again. So each ephemeral of
    the source must stand in the target with a live session, save sequential ones, which nobody recreates.

    Raises:
        ApplicationError: `ParticipantsNotReady` at the deadline (seconds since the epoch), naming who is missing.
        StoreConflict: somebody else moved the flag.
    """
    begun = time.monotonic()
    with work.flag() as flag:
        context.blocked_since = flag.advance(FlagPhase.PREPARATION, work.input.target).since_ms / 1000
    watch = _watch_or_scan(work, context)
    source = open_reader(work.input.source_url, work.runtime.access)
    try:
        with work.replica(FlagPhase.PREPARATION) as replica:
            pause = _FIRST_POLL
            said = time.monotonic()
            while missing := _missing(work, source, replica, watch):
                if time.time() > deadline:
                    raise ApplicationError(
                        f"{work.input.preparation_timeout.total_seconds():g} s after PREPARATION not ready: {missing}. "
                        f"Look into their logs; can they reach {work.input.target}?",
                        type=FailureKind.NOT_READY,
                        non_retryable=True,
                    )
                context.waiting_for(missing)
                if time.monotonic() - said > _SAY_AGAIN:
                    said = time.monotonic()
                    with work.flag() as flag:
                        flag.repeat()
                context.pause(pause)
                pause = min(2 * pause, _LONGEST_POLL)
    finally:
        source.close()
    context.waiting_for("")
    return Preparation(ephemerals=len(_recreated(watch)), seconds=time.monotonic() - begun)


def copy_changes(work: Work, context: ActivityContext, since_zxid: int) -> ChangeCopy:
    """Set the flag to COPYING, and copy what changed since PRE_COPY.

    Raises:
        StoreConflict: somebody else moved the flag.
    """
    begun = time.monotonic()
    with work.flag() as flag:
        context.blocked_since = _blocked_since(flag.advance(FlagPhase.COPYING, work.input.target))
    watch, gap = whole_watch(work, context, since_zxid)
    changed = len(watch.dirty_paths)
    context.check()
    with work.replica(FlagPhase.COPYING) as replica:
        applied = replica.apply(watch.dirty_paths)
    return ChangeCopy(
        by="scan" if gap else "watch",
        gap=gap,
        changed=changed,
        written=applied.written,
        deleted=applied.deleted,
        seconds=time.monotonic() - begun,
    )


def verify(work: Work, context: ActivityContext, pre: PreCopy) -> Verification:
    """Compare all that changed since PRE_COPY compared both stores; where asked, both stores whole once more.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    begun = time.monotonic()
    watch, _ = whole_watch(work, context, pre.since_zxid)
    todo = set(watch.dirty_paths)
    compared = len(todo)
    with work.replica(FlagPhase.COPYING) as replica:
        if work.input.full_verify:
            comparison = jobs.compare(work.engine, work.pair, records=pre.compared, tag=work.tag(context))
            compared, todo = comparison.records, todo | set(comparison.different)
        context.check()
        different = set(replica.differences(todo))
        watch.dirty_paths -= todo - different
        if different:
            converge(work, context, replica, watch, different)
    watch.compared += compared
    return Verification(
        compared=watch.compared,
        repaired=len(different),
        whole=work.input.full_verify,
        seconds=time.monotonic() - begun,
    )


def verify_offline(work: Work, context: ActivityContext, pre: PreCopy) -> Verification:
    """Compare both stores whole; nobody writes.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    begun = time.monotonic()
    comparison = jobs.compare(work.engine, work.pair, records=pre.compared, tag=work.tag(context))
    context.check()
    with work.replica() as replica:
        replica.apply(comparison.different)
        if stays := replica.differences(comparison.different):
            raise ApplicationError(
                f"{len(stays)} records of the target differ after they were written again: {some(stays)}",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
    return Verification(
        compared=comparison.records,
        repaired=len(comparison.different),
        whole=True,
        seconds=time.monotonic() - begun,
    )


def complete(work: Work, context: ActivityContext, pre: PreCopy) -> Completion:
    """Commit: set the flag to COMPLETED, follow latecomers, and take away our record in the target.

    Raises:
        StoreConflict: somebody else moved the flag.
    """
    with work.flag() as flag:
        if not flag.stands_at(FlagPhase.COMPLETED):
            settled = flag.mark()
            watch, _ = whole_watch(work, context, pre.since_zxid)
            if watch.dirty_paths:
                with work.replica(FlagPhase.COPYING) as replica:
                    converge(work, context, replica, watch, set(watch.dirty_paths), enough=_FEW_CHANGES)
            context.check()
            flag.advance(FlagPhase.COMPLETED, work.input.target, settled_zxid=settled)
        state = flag.advance(FlagPhase.COMPLETED, work.input.target)
    watch, _ = whole_watch(work, context, state.claim.settled_zxid if state.claim else pre.since_zxid)
    with work.replica(FlagPhase.COMPLETED) as replica:
        late = follow_late_writes(work, context, replica, watch, pre.version_floor)
        _rebroadcast_flag(work, context)
        later = follow_late_writes(work, context, replica, watch, pre.version_floor)
    with work.target_claim() as claim:
        claim.drop()
    work.runtime.forget(work.run_id)
    contested = sorted({*late.contested, *later.contested})
    return Completion(
        blocked_seconds=state.since_ms / 1000 - _blocked_since(state),
        late_copied=late.copied + later.copied,
        contested=tuple(path.decode(errors="backslashreplace") for path in contested),
    )


def complete_offline(work: Work, context: ActivityContext) -> Completion:
    """Finish an offline migration: nobody came to use the source meanwhile, and the target is free to be used.

    Raises:
        ApplicationError: `SourceInUse` if services registered in the source.
    """
    if running := still_registered(work.input.source_url, work.runtime.access):
        raise ApplicationError(
            f"services registered in the source while it was copied: {', '.join(running)}. Stop them, and start again",
            type=FailureKind.IN_USE,
            non_retryable=True,
        )
    context.check()
    if work.input.target_url.scheme == "zk":
        _forget_old_flag(work)
    with work.target_claim() as claim:
        claim.drop()
    return Completion(blocked_seconds=0.0)


def unblock_writes(work: Work) -> Restoration:
    """Set the flag to FAILED where this migration blocked writes; brokers then write to the source again."""
    if work.input.mode is Mode.OFFLINE:
        return Restoration(committed=False, flag=FlagPhase.NOT_STARTED)
    with work.flag() as flag:
        state = flag.release()
    mine = state.owned_by(work.workflow_id)
    committed = mine and state.flag.phase is FlagPhase.COMPLETED
    if not committed:
        work.runtime.forget(work.run_id)
    blocked = state.since_ms / 1000 - _blocked_since(state) if mine else 0.0
    return Restoration(committed=committed, flag=state.flag.phase, blocked_seconds=blocked)


def clear_target(work: Work, context: ActivityContext) -> int:
    """Remove the copy from the target, then both claims; does nothing where the target or the source is not ours.

    A late attempt of this step may run while the migration was started again, and must not empty that one's target.
    """
    removed = 0
    if work.input.mode is Mode.LIVE:
        with work.flag() as flag:
            if flag.yields_to_another_run():
                return removed
        _rebroadcast_flag(work, context)
    with work.target_claim() as claim:
        if claim.is_mine():
            attempt = claim.take(None).attempt
            removed, _ = jobs.clear(work.engine, work.attempt(attempt), "target", tag=work.tag(context))
            claim.drop()
    if work.input.mode is Mode.LIVE:
        with work.flag() as flag:
            flag.drop()
    return removed


def _rebroadcast_flag(work: Work, context: ActivityContext) -> None:
    """Set the flag once more, some seconds after it was moved, for services that were cut off at that instant."""
    with work.flag() as flag:
        state = flag.state()
        if state.owned_by(work.workflow_id):
            context.pause(min(max(state.since_ms / 1000 + _SAY_AGAIN - time.time(), 0), _SAY_AGAIN))
            flag.repeat()


def _blocked_since(state: FlagState) -> float:
    """When writes were blocked: seconds since the epoch, by the source's clock."""
    return (state.claim.blocked_since_ms if state.claim else state.since_ms) / 1000


def _watch_or_scan(work: Work, context: ActivityContext) -> SourceWatch:
    """The watch of this run; where it was lost, the source is scanned for ephemerals, which no longer change now."""
    watch = work.watch or work.new_watch()
    if watch.gap():
        context.waiting_for("a scan of the source for ephemerals, because the watch was lost")
        watch.ephemerals |= jobs.ephemerals(work.engine, work.pair, tag=work.tag(context))
    return watch


def _missing(work: Work, source: StoreReader, replica: Replica, watch: SourceWatch) -> str:
    """Who is not ready yet, in words; empty when all are."""
    # Participants beneath a chroot never unregister (seen with 5.0.0-M1): there the ephemerals alone show readiness.
    sessions = set[int]() if work.input.source_url.root else participants(source)
    if sessions:
        names = {service.owner: service.name for service in registered(source)}
        waiting = sorted({names.get(owner, f"session 0x{owner:x}") for owner in sessions})
        return f"participants {', '.join(waiting)}"
    watch.ephemerals |= watch.collect(work.runtime.access.timeout)
    absent = replica.missing_ephemerals(_recreated(watch))
    if not absent:
        return ""
    names = {service.owner: service.name for service in registered(source)}
    owners = sorted({names.get(owner, f"session 0x{owner:x}") for _, owner in absent})
    return f"{len(absent)} ephemerals of {', '.join(owners)}: {some(path for path, _ in absent)}"


def _recreated(watch: SourceWatch) -> set[bytes]:
    return {path for path in watch.ephemerals if not is_sequential(path)}


def _forget_old_flag(work: Work) -> None:
    """Remove a flag from the ZooKeeper that takes over: a COMPLETED one would send brokers to another store."""
    access = work.runtime.access
    with Coordination(work.input.target_url, auth=access.zookeeper_auth, timeout=access.timeout) as zookeeper:
        stat = zookeeper.exists(FLAG)
        if stat is not None:
            zookeeper.delete(FLAG, stat.version)
        if zookeeper.exists(FLAG) is not None:
            raise StoreConflict(f"{FLAG} was set again in the target; does a service run there?")
