"""The steps of the metadata store migration from COPYING to the commit, and what follows services that come late."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.convergence import all_changes, converge, follow_late_writes, follow_once
from activities.metadata_store.flag import FlagKeeper, FlagState
from activities.metadata_store.indexed import require_no_indexed
from activities.metadata_store.pre_copy import raise_floor
from activities.metadata_store.repair import repair_many
from activities.metadata_store.rollback import rebroadcast_flag, release
from activities.pulsar.registrations import participants, registered, still_in_use, still_registered
from clients.pulsar.roots import is_pulsars
from clients.store import StoreReader
from clients.stores import last_transaction, open_reader
from models.lifecycle.failures import NAMED, FailureKind
from models.lifecycle.status import WaitKind
from models.metadata_store.input import Mode
from models.metadata_store.results import ChangeCopy, Completion, LateWrites, PreCopy, Verification
from models.migration_flag import FlagPhase
from spark.metadata_store import jobs
from spark.metadata_store.replica import CommitPoint

LATE_PARTICIPANTS_SECONDS = 10.0
"""How long metadata writes stay blocked for services that start meanwhile."""

_PARTICIPANTS_POLL = 0.1
# How long metadata writes stay blocked for writes that Pulsar does not block, after the first of them were copied: so
# many seconds, and so many rounds, each of which may take longer.
_SETTLE_SECONDS, _SETTLE_ROUNDS = 10.0, 3


@step(MetadataStoreTask)
def copy_changes(task: MetadataStoreTask, pre: PreCopy) -> ChangeCopy:
    """Set the flag to COPYING, and copy what changed since PRE_COPY.

    Raises:
        StoreConflict: somebody else moved the flag.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        task.watch_deadline()
        task.context.blocked_since = flag.advance(FlagPhase.COPYING, task.input.target).blocked_since
        changes = all_changes(task, pre.since_zxid)
        task.context.check()
        with task.replica(FlagPhase.COPYING) as replica:
            # Nothing is marked clean here: VERIFY compares these paths, and what changed since, by reading them again.
            # mutant: metadata-store/nothing-is-copied-while-writes-are-blocked
            applied = replica.apply(changes.dirty.paths)
    return ChangeCopy(
        by="scan" if changes.gap else "watch",
        gap=changes.gap,
        changed=len(changes.dirty.paths),
        written=applied.written,
        deleted=applied.deleted,
        seconds=time.monotonic() - begun,
    )


@step(MetadataStoreTask)
def verify(task: MetadataStoreTask, pre: PreCopy) -> Verification:
    """VERIFY: compare what was copied with writes blocked; everything where asked, and offline.

    Raises:
        StoreError: a store failed; the step can be repeated.
        StoreConflict: the migration continued without this attempt, which must not write.
        ApplicationError: `VerificationFailed` where records differ.
    """
    return _verify_live(task, pre) if task.input.mode is Mode.LIVE else _verify_offline(task, pre)


def _verify_live(task: MetadataStoreTask, pre: PreCopy) -> Verification:
    """Compare all that changed since PRE_COPY compared both stores; where asked, both stores whole again.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        task.context.blocked_since = flag.state().blocked_since
    changes = all_changes(task, pre.since_zxid)
    todo = set(changes.dirty.paths)
    compared, repaired, highest = len(todo), 0, 0
    if task.input.full_verify:
        comparison = jobs.compare(task.engine, task.pair, records=pre.compared, tag=task.tag())
        rest = repair_many(task, comparison)
        compared, todo, highest = comparison.records, todo | set(rest.paths), rest.highest
        repaired = comparison.different.paths - len(rest.paths)
    with task.replica(FlagPhase.COPYING) as replica:
        task.context.check()
        different = set(replica.differences(todo))  # mutant: metadata-store/verify-compares-nothing
        # The mark is from before the comparison: what changed while it ran stays dirty.
        changes.watch.mark_clean(todo - different, changes.dirty.mark)
        if different:
            converge(task, replica, changes, different)  # mutant: metadata-store/verify-repairs-nothing
        # mutant: metadata-store/no-line-in-verify
        floor = raise_floor(task, max(replica.highest, highest), pre.version_floor)
    return Verification(
        compared=compared,
        repaired=repaired + len(different),
        whole=task.input.full_verify,
        version_floor=floor,
        seconds=time.monotonic() - begun,
    )


def _verify_offline(task: MetadataStoreTask, pre: PreCopy) -> Verification:
    """Compare both stores whole; nobody writes.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    begun = time.monotonic()
    comparison = jobs.compare(task.engine, task.pair, records=pre.compared, tag=task.tag())
    task.context.check()
    rest = repair_many(task, comparison)
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


