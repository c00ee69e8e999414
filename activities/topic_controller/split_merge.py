"""A split or a merge, in the proposal's order (PIP-468, "Split Protocol" and "Merge Protocol").

Cursors of the new segments come first, then the end of the old segments, then the layout. After a crash between two of
these steps, each message still has a cursor. Once the next attempt has continued, each hash has a segment.
"""

from __future__ import annotations

import time
from contextlib import suppress

from activities.lifecycle.parallel import run_both
from activities.lifecycle.step import step
from activities.topic_controller.context import ControllerTask, LeaderTask
from activities.topic_controller.names import segment_topic
from activities.topic_controller.publish import ensure_layout_topic, publish
from activities.topic_controller.segments import (
    SegmentsTaken,
    copy_grants,
    create_segments,
    delete_topic,
    ensure_cursors,
    is_terminated,
    reload_segments,
    taken_by_others,
    terminate_segment,
)
from clients.errors import RetryableError, StoreConflict
from clients.pulsar.admin.errors import AdminError, AdminNotFound
from models.segments.segment import LayoutError
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.state import CommittedChange, PreparedChange


@step(LeaderTask)
def prepare(task: LeaderTask, mutation: Mutation) -> PreparedChange:
    """Record the change, and create the new segments with a cursor of each subscription.

    Nothing is done, and the result says so, if the change does not fit the layout, or the layout is not the one for
    which it was made. If brokers refuse a segment, the change is abandoned, as long as no segment is terminated.

    Raises:
        StoreConflict: the topic is being deleted.
    """
    try:
        record = task.records.change(
            lambda layout: _with_pending(layout, mutation) if _fits(layout, mutation) else layout
        )
    except LayoutError as error:
        return PreparedChange(refused=str(error), fault=error.fault)
    # A workflow that was reset may repeat a change that was made long ago.
    if not _is_recorded(record, mutation) or record.epoch > mutation.epoch + 1:
        return PreparedChange(record=record)
    if record.last == mutation:
        return PreparedChange(first_segment=mutation.first_segment(record))
    try:
        record = _create_children(task, mutation, record)
    except RetryableError:
        raise
    except AdminError as refusal:
        # For example a limit of the namespace: report it at once, and let other changes continue.
        return PreparedChange(refused=str(refusal), record=_abandon(task, mutation, refusal))
    if record.pending != mutation:
        return PreparedChange(record=record)
    return PreparedChange(first_segment=mutation.first_segment(record))


@step(LeaderTask)
def seal(task: LeaderTask, mutation: Mutation) -> None:
    """Terminate the old segments, one after the other.

    Raises:
        StoreConflict: another change is in progress.
    """
    record = _read_in_progress(task, mutation)
    if record.last == mutation:
        return
    for segment in mutation.old_segments(record):
        try:
            terminate_segment(task, segment)
        except AdminNotFound:
            # Its topic was deleted. It must exist and be terminated, or producers would auto-create it, and continue.
            create_segments(task, [segment], task.records.subscriptions())
            terminate_segment(task, segment)


@step(LeaderTask)
def commit(task: LeaderTask, mutation: Mutation) -> CommittedChange:
    """Replace the old layout by the new one, and publish it.

    Raises:
        StoreConflict: another change is in progress.
    """
    now = time.time_ns() // 1_000_000

    def with_commit(layout: ControlledLayout) -> ControlledLayout:
        if layout.last == mutation:
            return layout
        _require_pending(layout, mutation)
        return layout.with_commit(now)

    record = task.records.change(with_commit)
    complete_last(task, record)
    if record.epoch != mutation.epoch + 1:
        return CommittedChange(record=record)
    return CommittedChange(at_ms=record.segments[mutation.segments[0]].sealed_at_ms)


