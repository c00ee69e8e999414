"""Steps of the metadata store migration from COPYING to the commit, and copies of late writes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask, name_paths
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
"""How long metadata writes stay blocked for services that have just started."""

_PARTICIPANTS_POLL = 0.1
# How long the commit waits for writes that Pulsar does not block, after the first of them were copied: at least so many
# seconds and rounds.
_FINAL_COPY_SECONDS, _FINAL_COPY_ROUNDS = 10.0, 3


@step(MetadataStoreTask)
def copy_changes(task: MetadataStoreTask, pre: PreCopy) -> ChangeCopy:
    """Set the flag to COPYING, and copy the changes since PRE_COPY.

    Raises:
        StoreConflict: the flag was not set by this run.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        task.watch_deadline(flag)
        task.context.blocked_since = flag.advance(FlagPhase.COPYING, task.input.target).blocked_since
        # mutant: metadata-store/copying-does-not-wait-for-lost-copies
        with task.only_copies():
            changes = all_changes(task, pre.since_zxid)
            task.context.check()
            with task.replica(FlagPhase.COPYING) as replica:
                # Nothing is marked clean here: VERIFY reads and compares these paths, and later changes.
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
    """Compare the changes with writes blocked; both stores whole with `full_verify`, and offline.

    Raises:
        StoreError: a store failed; the step can be repeated.
        StoreConflict: a newer attempt runs; this one must not write.
        ApplicationError: `VerificationFailed` where records differ.
    """
    return _verify_live(task, pre) if task.input.mode is Mode.LIVE else _verify_offline(task, pre)


