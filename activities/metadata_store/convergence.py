"""Bring changed paths in line while the source goes on changing, and after the commit, when late writes trickle in.

Pulsar 5.0.0-M1 refuses only a part of the metadata writes from PREPARATION on: what goes through its caches (tenants,
namespaces, policies) still reaches the source, and is acknowledged, until each broker has followed COMPLETED.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import SourceWatch
from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.replica import Replica
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.metadata_store import jobs

_MOST_ROUNDS = 20
_FIRST_TRIES = 3
# Brokers follow the flag within some tenths of a second; the source must be quiet for longer than that.
_QUIET_SECONDS, _LONGEST_SECONDS, _POLL_SECONDS = 1.5, 30.0, 0.1


class Late(NamedTuple):
    """What came after the commit: paths copied, and paths that were written on both sides."""

    copied: int
    contested: tuple[bytes, ...]


def whole_watch(task: MetadataStoreTask, context: ActivityContext, since_zxid: int) -> tuple[SourceWatch, str]:
    """The watch of the source without a gap: where there is one, a new watch, and then a scan by transaction ids.

    Returns:
        The watch, and why a scan was necessary; empty if it was not.
    """
    watch = task.watch or task.new_watch()
    gap = watch.gap()
    if gap:
        watch.restart(task.new_feed(), missed=gap)
        with context.waiting(WaitKind.SCAN, f"a scan of the source by transaction ids ({gap})"):
            watch.dirty_paths |= jobs.changed_since(task.engine, task.pair, since_zxid, tag=task.tag(context))
        watch.missed = ""
    watch.collect(task.runtime.access.timeout)
    return watch, gap


def converge(
    task: MetadataStoreTask,
    context: ActivityContext,
    replica: Replica,
    watch: SourceWatch,
    todo: set[bytes],
    *,
    enough: int = 0,
) -> int:
    """Write and compare paths, and again what changed meanwhile, until no more than `enough` are left.

    What is left stays in `watch.unsettled`. Returns the number of rounds.

    Raises:
        ApplicationError: `VerificationFailed`, if a path differs again and again though nobody changed it.
    """
    tries = 0
    for rounds in range(1, _MOST_ROUNDS + 1):
        context.check()
        context.progress(ProgressTask.CATCH_UP, ProgressUnit.RECORDS, 0, len(todo), detail=f"round {rounds}")
        watch.ephemerals |= replica.apply(todo).ephemerals
        remaining = set(replica.differences(todo))
        watch.dirty_paths -= todo - remaining
        changed = set(watch.collect(task.runtime.access.timeout))
        tries += bool(remaining - changed)
        # Without a whole watch nobody knows what changed: then a few tries decide.
        if remaining - changed and (not watch.gap() or tries > _FIRST_TRIES):
            raise ApplicationError(
                f"{len(remaining - changed)} records differ in the target after they were written again, though nobody "
                f"changed them: {some(remaining - changed)}. Does something else write to the target?",
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )
        todo = changed | remaining
        if len(todo) <= enough:
            return rounds
    return _MOST_ROUNDS


def follow_late_writes(
    task: MetadataStoreTask, context: ActivityContext, replica: Replica, watch: SourceWatch, floor: int
) -> Late:
    """After the commit, copy what brokers still wrote to the source, until it is quiet there.

    Only records that nobody touched in the target are written; for the others the target's newer state stands. `floor`:
    see `Replica.apply_untouched`.
    """
    copied = 0
    contested: set[bytes] = set()
    begun = quiet_since = time.monotonic()
    while (now := time.monotonic()) - quiet_since < _QUIET_SECONDS and now - begun < _LONGEST_SECONDS:
        late = set(watch.collect(task.runtime.access.timeout))
        if late:
            done = replica.apply_untouched(late, floor)
            copied += done.written + done.deleted
            contested |= done.contested
            watch.dirty_paths -= late
            if done.written or done.deleted:
                quiet_since = time.monotonic()
        context.pause(_POLL_SECONDS)
    return Late(copied, tuple(sorted(contested)))
