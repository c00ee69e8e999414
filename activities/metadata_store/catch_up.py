"""CATCH_UP of the metadata store migration: keeps the copy up to date while the cut-over waits."""

from __future__ import annotations

import time

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.convergence import FEW_CHANGES, all_changes, converge
from activities.metadata_store.pre_copy import raise_floor
from models.metadata_store.results import CatchUp, PreCopy
from models.migration_flag import OPEN_PHASES
from spark.metadata_store import jobs

# With more changes than this, the cut-over waits for another round, since it would block writes for longer.
_MANY_CHANGES = 4 * FEW_CHANGES
_POLL_SECONDS = 1.0
# Each copy opens a session, which costs the source a transaction. So a few changes wait for others, but no round lasts
# that long: a verification takes older differences for lost changes.
_LONGEST_LAG = 10.0


@step(MetadataStoreTask)
def catch_up(task: MetadataStoreTask, pre: PreCopy, seconds: float) -> CatchUp:
    """Copy changes for some seconds, while brokers write.

    A worker that takes over the watch of another one scans the source, and then returns at once, so that the workflow
    calls this worker next.

    Raises:
        StoreConflict: a newer attempt runs; this one must not write.
        ApplicationError: records differ although they did not change.
    """
    end = time.monotonic() + (seconds if pre.worker_queue == task.runtime.queue else 0.0)
    since, changed, gap, highest = _catch_up_once(task, pre.since_zxid)
    copied = time.monotonic()
    while (remaining := end - time.monotonic()) > 0:
        task.context.pause(min(_POLL_SECONDS, remaining))
        enough = 0 if time.monotonic() - copied > _LONGEST_LAG else FEW_CHANGES
        if len(task.watch.collect(task.access.common.timeout).paths) > enough or task.watch.gap():
            since, more, scanned, version = _catch_up_once(task, since)
            changed, gap, highest = changed + more, gap or scanned, max(highest, version)
            copied = time.monotonic()
    # A record that changes very often may have a version above the margin now.
    floor = raise_floor(task, highest, pre.version_floor)  # mutant: metadata-store/no-line-after-catching-up
    return CatchUp(since_zxid=since, changed=changed, gap=gap, version_floor=floor, worker_queue=task.runtime.queue)


def not_caught_up(task: MetadataStoreTask) -> str:
    """Return why the cut-over would scan, or copy much, with writes blocked; empty if it would not."""
    watch = task.watch
    dirty = watch.collect(task.access.common.timeout)
    if gap := watch.gap():
        return gap
    return f"{len(dirty.paths):,} records changed since" if len(dirty.paths) > _MANY_CHANGES else ""


def _catch_up_once(task: MetadataStoreTask, since_zxid: int) -> tuple[int, int, str, int]:
    """Copy changes in one round.

    Returns:
        The transaction id up to which the target is equal, the number of changes, the gap, and the highest version.
    """
    watch, highest, changed = task.watch, 0, 0
    # A scan does not find a record that a late copy brings back afterwards.
    # mutant: metadata-store/catching-up-does-not-wait-for-lost-copies
    with task.flag() as flag, task.only_copies():
        # Mark before collecting, so that all changes up to the mark are collected. Every earlier attempt stops.
        mark = flag.mark()
        flag.require(*OPEN_PHASES)
        changes = all_changes(task, since_zxid)
        if changes.gap:
            # The new watch reports only ephemerals that are created from now on.
            watch.add_ephemerals(jobs.ephemerals(task.engine, task.pair, tag=task.tag()))
        if changes.dirty.paths:
            with task.replica(*OPEN_PHASES) as replica:
                # Changes that come during the round count too.
                changed = converge(task, replica, changes, changes.dirty.paths, enough=FEW_CHANGES).changed
                highest = replica.highest
    complete = not watch.changed_until(changes.dirty.mark)
    # mutant: metadata-store/a-round-forgets-the-mark
    return mark if complete else since_zxid, changed, changes.gap, highest


@step(MetadataStoreTask, reads_only=True)
def forget_watch(task: MetadataStoreTask) -> None:
    """End this worker's watch of the source; safe without one."""
    task.forget_watch()