def _verify_live(task: MetadataStoreTask, pre: PreCopy) -> Verification:
    """Compare all changes since PRE_COPY; with `full_verify`, compare both stores whole.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    task.urgent = True
    begun = time.monotonic()
    with task.flag() as flag:
        task.watch_deadline(flag)  # mutant: metadata-store/verify-does-not-watch-the-deadline
        task.context.blocked_since = flag.state().blocked_since
        if task.input.full_verify:
            task.stop_earlier_tasks()
        with task.only_copies():  # mutant: metadata-store/verify-does-not-wait-for-lost-copies
            return _compare_changes(task, pre, begun)


def _compare_changes(task: MetadataStoreTask, pre: PreCopy, begun: float) -> Verification:
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
        # The mark is from before the comparison: paths that changed during it stay dirty.
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
    """Compare both stores whole, while no service writes.

    Raises:
        ApplicationError: `VerificationFailed` if a difference stays after its repair.
    """
    begun = time.monotonic()
    task.stop_earlier_tasks()
    with task.only_copies():
        comparison = jobs.compare(task.engine, task.pair, records=pre.compared, tag=task.tag())
        task.context.check()
        rest = repair_many(task, comparison)
        with task.replica() as replica:
            # Repaired once: services are stopped, so a record that differs again has another writer, or cannot be
            # stored.
            replica.apply(rest.paths)
            different = replica.differences(rest.paths)
    if different:
        raise ApplicationError(
            f"{len(different)} records of the target differ after they were written again: {name_paths(different)}",
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
    """Commit, and copy what brokers still write to the source until they follow.

    Raises:
        StoreConflict: another command moved the flag, or a newer attempt runs.
        ApplicationError: `SourceInUse` offline, where services registered in the source.
    """
    return _complete_live(task, pre) if task.input.mode is Mode.LIVE else _complete_offline(task)


def _complete_live(task: MetadataStoreTask, pre: PreCopy) -> Completion:
    """Set the flag to COMPLETED, copy late writes, and release the target.

    Raises:
        StoreConflict: the flag was not set by this run.
        ApplicationError: `ParticipantsNotReady` where the copy lacks indexes that services need now.
    """
    task.urgent = True
    floor = pre.version_floor
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.COMPLETED):
            task.watch_deadline(flag)  # mutant: metadata-store/the-commit-does-not-watch-the-deadline
            task.context.blocked_since = flag.state().blocked_since
            _await_late_participants(task)
            if task.input.target_url.scheme == "zk":
                with task.target_claim() as claim:
                    claim.forget_flag()
            with task.only_copies():  # mutant: metadata-store/the-commit-does-not-wait-for-lost-copies
                equal = _copy_until_equal(task, flag, pre)
            floor = equal.floor
            # Brokers of 5.0.1 continue writing such records after the flag was set.
            # mutant: metadata-store/indexes-are-not-checked-at-the-commit
            require_no_indexed(task.input, task.access)
            task.context.check()
            # The check above is the last chance of a rollback or a deadline to prevent the commit.
            flag.advance(
                FlagPhase.COMPLETED,
                task.input.target,
                copied_zxid=equal.point.source_zxid,  # mutant: metadata-store/the-commit-does-not-say-where-it-lies
                # mutant: metadata-store/the-commit-does-not-say-what-services-wrote
                target_mark=equal.point.target,
            )
            task.context.blocked_since = None
        # An attempt that finds the commit done takes over the claim, so that the previous one stops writing.
        state = flag.advance(FlagPhase.COMPLETED, task.input.target)
        commit = _commit_point(state, pre, floor)
        # If the watch was lost with its worker, the source is scanned from the commit's mark on.
        with task.only_copies(), task.replica(FlagPhase.COMPLETED) as replica:
            follow_late_writes(task, replica, commit)
            rebroadcast_flag(task)
            # Services that missed the first setting of the flag wrote to the source until this one.
            late = follow_late_writes(task, replica, commit)
    with task.target_claim() as claim:
        claim.release()
    task.repeat_flag()
    with open_reader(task.input.target_url, task.access) as target:
        sessions = {service.name: service.owner for service in registered(target)}
    return Completion(
        blocked_seconds=state.since_ms / 1000 - state.blocked_since,
        late_copied=late.copied,
        contested=_named(late.contested),
        contested_count=len(late.contested),
        quiet=late.quiet,
        sessions=sessions,
    )


class _EqualStores(NamedTuple):
    """The point at which no difference of both stores is known, and the version floor then."""

    point: CommitPoint
    floor: int


def _copy_until_equal(task: MetadataStoreTask, flag: FlagKeeper, pre: PreCopy) -> _EqualStores:
    """Copy changes right before the commit, until no record of Pulsar is known to differ.

    If a path is copied only after the commit, a service may write it in the target first, and one of both writes is
    lost. Services do not write records of other programs in the target. So these may change all the time, and are
    copied after the commit.

    Raises:
        ApplicationError: `VerificationFailed` if services write all the time.
    """
    end, rounds, floor = 0.0, 0, pre.version_floor
    while True:
        # Read after all copies to the target, and before any service writes there.
        target = last_transaction(task.input.target_url, task.access) or floor
        # Mark before collecting. A worker that takes over after the commit searches late writes from here on.
        mark = flag.mark()
        changes = all_changes(task, pre.since_zxid)
        dirty = changes.dirty.paths
        differing = [path for path in dirty if is_pulsars(path)]
        if not dirty:  # mutant: metadata-store/differences-at-the-commit
            return _EqualStores(CommitPoint(mark, target), floor)
        # mutant: metadata-store/a-commit-waits-for-writes-without-an-end
        if differing and rounds > _FINAL_COPY_ROUNDS and time.monotonic() > end:
            raise ApplicationError(
                f"services change metadata without a pause although writes are blocked; "
                f"{len(differing):,} records are not copied yet: {name_paths(differing)}. Stop what changes tenants, "
                "namespaces or policies, and start again",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        with task.replica(FlagPhase.COPYING) as replica:
            if differing or not rounds:
                converge(task, replica, changes, dirty)
            else:
                # Records of other programs are copied once: their changes after the mark are copied after the commit.
                replica.apply(dirty)  # mutant: metadata-store/records-of-others-are-not-copied-before-the-commit
            floor = raise_floor(task, replica.highest, floor)  # mutant: metadata-store/no-line-at-the-commit
        if rounds and not differing:
            target = last_transaction(task.input.target_url, task.access) or floor
            return _EqualStores(CommitPoint(mark, target), floor)
        # Not before the first round, which may scan the source and copy much.
        rounds += 1
        if rounds == 1:
            end = time.monotonic() + _FINAL_COPY_SECONDS


def _await_late_participants(task: MetadataStoreTask) -> None:
    """Wait until no service that started after PREPARATION is left.

    A broker that starts while writes are blocked cannot register, and exits (4.2.4 and 5.0.1). A broker of 4.2 that
    sees the commit before it exits has no target, and neither reads nor writes until a restart (#25989). A service that
    takes no part registers at any time: a broker of 4.0, or a bookie with BookKeeper's own driver. It would stay on the
    source, and assign ledger ids that the target also assigns.

    Raises:
        ApplicationError: `ParticipantsNotReady` if such a service stays.
    """
    begun = time.monotonic()
    source_url, target_url, access = task.input.source_url, task.input.target_url, task.access
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
    """Return the services that use the source and are not in the target, in words; empty without any."""
    services = registered(source)
    names = {service.owner: service.name for service in services}
    # Below a chroot participants never unregister.
    started = set[int]() if source.url.root else participants(source)
    late = {names.get(owner, f"session 0x{owner:x}") for owner in started}
    if names:  # mutant: metadata-store/a-commit-that-ignores-late-services
        late |= set(names.values()) - {service.name for service in registered(target)}
    return ", ".join(sorted(late))


@step(MetadataStoreTask)
def follow(task: MetadataStoreTask, pre: PreCopy) -> LateWrites:
    """Copy late writes to the source, and set the flag again, at each check in the window.

    Raises:
        StoreError: a store failed; the step can be repeated.
    """
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.COMPLETED):
            return LateWrites()
        # At each check: a service that missed the flag may have been disconnected until now, without any write.
        flag.rebroadcast()  # mutant: metadata-store/checks-do-not-repeat-the-flag
        commit = _commit_point(flag.state(), pre, pre.version_floor)
        services = bool(still_registered(task.input.source_url, task.access))
        # mutant: metadata-store/late-writes-do-not-wait-for-lost-copies
        with task.only_copies(), task.replica(FlagPhase.COMPLETED) as replica:
            late = follow_once(task, replica, commit, services=services)
    return LateWrites(
        copied=late.copied,
        contested=_named(late.contested),
        contested_count=len(late.contested),
        not_deleted=late.not_deleted,
        foreign=late.foreign,
    )


def _named(paths: Iterable[bytes]) -> tuple[str, ...]:
    """Return the first of these paths: results are stored in the history, and a broker may write many late records."""
    return tuple(path.decode(errors="backslashreplace") for path in sorted(paths)[:NAMED])


def _commit_point(state: FlagState, pre: PreCopy, floor: int) -> CommitPoint:
    if state.claim is None:
        return CommitPoint(pre.since_zxid, floor)
    return CommitPoint(state.claim.copied_zxid, state.claim.target_mark or floor)


def _complete_offline(task: MetadataStoreTask) -> Completion:
    """Finish an offline migration if no service has registered in the source, and release both stores.

    Raises:
        ApplicationError: `SourceInUse` if services registered in the source.
    """
    with open_reader(task.input.source_url, task.access) as source:
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