@step(MetadataStoreTask)
def complete(task: MetadataStoreTask, pre: PreCopy) -> Completion:
    """COMPLETED: the commit point, and what brokers still wrote to the source until they followed it.

    Raises:
        StoreConflict: another command moved the flag, or this migration continued without this attempt.
        ApplicationError: `SourceInUse` offline, where services registered in the source.
    """
    return _complete_live(task, pre) if task.input.mode is Mode.LIVE else _complete_offline(task)


def _complete_live(task: MetadataStoreTask, pre: PreCopy) -> Completion:
    """Commit: set the flag to COMPLETED, follow late writes, and release the target.

    Raises:
        StoreConflict: somebody else moved the flag.
        ApplicationError: `ParticipantsNotReady` where the copy lacks indexes that services need by now.
    """
    task.urgent = True
    floor = pre.version_floor
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.COMPLETED):
            task.context.blocked_since = flag.state().blocked_since
            _await_late_participants(task)
            if task.input.target_url.scheme == "zk":
                with task.target_claim() as claim:
                    claim.forget_flag()
            settled = _settle(task, flag, pre)
            floor = settled.floor
            # Brokers of 5.0.1 continue writing such records after the flag was set.
            # mutant: metadata-store/indexes-are-not-checked-at-the-commit
            require_no_indexed(task.input, task.runtime.access)
            task.context.check()
            # The check before this is the last moment at which a rollback or a deadline can prevent the commit.
            flag.advance(
                FlagPhase.COMPLETED,
                task.input.target,
                settled_zxid=settled.point.source_zxid,  # mutant: metadata-store/the-commit-does-not-say-where-it-lies
                # mutant: metadata-store/the-commit-does-not-say-what-services-wrote
                settled_target=settled.point.target,
            )
            task.context.blocked_since = None
        # An attempt that finds the commit done takes the claim over, so that the one before it writes no more.
        state = flag.advance(FlagPhase.COMPLETED, task.input.target)
        commit = _commit_point(state, pre, floor)
        # Where the watch was lost with its worker, the source is scanned from the commit's mark on: brokers may write
        # to it still.
        with task.replica(FlagPhase.COMPLETED) as replica:
            late = follow_late_writes(task, replica, commit)
            rebroadcast_flag(task)
            # Who learned of the commit only by the second flag wrote to the source until then.
            later = follow_late_writes(task, replica, commit)
    with task.target_claim() as claim:
        claim.release()
    task.repeat_flag()
    with open_reader(task.input.target_url, task.runtime.access) as target:
        sessions = {service.name: service.owner for service in registered(target)}
    contested = {*late.contested, *later.contested}
    return Completion(
        blocked_seconds=state.since_ms / 1000 - state.blocked_since,
        late_copied=late.copied + later.copied,
        contested=_named(contested),
        contested_count=len(contested),
        quiet=later.quiet,
        sessions=sessions,
    )


class _Settled(NamedTuple):
    """A moment without a known difference of both stores, and the line between version ids then."""

    point: CommitPoint
    floor: int


