"""Copies of changed paths while the source continues to change, and of late writes after the commit.

From PREPARATION on, brokers 4.2 and 5.0 refuse only some metadata writes. Writes through their caches (tenants,
namespaces, policies) still reach the source, and are acknowledged, until each broker has followed COMPLETED.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.metadata_store.context import MetadataStoreTask, name_paths
from activities.metadata_store.source_watch import DirtyPaths, SourceWatch
from clients.pulsar.roots import is_pulsars
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.metadata_store import jobs
from spark.metadata_store.replica import CommitPoint, Replica

FEW_CHANGES = 500
"""Changes that a cut-over copies in well under a second; with fewer, another round is not needed."""

# Brokers may write faster than this copies. The rest stays dirty for the next step.
_MOST_ROUNDS = 20
# How often a path may differ although it did not change.
_MOST_TRIES = 3
# Brokers follow the flag within some tenths of a second; the source must be quiet for longer than that.
_QUIET_SECONDS, _LONGEST_SECONDS, _POLL_SECONDS = 1.5, 30.0, 0.1
# More deletions at one check are not late writes of a service.
_MOST_DELETIONS = 200


class CopiedLateWrites(NamedTuple):
    """Late writes to the source that were copied to the target after the commit.

    Attributes:
        copied: number of copied paths, those of lost attempts at the same step included, as far as this worker knows.
        contested: paths that were written on both sides since the commit, as far as this worker knows them.
        quiet: no service was seen to write to the source any more.
        not_deleted: records that are gone in the source, and were not deleted in the target, as far as this worker
            knows them.
        foreign: those of them that are not Pulsar's: written by a tool, not by a service.
    """

    copied: int
    contested: tuple[bytes, ...]
    quiet: bool
    not_deleted: int = 0
    foreign: int = 0


class Converged(NamedTuple):
    """Result of `converge`: number of rounds, and of records written or deleted in the target."""

    rounds: int
    changed: int


class Changes(NamedTuple):
    """The changes since a transaction.

    Attributes:
        watch: of the source; it had no gap when `dirty` was collected.
        dirty: every change until then that is not known to be equal in the target.
        gap: why a scan was needed; empty without one.
        since_zxid: start of a scan where the watch has a gap.
    """

    watch: SourceWatch
    dirty: DirtyPaths
    gap: str
    since_zxid: int


def all_changes(task: MetadataStoreTask, since_zxid: int) -> Changes:
    """Return the changes that the watch has; where it has a gap, start a new feed and scan by transaction ids."""
    watch, scanned = task.watch, ""
    while True:
        # Collect before reading the gap, which then shows a feed that breaks in between.
        dirty = watch.collect(task.access.common.timeout)
        gap = watch.gap()
        if not gap:
            return Changes(watch, dirty, scanned, since_zxid)
        task.context.check()
        scanned = scanned or gap
        # The feed starts before the scan, so no change is lost between them.
        feed = task.new_feed()
        watch.restart(feed, missed=gap)
        with task.context.waiting(WaitKind.SCAN, f"a scan of the source by transaction ids ({gap})"):
            # mutant: metadata-store/a-gap-is-not-scanned
            watch.fill(feed, jobs.changed_since(task.engine, task.pair, since_zxid, tag=task.tag()))


def converge(
    task: MetadataStoreTask,
    replica: Replica,
    changes: Changes,
    todo: Iterable[bytes],
    *,
    enough: int = 0,
) -> Converged:
    """Write and compare paths, and again those that changed, until at most `enough` differ.

    The rest stays dirty in the watch.

    Args:
        task: the migration.
        replica: writes and compares.
        changes: collected before `todo` was found.
        todo: paths that differ, or may differ.
        enough: number of differences to stop at.

    Raises:
        ApplicationError: `VerificationFailed`, if a path that does not change differs again and again.
    """
    todo, tries, changed = frozenset(todo), 0, 0
    for rounds in range(1, _MOST_ROUNDS + 1):
        task.context.check()
        task.context.progress(ProgressTask.CATCH_UP, ProgressUnit.RECORDS, 0, len(todo), detail=f"round {rounds}")
        done = replica.apply(todo)
        changed += done.written + done.deleted
        changes.watch.add_ephemerals(done.ephemerals)
        # Read both sides again: the stored records count, not the sent ones.
        remaining = frozenset(replica.differences(todo))  # mutant: metadata-store/differences-are-not-read-again
        before = changes.dirty.mark
        changes.watch.mark_clean(todo - remaining, before)
        changes = all_changes(task, changes.since_zxid)
        # A path that changed during the round may differ, and does not count as a failed try.
        stuck = remaining - changes.watch.changed_after(before)
        tries += bool(stuck)
        if tries > _MOST_TRIES:
            raise ApplicationError(
                f"{len(stuck)} records differ in the target after they were written {_MOST_TRIES} times, although they "
                f"did not change: {name_paths(stuck)}. Does something else write to the target?",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        todo = changes.dirty.paths | remaining
        # No scan of another worker finds a path that differs and did not change.
        if len(todo) <= enough and not stuck:  # mutant: metadata-store/a-difference-is-not-repaired-at-once
            return Converged(rounds, changed)
    return Converged(_MOST_ROUNDS, changed)


def follow_late_writes(task: MetadataStoreTask, replica: Replica, commit: CommitPoint) -> CopiedLateWrites:
    """Copy what brokers still write to the source after the commit, until they stop.

    Only records that did not change in the target are written; for other records the target's newer state is kept.

    Args:
        task: the migration.
        replica: writes.
        commit: changes after it are late.
    """
    begun = quiet_since = time.monotonic()
    late = CopiedLateWrites(0, (), quiet=True)
    while (now := time.monotonic()) - quiet_since < _QUIET_SECONDS:
        if now - begun >= _LONGEST_SECONDS:
            return late._replace(quiet=False)
        late = follow_once(task, replica, commit)
        # Contested records stay contested, and must not prolong the wait.
        if not late.quiet:
            quiet_since = time.monotonic()
        task.context.pause(_POLL_SECONDS)
    return late._replace(quiet=True)


def follow_once(
    task: MetadataStoreTask,
    replica: Replica,
    commit: CommitPoint,
    *,
    services: bool = True,
) -> CopiedLateWrites:
    """Copy what brokers wrote to the source since the last check; see `follow_late_writes`.

    If no service uses the source, or many records vanish there at once, nothing is deleted in the target: an operator
    may be cleaning up the old store, while the cluster uses the target.
    """
    changes = all_changes(task, commit.source_zxid)
    late, contested = changes.dirty, changes.watch.contested
    # Kept in the watch: if this attempt's result is lost, the next attempt finds these paths clean.
    copies = changes.watch.late_copies(task.attempt.epoch)
    paths, before = late.paths, copies.services
    deletions = services and (len(paths) <= _MOST_DELETIONS or len(replica.gone(paths, commit)) <= _MOST_DELETIONS)
    own = frozenset(filter(is_pulsars, paths))
    done = replica.apply_untouched(own, commit, deletions=deletions)
    copies.services += done.written + done.deleted  # mutant: metadata-store/a-repeated-check-forgets-copies
    others = replica.apply_untouched(paths - own, commit, deletions=deletions)
    copies.tools += others.written + others.deleted
    contested |= done.contested | others.contested  # mutant: metadata-store/a-repeated-check-forgets-contested-records
    # mutant: metadata-store/a-repeated-check-forgets-what-was-not-deleted
    changes.watch.retained = changes.watch.retained - paths | done.retained | others.retained
    changes.watch.mark_clean(late.paths, late.mark)
    return CopiedLateWrites(
        copies.services + copies.tools,
        tuple(sorted(contested)),
        # During a gap, writes are not seen.
        quiet=copies.services == before and not changes.gap,
        not_deleted=len(changes.watch.retained),
        foreign=copies.tools,
    )