def complete_last(task: ControllerTask, record: ControlledLayout) -> None:
    """Complete the newest change, and publish it; idempotent.

    Subscriptions of the old segments, also those that were created after the preparation, get cursors on the new
    segments. Their consumers find these once the layout is published.
    """
    if record.last is None:
        publish(task)
        return
    ids = {*record.last.segments}
    old = [record.segments[segment_id] for segment_id in ids & {*record.segments}]
    new = [segment for segment in record.segments.values() if {*segment.parent_ids} == ids]
    subscriptions = task.records.subscriptions()
    run_both(lambda: ensure_cursors(task, new, subscriptions, like=old), lambda: ensure_layout_topic(task))
    try:
        # After reading the old segments, which loads them, and before the publication, after which writers look them
        # up.
        reload_segments(task, old)
    finally:
        publish(task, ready=True)


def _create_children(task: ControllerTask, mutation: Mutation, record: ControlledLayout) -> ControlledLayout:
    """Create the new segments; return the record with their ids, which skip ids whose topics are taken."""
    while record.pending == mutation:
        subscriptions = task.records.subscriptions()
        try:
            create_segments(
                task, mutation.new_segments(record), subscriptions, like=mutation.old_segments(record), are_new=True
            )
            copy_grants(task, mutation.old_segments(record), mutation.new_segments(record))
            break
        except SegmentsTaken as taken:
            # For example topics of an earlier topic of this name: consumers would get their old messages, and a
            # terminated one takes none.
            ids, tried = {segment.segment_id for segment in taken.segments}, record.next_segment_id
            now = time.time_ns() // 1_000_000
            record = task.records.change(
                lambda layout, ids=ids, tried=tried, now=now: (
                    layout.with_skipped_ids(mutation, now, ids) if layout.next_segment_id == tried else layout
                )
            )
    return record


def _abandon(task: ControllerTask, mutation: Mutation, refusal: AdminError) -> ControlledLayout:
    """Undo a change that has terminated no segment, and delete its new segments; return the record without it.

    Raises:
        RetryableError: it has terminated a segment.
    """
    record = _read_in_progress(task, mutation)
    if any(is_terminated(task, segment) for segment in mutation.old_segments(record)):
        raise RetryableError(
            f"brokers refuse the new segments of the {mutation}, which cannot be undone any more: {refusal}"
        ) from refusal
    now, deleted = time.time_ns() // 1_000_000, set[int]()
    created = mutation.new_segments(record)
    taken = {segment.segment_id for segment in taken_by_others(task, created)}
    task.records.change(lambda layout: layout.without_pending(mutation, now, taken))
    for segment in created:
        if segment.segment_id in taken:
            continue
        # If the deletion is refused too, pruning deletes the topic, which is empty.
        with suppress(AdminError, RetryableError):
            delete_topic(task, segment_topic(task.name, segment.descriptor))
            deleted.add(segment.segment_id)
    return task.records.change(lambda layout: layout.without_retired(deleted))


def _with_pending(layout: ControlledLayout, mutation: Mutation) -> ControlledLayout:
    if layout.deleting:
        raise StoreConflict("the topic is being deleted")
    return layout.with_pending(mutation)


def _fits(layout: ControlledLayout, mutation: Mutation) -> bool:
    return layout.deleting or (layout.pending is None and layout.epoch == mutation.epoch)


def _is_recorded(layout: ControlledLayout, mutation: Mutation) -> bool:
    return mutation in (layout.pending, layout.last)


def _read_in_progress(task: ControllerTask, mutation: Mutation) -> ControlledLayout:
    """Return the record in which a change is in progress or done.

    Raises:
        StoreConflict: there is no record, or another change is in progress.
    """
    record = task.records.read()
    if record is None:
        raise StoreConflict(f"{task.name} has no layout: its record was deleted")
    if record.last != mutation:
        _require_pending(record, mutation)
    return record


def _require_pending(layout: ControlledLayout, mutation: Mutation) -> None:
    if layout.pending != mutation:
        raise StoreConflict(f"the {mutation} is not in progress; the layout is at epoch {layout.epoch}")