def _settle(task: MetadataStoreTask, flag: FlagKeeper, pre: PreCopy) -> _Settled:
    """Copy what changes until no record of Pulsar's is known to differ, right before the commit.

    A path that is copied only after the commit may be written there first: one of both writes is lost then. No service
    writes records that are not Pulsar's in the target, so these may change all the time, and are followed late.

    Raises:
        ApplicationError: `VerificationFailed` if services write all the time.
    """
    end, rounds, floor = 0.0, 0, pre.version_floor
    while True:
        # After all that was copied, and before any service writes there.
        target = last_transaction(task.input.target_url, task.runtime.access) or floor
        # Marked before the changes are collected. A worker that takes over after the commit looks for late writes from
        # here on.
        mark = flag.mark()
        changes = all_changes(task, pre.since_zxid)
        dirty = changes.dirty.paths
        unsettled = [path for path in dirty if is_pulsars(path)]
        if not dirty:  # mutant: metadata-store/differences-at-the-commit
            return _Settled(CommitPoint(mark, target), floor)
        # mutant: metadata-store/a-commit-waits-for-writes-without-an-end
        if unsettled and rounds > _SETTLE_ROUNDS and time.monotonic() > end:
            raise ApplicationError(
                f"services change metadata without a pause although writes are blocked; "
                f"{len(unsettled):,} records are not copied yet: {some(unsettled)}. Stop what changes tenants, "
                "namespaces or policies, and start again",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        with task.replica(FlagPhase.COPYING) as replica:
            if unsettled or not rounds:
                converge(task, replica, changes, dirty)
            else:
                # Once, however often they change: what changes from here on is after the mark, and followed late.
                replica.apply(dirty)  # mutant: metadata-store/records-of-others-are-not-copied-before-the-commit
            floor = raise_floor(task, replica.highest, floor)  # mutant: metadata-store/no-line-at-the-commit
        if rounds and not unsettled:
            target = last_transaction(task.input.target_url, task.runtime.access) or floor
            return _Settled(CommitPoint(mark, target), floor)
        # Not before the first round: it may have to scan the source, and to copy much.
        rounds += 1
        if rounds == 1:
            end = time.monotonic() + _SETTLE_SECONDS


def _await_late_participants(task: MetadataStoreTask) -> None:
    """Wait until nobody is left who came after PREPARATION.

    A broker that starts while writes are blocked cannot register, and ends by itself (4.2.4 and 5.0.1). One of 4.2 that
    sees the commit before its end has no target, and would neither read nor write until a restart (#25989). A service
    that takes no part registers at any time: a broker of 4.0, or a bookie with a driver of BookKeeper's own. It would
    continue in the source, and give ids of ledgers that the target gives as well.

    Raises:
        ApplicationError: `ParticipantsNotReady` if one stays.
    """
    begun = time.monotonic()
    source_url, target_url, access = task.input.source_url, task.input.target_url, task.runtime.access
    with open_reader(source_url, access) as source, open_reader(target_url, access) as target:
        while named := _late_services(source, target):
            if time.monotonic() - begun > LATE_PARTICIPANTS_SECONDS:
                raise ApplicationError(
                    f"services started while metadata writes were blocked, and did not join the migration: {named}. "
                    "Start and restart no broker or bookie during a migration (Pulsar 4.2 does not repair that by "
                    "itself), and start the migration again",
                    type=FailureKind.NOT_READY,
                    non_retryable=True,
                )
            task.context.waiting_for(WaitKind.PARTICIPANTS, f"services that started just now: {named}")
            task.context.pause(_PARTICIPANTS_POLL)
    task.context.clear_waiting()


def _late_services(source: StoreReader, target: StoreReader) -> str:
    """Return who uses the source and has not come to the target, in words; empty where there is nobody."""
    services = registered(source)
    names = {service.owner: service.name for service in services}
    # Beneath a chroot participants never unregister.
    started = set[int]() if source.url.root else participants(source)
    late = {names.get(owner, f"session 0x{owner:x}") for owner in started}
    if names:  # mutant: metadata-store/a-commit-that-ignores-late-services
        late |= set(names.values()) - {service.name for service in registered(target)}
    return ", ".join(sorted(late))


@step(MetadataStoreTask)
def follow(task: MetadataStoreTask, pre: PreCopy) -> LateWrites:
    """In the window: copy what services that have not followed the commit wrote to the source, and repeat the flag.

    Raises:
        StoreError: a store failed; the look can be repeated.
    """
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.COMPLETED):
            return LateWrites()
        # At each look: whoever missed it may have been cut off until now, and writes nothing that would show that.
        flag.rebroadcast()  # mutant: metadata-store/checks-do-not-repeat-the-flag
        commit = _commit_point(flag.state(), pre, pre.version_floor)
        services = bool(still_registered(task.input.source_url, task.runtime.access))
        with task.replica(FlagPhase.COMPLETED) as replica:
            late = follow_once(task, replica, commit, services=services)
    return LateWrites(
        copied=late.copied,
        contested=_named(late.contested),
        contested_count=len(late.contested),
        kept=late.kept,
        foreign=late.foreign,
    )


def _named(paths: Iterable[bytes]) -> tuple[str, ...]:
    """The first of these paths: results go through the history, and a broker that missed the flag may write much."""
    return tuple(path.decode(errors="backslashreplace") for path in sorted(paths)[:NAMED])


def _commit_point(state: FlagState, pre: PreCopy, floor: int) -> CommitPoint:
    if state.claim is None:
        return CommitPoint(pre.since_zxid, floor)
    return CommitPoint(state.claim.settled_zxid, state.claim.settled_target or floor)


def _complete_offline(task: MetadataStoreTask) -> Completion:
    """Finish an offline migration: nobody came to use the source meanwhile, and the target is free to be used.

    Raises:
        ApplicationError: `SourceInUse` if services registered in the source.
    """
    with open_reader(task.input.source_url, task.runtime.access) as source:
        running = still_in_use(source)
    if running:
        raise ApplicationError(
            f"services registered in the source while it was copied: {', '.join(running)}. Stop them, and start again",
            type=FailureKind.IN_USE,
            non_retryable=True,
        )
    task.context.check()
    with task.target_claim() as claim:
        if task.input.target_url.scheme == "zk":
            claim.forget_flag()
        claim.release()
    release(task)
    return Completion(blocked_seconds=0.0)
