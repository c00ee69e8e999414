"""Bring changed paths in line while the source continues changing, and after the commit, when late writes trickle in.

Brokers 4.2 and 5.0 refuse only a part of the metadata writes from PREPARATION on: what goes through their caches
(tenants, namespaces, policies) still reaches the source, and is acknowledged, until each broker has followed COMPLETED.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.source_watch import DirtyPaths, SourceWatch
from clients.pulsar.roots import is_pulsars
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.metadata_store import jobs
from spark.metadata_store.replica import CommitPoint, Replica

FEW_CHANGES = 500
"""Changes that a cutover copies in well under a second; fewer need no further round."""

# Brokers may write faster than this catches up. What is left stays dirty, and the next step takes it over.
_MOST_ROUNDS = 20
# How often a path may differ although nobody changed it.
_MOST_TRIES = 3
# Brokers follow the flag within some tenths of a second; the source must be quiet for longer than that.
_QUIET_SECONDS, _LONGEST_SECONDS, _POLL_SECONDS = 1.5, 30.0, 0.1
# More deletions at one look are no late writes of a service.
_MOST_DELETIONS = 200


class Late(NamedTuple):
    """What came after the commit.

    Attributes:
        copied: paths copied.
        contested: paths that were written on both sides.
        quiet: whether no service writes to the source any more, as far as was seen.
        kept: records that are gone in the source, and were not deleted for that.
        foreign: how many of the copied paths are not Pulsar's: a tool wrote them, and not a service.
    """

    copied: int
    contested: tuple[bytes, ...]
    quiet: bool
    kept: int = 0
    foreign: int = 0


class Converged(NamedTuple):
    """How paths were brought in line: rounds that it took, and records written or deleted in the target."""

    rounds: int
    changed: int


class Changes(NamedTuple):
    """All that changed since a transaction.

    Attributes:
        watch: of the source; it had no gap when `dirty` was taken from it.
        dirty: every change that was committed until then, and that is not known to be equal in the target.
        gap: why a scan was necessary; empty if none was.
        since_zxid: what a scan looks for where the watch has a gap.
    """

    watch: SourceWatch
    dirty: DirtyPaths
    gap: str
    since_zxid: int


def all_changes(task: MetadataStoreTask, since_zxid: int) -> Changes:
    """What the watch of the source tells; where it has a gap, a new feed, and then a scan by transaction ids."""
    watch, scanned = task.watch, ""
    while True:
        # Collected before the gap is asked for: a feed that breaks in between shows there.
        dirty = watch.collect(task.runtime.access.timeout)
        gap = watch.gap()
        if not gap:
            return Changes(watch, dirty, scanned, since_zxid)
        task.context.check()
        scanned = scanned or gap
        # The feed runs before the scan begins: no change falls between the two.
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
    """Write and compare paths, and again what changed meanwhile, until no more than `enough` are left.

    What is left stays dirty in the watch.

    Args:
        task: the migration.
        replica: writes and compares.
        changes: collected before `todo` was found.
        todo: paths that differ, or may differ.
        enough: see above.

    Raises:
        ApplicationError: `VerificationFailed`, if a path differs again and again though nobody changed it.
    """
    todo, tries, changed = frozenset(todo), 0, 0
    for rounds in range(1, _MOST_ROUNDS + 1):
        task.context.check()
        task.context.progress(ProgressTask.CATCH_UP, ProgressUnit.RECORDS, 0, len(todo), detail=f"round {rounds}")
        done = replica.apply(todo)
        changed += done.written + done.deleted
        changes.watch.add_ephemerals(done.ephemerals)
        # Both sides are read again: what counts is what stands there, and not what was sent.
        remaining = frozenset(replica.differences(todo))  # mutant: metadata-store/differences-are-not-read-again
        before = changes.dirty.mark
        changes.watch.mark_clean(todo - remaining, before)
        changes = all_changes(task, changes.since_zxid)
        # A path that changed during the round differs with good reason, and does not count as a failed try.
        stuck = remaining - changes.watch.told_after(before)
        tries += bool(stuck)
        if tries > _MOST_TRIES:
            raise ApplicationError(
                f"{len(stuck)} records differ in the target after they were written {_MOST_TRIES} times, though nobody "
                f"changed them: {some(stuck)}. Does something else write to the target?",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        todo = changes.dirty.paths | remaining
        if len(todo) <= enough:
            return Converged(rounds, changed)
    return Converged(_MOST_ROUNDS, changed)


def follow_late_writes(task: MetadataStoreTask, replica: Replica, commit: CommitPoint) -> Late:
    """After the commit, copy what brokers still wrote to the source, until it is quiet there.

    Only records that nobody touched in the target are written; for the others the target's newer state stands.

    Args:
        task: the migration.
        replica: writes.
        commit: what came behind it is late.
    """
    copied = 0
    contested: set[bytes] = set()
    begun = quiet_since = time.monotonic()
    while (now := time.monotonic()) - quiet_since < _QUIET_SECONDS:
        if now - begun >= _LONGEST_SECONDS:
            return Late(copied, tuple(sorted(contested)), quiet=False)
        late = follow_once(task, replica, commit)
        copied += late.copied
        contested.update(late.contested)
        # What is contested stays so, and must not prolong the wait.
        if not late.quiet:
            quiet_since = time.monotonic()
        task.context.pause(_POLL_SECONDS)
    return Late(copied, tuple(sorted(contested)), quiet=True)


def follow_once(
    task: MetadataStoreTask,
    replica: Replica,
    commit: CommitPoint,
    *,
    services: bool = True,
) -> Late:
    """Copy what brokers wrote to the source since the last look; see `follow_late_writes`.

    Where no service is left in the source, or much is gone there at once, nothing is deleted in the target: somebody
    tidies the old store up, by hand perhaps, and the cluster lives in the target.
    """
    changes = all_changes(task, commit.source_zxid)
    late = changes.dirty
    if not late.paths:
        # Whether it was quiet during a gap, nobody knows.
        return Late(0, (), quiet=not changes.gap)
    paths = late.paths
    deletions = services and (len(paths) <= _MOST_DELETIONS or len(replica.gone(paths, commit)) <= _MOST_DELETIONS)
    own = frozenset(filter(is_pulsars, paths))
    done = replica.apply_untouched(own, commit, deletions=deletions)
    others = replica.apply_untouched(paths - own, commit, deletions=deletions)
    changes.watch.mark_clean(late.paths, late.mark)
    copied, foreign = done.written + done.deleted, others.written + others.deleted
    contested = tuple(sorted(done.contested | others.contested))
    return Late(
        copied + foreign,
        contested,
        quiet=not copied and not changes.gap,
        kept=len(done.retained) + len(others.retained),
        foreign=foreign,
    )
