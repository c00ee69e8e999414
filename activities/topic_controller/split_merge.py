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
    """Note the change, and make the new segments with a place of each subscription.

    Nothing is done where the change does not fit the layout, or that is not the one with which the change began; this
    is answered then. What brokers refuse is given up, if it has ended nothing.

    Raises:
        StoreConflict: the topic is being deleted.
    """
    try:
        record = task.records.change(lambda found: _begun(found, mutation) if _can_begin(found, mutation) else found)
    except LayoutError as error:
        return PreparedChange(refused=str(error), fault=error.fault)
    # A workflow that was reset asks for what was done long ago.
    if not _is_begun(record, mutation) or record.epoch > mutation.epoch + 1:
        return PreparedChange(record=record)
    if record.last == mutation:
        return PreparedChange(first_segment=mutation.first_segment(record))
    try:
        record = _make_children(task, mutation, record)
    except RetryableError:
        raise
    except AdminError as refusal:
        # Limits of the namespace, for example: whoever asked is told, and others do not wait until they are raised.
        return PreparedChange(refused=str(refusal), record=_give_up(task, mutation, refusal))
    if record.pending != mutation:
        return PreparedChange(record=record)
    return PreparedChange(first_segment=mutation.first_segment(record))


@step(LeaderTask)
def seal(task: LeaderTask, mutation: Mutation) -> None:
    """End the old segments, one after the other.

    Raises:
        StoreConflict: another change is under way.
    """
    record = _under_way(task, mutation)
    if record.last == mutation:
        return
    for segment in mutation.old_segments(record):
        try:
            terminate_segment(task, segment)
        except AdminNotFound:
            # One that somebody has deleted must be there, and to be ended: its producers would make it, and continue.
            create_segments(task, [segment], task.records.subscriptions())
            terminate_segment(task, segment)


@step(LeaderTask)
def commit(task: LeaderTask, mutation: Mutation) -> CommittedChange:
    """Put the new layout in the place of the old one, and publish it.

    Raises:
        StoreConflict: another change is under way.
    """
    now = time.time_ns() // 1_000_000

    def done(found: ControlledLayout) -> ControlledLayout:
        if found.last == mutation:
            return found
        _require_under_way(found, mutation)
        return found.with_commit(now)

    record = task.records.change(done)
    complete_last(task, record)
    if record.epoch != mutation.epoch + 1:
        return CommittedChange(record=record)
    return CommittedChange(at_ms=record.segments[mutation.segments[0]].sealed_at_ms)


def complete_last(task: ControllerTask, record: ControlledLayout) -> None:
    """What comes behind the newest change, until clients know of it; harmless when done twice.

    What consumes the old segments now, also since they were ended, must continue in the new ones; it finds them once
    the layout is published.
    """
    if record.last is None:
        publish(task)
        return
    numbers = {*record.last.segments}
    old = [record.segments[number] for number in numbers & {*record.segments}]
    new = [segment for segment in record.segments.values() if {*segment.parent_ids} == numbers]
    known = task.records.subscriptions()
    run_both(lambda: ensure_cursors(task, new, known, like=old), lambda: ensure_layout_topic(task))
    try:
        # Behind the look at the old ones, which loads them, and before writers are told, who look into them at once.
        reload_segments(task, old)
    finally:
        publish(task, ready=True)


def _make_children(task: ControllerTask, mutation: Mutation, record: ControlledLayout) -> ControlledLayout:
    """Make the new segments; return the record with their ids, which pass over those whose topics are taken."""
    while record.pending == mutation:
        known = task.records.subscriptions()
        try:
            create_segments(
                task, mutation.new_segments(record), known, like=mutation.old_segments(record), are_new=True
            )
            copy_grants(task, mutation.old_segments(record), mutation.new_segments(record))
            break
        except SegmentsTaken as taken:
            # Of an earlier topic of this name, for example: its messages would come as if they were new, and one that
            # has ended would take none.
            ids, tried = {segment.segment_id for segment in taken.segments}, record.next_segment_id
            now = time.time_ns() // 1_000_000
            record = task.records.change(
                lambda found, ids=ids, tried=tried, now=now: (
                    found.with_skipped_ids(mutation, now, ids) if found.next_segment_id == tried else found
                )
            )
    return record


def _give_up(task: ControllerTask, mutation: Mutation, refusal: AdminError) -> ControlledLayout:
    """Forget a change that has ended nothing, with what was made for it; returns the record without it.

    Raises:
        RetryableError: it has.
    """
    record = _under_way(task, mutation)
    if any(is_terminated(task, one) for one in mutation.old_segments(record)):
        raise RetryableError(f"nothing leads back, and the new segments are refused: {refusal}") from refusal
    now, gone = time.time_ns() // 1_000_000, set[int]()
    made = mutation.new_segments(record)
    taken = {one.segment_id for one in taken_by_others(task, made)}
    task.records.change(lambda found: found.without_pending(mutation, now, taken))
    for one in made:
        if one.segment_id in taken:
            continue
        # What may not be made may not be deleted either; it is empty, and goes with what is pruned.
        with suppress(AdminError, RetryableError):
            delete_topic(task, segment_topic(task.name, one.descriptor))
            gone.add(one.segment_id)
    return task.records.change(lambda found: found.without_retired(gone))


def _begun(found: ControlledLayout, mutation: Mutation) -> ControlledLayout:
    if found.deleting:
        raise StoreConflict("the topic is being deleted")
    return found.with_pending(mutation)


def _can_begin(found: ControlledLayout, mutation: Mutation) -> bool:
    return found.deleting or (found.pending is None and found.epoch == mutation.epoch)


def _is_begun(found: ControlledLayout, mutation: Mutation) -> bool:
    return mutation in (found.pending, found.last)


def _under_way(task: ControllerTask, mutation: Mutation) -> ControlledLayout:
    record = task.records.read()
    if record is None:
        raise StoreConflict(f"{task.name} has no layout: somebody has deleted it")
    if record.last != mutation:
        _require_under_way(record, mutation)
    return record


def _require_under_way(found: ControlledLayout, mutation: Mutation) -> None:
    if found.pending != mutation:
        raise StoreConflict(f"the {mutation} is not under way; the layout is at epoch {found.epoch}")
