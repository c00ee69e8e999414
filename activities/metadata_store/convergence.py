"""Bring changed paths in line while the source goes on changing, and after the commit, when late writes trickle in.

Pulsar 5.0.0-M1 refuses only a part of the metadata writes from PREPARATION on: what goes through its caches (tenants,
namespaces, policies) still reaches the source, and is acknowledged, until each broker has followed COMPLETED.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.source_watch import DirtyPaths, SourceWatch
from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.replica import Replica
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.metadata_store import jobs

# Brokers may write faster than this catches up. What is left stays dirty, and the next step takes it over.
_MOST_ROUNDS = 20
# How often a path may differ although nobody changed it.
_MOST_TRIES = 3
# Brokers follow the flag within some tenths of a second; the source must be quiet for longer than that.
_QUIET_SECONDS, _LONGEST_SECONDS, _POLL_SECONDS = 1.5, 30.0, 0.1


class Late(NamedTuple):
    """What came after the commit: paths copied, and paths that were written on both sides."""

    copied: int
    contested: tuple[bytes, ...]


class Changes(NamedTuple):
    """All that changed since a transaction.

    Attributes:
        watch: of the source; it had no gap when `dirty` was taken from it.
        dirty: every change that was committed until then, and that is not known to be equal in the target.
        gap: why a scan was necessary; empty if none was.
    """

    watch: SourceWatch
    dirty: DirtyPaths
    gap: str


def all_changes(task: MetadataStoreTask, context: ActivityContext, since_zxid: int) -> Changes:
    """What the watch of the source tells; where it has a gap, a new feed, and then a scan by transaction ids."""
    watch, scanned = task.watch, ""
    while True:
        # Collected before the gap is asked for: a feed that breaks in between shows there.
        dirty = watch.collect(task.runtime.access.timeout)
        gap = watch.gap()
        if not gap:
            return Changes(watch, dirty, scanned)
        context.check()
        scanned = scanned or gap
        # The feed runs before the scan begins: no change falls between the two.
        feed = task.new_feed()
        watch.restart(feed, missed=gap)
        with context.waiting(WaitKind.SCAN, f"a scan of the source by transaction ids ({gap})"):
            watch.fill(feed, jobs.changed_since(task.engine, task.pair, since_zxid, tag=task.tag(context)))


def converge(
    task: MetadataStoreTask,
    context: ActivityContext,
    replica: Replica,
    todo: DirtyPaths,
    since_zxid: int,
    *,
    enough: int = 0,
) -> int:
    """Write and compare paths, and again what changed meanwhile, until no more than `enough` are left.

    What is left stays dirty in the watch.

    Args:
        task: the migration.
        context: told of the progress.
        replica: writes and compares.
        todo: what differs, or may differ.
        since_zxid: what a scan looks for where the watch has a gap.
        enough: see above.

    Returns:
        The number of rounds.

    Raises:
        ApplicationError: `VerificationFailed`, if a path differs again and again though nobody changed it.
    """
    watch, tries = task.watch, 0
    for rounds in range(1, _MOST_ROUNDS + 1):
        context.check()
        context.progress(ProgressTask.CATCH_UP, ProgressUnit.RECORDS, 0, len(todo.paths), detail=f"round {rounds}")
        watch.add_ephemerals(replica.apply(todo.paths).ephemerals)
        # Both sides are read again: what counts is what stands there, and not what was sent.
        remaining = set(replica.differences(todo.paths))
        watch.mark_clean(todo.paths - remaining, todo.mark)
        now = all_changes(task, context, since_zxid).dirty
        # A path that changed during the round differs with good reason, and does not count as a failed try.
        stuck = remaining - watch.told_after(todo.mark)
        tries += bool(stuck)
        if tries > _MOST_TRIES:
            raise ApplicationError(
                f"{len(stuck)} records differ in the target after they were written {_MOST_TRIES} times, though nobody "
                f"changed them: {some(stuck)}. Does something else write to the target?",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        todo = DirtyPaths(now.paths | remaining, now.mark)
        if len(todo.paths) <= enough:
            return rounds
    return _MOST_ROUNDS


def follow_late_writes(
    task: MetadataStoreTask, context: ActivityContext, replica: Replica, since_zxid: int, floor: int
) -> Late:
    """After the commit, copy what brokers still wrote to the source, until it is quiet there.

    Only records that nobody touched in the target are written; for the others the target's newer state stands.

    Args:
        task: the migration.
        context: asked whether to go on.
        replica: writes.
        since_zxid: what a scan looks for where the watch has a gap.
        floor: see `Replica.apply_untouched`.
    """
    copied = 0
    contested: set[bytes] = set()
    begun = quiet_since = time.monotonic()
    while (now := time.monotonic()) - quiet_since < _QUIET_SECONDS and now - begun < _LONGEST_SECONDS:
        changes = all_changes(task, context, since_zxid)
        late = changes.dirty
        if changes.gap:
            # Whether it was quiet during the gap, nobody knows.
            quiet_since = time.monotonic()
        if late.paths:
            done = replica.apply_untouched(late.paths, floor)
            copied += done.written + done.deleted
            contested |= done.contested
            changes.watch.mark_clean(late.paths, late.mark)
            # What is contested stays so, and must not prolong the wait.
            if done.written or done.deleted:
                quiet_since = time.monotonic()
        context.pause(_POLL_SECONDS)
    return Late(copied, tuple(sorted(contested)))
