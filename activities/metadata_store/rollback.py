"""Rollback of the metadata store migration: unblocks writes, removes the copy, releases claims."""

from __future__ import annotations

import logging
import time

from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask
from activities.pulsar.registrations import still_in_use
from clients.pulsar.records.migration_flag import foreign_flag
from clients.stores import open_reader
from models.lifecycle.failures import FailureKind
from models.metadata_store.input import Mode
from models.metadata_store.results import Restoration
from models.migration_flag import OPEN_PHASES, FlagPhase
from spark.metadata_store import jobs

_log = logging.getLogger(__name__)

REBROADCAST_AFTER = 3.0
"""Seconds after which the flag is set again; clients of ZooKeeper have reconnected by then."""


@step(MetadataStoreTask)
def unblock_writes(task: MetadataStoreTask, cause: str) -> Restoration:
    """Set the flag to FAILED where this migration blocked writes; brokers then write to the source again.

    `cause` is for the log.
    """
    _log.info("unblocking metadata writes: %s", cause)
    if not task.source_has_flag:
        return Restoration(committed=False, flag=FlagPhase.NOT_STARTED)
    with task.flag() as flag:
        state = flag.unblock()
    # Only this run: a later one may be committed, if this one was reset after its end.
    mine = state.owned_by(task.workflow_id) and state.claim is not None and state.claim.is_of(task.attempt)
    # Read from the flag: if only the answer of the commit was lost, the migration is committed, and late writes must
    # still be copied.
    committed = mine and state.flag.phase is FlagPhase.COMPLETED
    if not committed:
        task.forget_watch()
    blocked = state.since_ms / 1000 - state.blocked_since if mine else 0.0
    return Restoration(committed=committed, flag=state.flag.phase, blocked_seconds=blocked)


@step(MetadataStoreTask)
def unblock_leftover(task: MetadataStoreTask) -> bool:
    """Set the flag to FAILED where an earlier run of this migration left writes blocked; return whether it had."""
    if not task.source_has_flag:
        return False
    with task.flag() as flag:
        state = flag.state()
        # An attempt before this one may have moved the claim, and ended before it removed it.
        mine = state.claim is not None and state.claim.is_of(task.attempt)
        blocked = state.blocked_by(task.workflow_id) or mine  # mutant: metadata-store/unblocking-leaves-its-claim
        if blocked:
            flag.unblock()
            # Only the claim says that late copies may arrive: the next start does not wait for them without it.
            if state.claim is not None and state.claim.copying:
                task.await_late_writers(time.monotonic())  # mutant: metadata-store/unblocking-forgets-late-copies
            flag.release()
    return blocked


@step(MetadataStoreTask)
def clear_target(task: MetadataStoreTask) -> int:
    """Remove the copy from the target, then both claims; does nothing if another migration holds one of them.

    A late attempt must not empty the target of a new start. A migration must not empty a target that services use: if
    Pulsar's own command migrated the cluster, or, offline, if services were started there before the commit.

    Raises:
        ApplicationError: `Conflict`: the copy was left, because services use the target, or may use it.
    """
    removed, used = 0, ""
    with task.source_claim() as claim:
        # mutant: metadata-store/late-rollback-clears-the-next-copy
        if (held := claim.read()) is not None and not held.claim.is_of(task.attempt):
            return removed
        # Moved first: no earlier attempt can start to copy after that.
        lost = held is not None and claim.renew().copying
    if task.input.mode is Mode.LIVE:
        # A broker that missed FAILED refuses writes until the flag is repeated.
        rebroadcast_flag(task)
    with task.target_claim() as claim:
        if claim.is_held():
            # Claim before the first delete, to stop bulk tasks of an earlier attempt, which would write again.
            # mutant: metadata-store/rollback-clears-what-another-command-uses
            if claim.claim(None).ours and not (used := _in_use(task)):
                if lost or task.engine.may_lose_tasks:  # mutant: metadata-store/rollback-leaves-late-copies
                    task.await_late_writers(time.monotonic())
                # mutant: metadata-store/rollback-keeps-the-copy
                removed, _ = jobs.clear(task.engine, task.fenced_pair, "target", tag=task.tag())
            claim.release()
    release(task)
    if task.input.mode is Mode.LIVE:
        task.repeat_flag()
    if used:
        raise ApplicationError(used, type=FailureKind.CONFLICT, non_retryable=True)
    return removed


def _in_use(task: MetadataStoreTask) -> str:
    """Return why services may use the target; empty where none can."""
    if task.input.mode is Mode.OFFLINE:
        # In live mode, services may have ephemerals there from a failed attempt.
        with open_reader(task.input.target_url, task.access) as target:
            services = still_in_use(target)
        if services:  # mutant: metadata-store/rollback-clears-what-services-use
            return f"services use the target: {', '.join(services)}"
    if not task.source_has_flag:
        return ""
    with task.flag() as keeper:
        flag = keeper.state().flag
    return "" if flag.phase in OPEN_PHASES else f"services may use the target: {foreign_flag(flag)}"


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


def rebroadcast_flag(task: MetadataStoreTask) -> None:
    """Set the flag again some seconds later, for services that were disconnected when it was set."""
    with task.flag() as flag:
        state = flag.state()
        if state.owned_by(task.workflow_id):
            # Limits the pause even if the clocks of server and worker differ.
            task.context.pause(min(max(state.since_ms / 1000 + REBROADCAST_AFTER - time.time(), 0), REBROADCAST_AFTER))
            flag.rebroadcast()
