"""CATCH_UP of the metadata store migration: the copy is kept up to date while the cut-over waits."""

from __future__ import annotations

import time

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.convergence import FEW_CHANGES, all_changes, converge
from activities.metadata_store.pre_copy import raise_floor
from models.metadata_store.results import CatchUp, PreCopy
from models.migration_flag import OPEN_PHASES
from spark.metadata_store import jobs

# What the cut-over would notice. A source that changes so much in the moment before it is caught up with again.
_MANY_CHANGES = 4 * FEW_CHANGES
_LOOK_EVERY = 1.0


@step(MetadataStoreTask)
def catch_up(task: MetadataStoreTask, pre: PreCopy, seconds: float) -> CatchUp:
    """CATCH_UP: bring in line what changed, and continue with that for some seconds; brokers write meanwhile.

    A worker that takes over the watch of another one scans the source, and then answers at once, so that the workflow
    knows whom to ask next.

    Raises:
        StoreConflict: the migration continued without this attempt, which must not write.
        ApplicationError: records differ though nobody changed them.
    """
    end = time.monotonic() + (seconds if pre.worker_queue == task.runtime.queue else 0.0)
    since, changed, gap, highest = _caught_up(task, pre.since_zxid)
    while (left := end - time.monotonic()) > 0:
        task.context.pause(min(_LOOK_EVERY, left))
        # Sessions cost the source a transaction each: few changes wait for the end of the round.
        if len(task.watch.collect(task.runtime.access.timeout).paths) > FEW_CHANGES or task.watch.gap():
            since, more, scanned, version = _caught_up(task, since)
            changed, gap, highest = changed + more, gap or scanned, max(highest, version)
    # A record that changes very often has outrun the margin meanwhile.
    floor = raise_floor(task, highest, pre.version_floor)  # mutant: metadata-store/no-line-after-catching-up
    return CatchUp(since_zxid=since, changed=changed, gap=gap, version_floor=floor, worker_queue=task.runtime.queue)


def not_caught_up(task: MetadataStoreTask) -> str:
    """Why the cut-over would have to copy much, or to scan, with writes blocked; empty if it would not."""
    watch = task.watch
    dirty = watch.collect(task.runtime.access.timeout)
    if gap := watch.gap():
        return gap
    return f"{len(dirty.paths):,} records changed since" if len(dirty.paths) > _MANY_CHANGES else ""


def _caught_up(task: MetadataStoreTask, since_zxid: int) -> tuple[int, int, str, int]:
    """One round: the transaction id up to which all is in line, how many changed, the gap, the highest version."""
    watch, highest, changed = task.watch, 0, 0
    with task.flag() as flag:
        # Marked before the changes are collected: all up to here are among them. Every earlier attempt stops.
        mark = flag.mark()
        flag.require(*OPEN_PHASES)
        changes = all_changes(task, since_zxid)
        if changes.gap:
            # Those that come later are told by the watch.
            watch.add_ephemerals(jobs.ephemerals(task.engine, task.pair, tag=task.tag()))
        if changes.dirty.paths:
            with task.replica(*OPEN_PHASES) as replica:
                # What comes meanwhile counts too.
                changed = converge(task, replica, changes, changes.dirty.paths, enough=FEW_CHANGES).changed
                highest = replica.highest
    settled = not watch.told_until(changes.dirty.mark)
    # mutant: metadata-store/a-round-forgets-the-mark
    return mark if settled else since_zxid, changed, changes.gap, highest


@step(MetadataStoreTask, reads_only=True)
def forget_watch(task: MetadataStoreTask) -> None:
    """End the watch of the source that this worker holds; harmless where it holds none."""
    task.forget_watch()
