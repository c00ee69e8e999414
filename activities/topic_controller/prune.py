"""Removal of consumed sealed segments: first from the layout, and later their topics.

Until then, clients that read by positions, or have an old layout, find a terminated topic, and continue with its
children.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta

from activities.lifecycle.polling import PollResult
from activities.lifecycle.step import polling_step, step
from activities.topic_controller.context import ControllerTask, LeaderTask, ObserverTask
from activities.topic_controller.names import segment_topic
from activities.topic_controller.publish import publish, require_epoch
from activities.topic_controller.segments import delete_topic
from clients.errors import RetryableError, StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.names import TopicName
from models.segments.segment import LayoutError, SegmentInfo
from models.topic_controller.pruning import (
    KeepReason,
    PruneResult,
    PruneTask,
    PruneWatch,
    SegmentContents,
    keep_reason,
    removable_segments,
)
from models.topic_controller.record import ControlledLayout, Retired

# The next check comes after a tenth of the time that a segment has already waited, so that long waits cost little.
_FRACTION = 10
_MIN_PAUSE_MS, _MAX_PAUSE_MS = 15_000, 3_600_000
_MAX_REASONS = 20


@polling_step(ObserverTask)
def await_prune(task: ObserverTask, watch: PruneWatch) -> PollResult[bool]:
    """Check whether a segment may be removed; the answer is True as soon as one may."""
    name, now = task.name, _now()
    reasons: list[tuple[str, KeepReason, int]] = []
    for candidate in watch.candidates:
        contents = _contents(task.admin, segment_topic(name, candidate.descriptor))
        if (why := keep_reason(candidate.sealed_at_ms, contents, watch.pruning, now)) is None:
            return PollResult(answer=True)
        reasons.append((candidate.descriptor, why, candidate.sealed_at_ms))
    for descriptor, removed_at_ms in watch.retired.items():
        why = _retired_keep_reason(task.admin, segment_topic(name, descriptor), removed_at_ms, watch, now)
        if why is None:
            return PollResult(answer=True)
        reasons.append((descriptor, why, removed_at_ms))
    descriptor, reason, since = min(reasons, key=lambda entry: _next_check_ms(entry[1], entry[2], now))
    again = timedelta(milliseconds=max(_MIN_PAUSE_MS, _next_check_ms(reason, since, now) - now))
    return PollResult(why=f"segment {descriptor} stays: {reason.why}", again=again)


@step(LeaderTask)
def prune(task: LeaderTask, asked: PruneTask) -> PruneResult:
    """Remove segments from the layout and publish it; delete the topics of segments that were removed long ago.

    Raises:
        StoreConflict: the topic is being deleted, a change is in progress, or an old record was restored.
    """
    record = task.records.read()
    if record is None or record.deleting or record.pending is not None:
        raise StoreConflict(f"{task.name} cannot be pruned now: it is deleted, or a change is in progress")
    require_epoch(task, record, asked.epoch)  # mutant: topic-controller/prunes-an-older-record
    now = _now()
    to_remove, reasons = _select(task, record, asked, now)
    checked = record
    if to_remove:
        record = task.records.change(lambda current: _without(current, checked, to_remove, now))
    # Also publish what an earlier attempt removed from the layout.
    if record.epoch != asked.epoch:
        publish(task)
    deleted = _delete_retired(task, record, asked, now)
    record = task.records.change(lambda current: current.without_retired(deleted))
    expected = asked.epoch + len(to_remove)
    return PruneResult(
        removed=tuple(to_remove),
        deleted=tuple(deleted),
        retained={segment_id: reasons[segment_id] for segment_id in sorted(reasons)[:_MAX_REASONS]},
        at_ms=now,
        record=None if record.epoch == expected else record,
    )


def _without(current: ControlledLayout, checked: ControlledLayout, segments: list[int], now: int) -> ControlledLayout:
    """Return the layout without segments, if it is still the one that was checked.

    Raises:
        RetryableError: it has changed.
        StoreConflict: the segments cannot be removed.
    """
    if current.epoch != checked.epoch or current.created_ms != checked.created_ms:
        raise RetryableError(f"the layout has changed to epoch {current.epoch}; its segments are checked again")
    try:
        return current.without_segments(segments, now)
    except LayoutError as error:
        raise StoreConflict(f"segments cannot be pruned: {error}") from error


def _select(
    task: ControllerTask, record: ControlledLayout, asked: PruneTask, now: int
) -> tuple[list[int], dict[int, str]]:
    """Return the segments to remove, and why the others stay."""
    to_remove: list[int] = []
    reasons = dict.fromkeys(asked.request.segments, "it is active, or not in the layout")
    for segment in removable_segments(record, asked.request):
        if why := _why_stays(task, segment, to_remove, asked, now):
            reasons[segment.segment_id] = why
        else:
            to_remove.append(segment.segment_id)
            reasons.pop(segment.segment_id, None)
    return to_remove, reasons


def _why_stays(task: ControllerTask, segment: SegmentInfo, to_remove: list[int], asked: PruneTask, now: int) -> str:
    if {*segment.parent_ids} - {*to_remove}:
        # Without this segment, its children could be read before its parents.
        return f"its parents {', '.join(map(str, segment.parent_ids))} stay"
    task.context.check()
    why = keep_reason(
        segment.sealed_at_ms,
        _contents(task.admin, segment_topic(task.name, segment.descriptor)),
        asked.pruning,
        now,
    )
    return why.why if why and (why.always or not asked.request.force) else ""


def _contents(admin: PulsarAdminReader, name: TopicName) -> SegmentContents | None:
    """Return the contents of a sealed segment; None if it is deleted.

    Raises:
        AdminError: its broker does not answer.
    """
    try:
        stats, inside, retention = admin.topics.stats(name), admin.topics.internal_stats(name), _retention(admin, name)
    except AdminNotFound:
        return None
    # Unacknowledged and delayed messages count. Readers and replicators hold messages as subscriptions do.
    backlogs = {name: subscription.msg_backlog for name, subscription in stats.client_subscriptions.items()}
    backlogs |= {
        f"replication to {cluster}": replicator.replication_backlog for cluster, replicator in stats.replication.items()
    }
    return SegmentContents(entries=inside.number_of_entries, unacknowledged=backlogs, retention_minutes=retention)


def _retention(admin: PulsarAdminReader, name: TopicName) -> int:
    return admin.topics.retention(name).retention_time_in_minutes


def _delete_retired(task: ControllerTask, record: ControlledLayout, asked: PruneTask, now: int) -> list[int]:
    """Delete the topics of segments that were removed long ago; return the ids of the deleted ones."""
    watch = PruneWatch(pruning=asked.pruning)

    def is_due(segment: Retired) -> bool:
        name = segment_topic(task.name, segment.descriptor)
        return _retired_keep_reason(task.admin, name, segment.removed_at_ms, watch, now) is None

    deleted: list[int] = []
    for segment in record.retired:
        # A client that has connected since then would auto-create the topic as an ordinary one.
        with suppress(AdminConflict):
            if is_due(segment):
                delete_topic(task, segment_topic(task.name, segment.descriptor), force=False)
                deleted.append(segment.segment_id)
    return deleted


def _retired_keep_reason(
    admin: PulsarAdminReader, name: TopicName, removed_at_ms: int, watch: PruneWatch, now: int
) -> KeepReason | None:
    """Return why the topic of a removed segment stays; None if it can be deleted."""
    wait = watch.pruning.delete_after
    if wait is None:
        return KeepReason("the topics of removed segments are never deleted")
    until = removed_at_ms + int(wait.total_seconds() * 1000)
    if now < until:
        return KeepReason("it was removed from the layout a short time ago", until)
    with suppress(AdminNotFound):
        if admin.topics.stats(name).has_clients:
            return KeepReason("clients with an older layout are connected to its topic")
    return None


def _next_check_ms(why: KeepReason, since_ms: int, now: int) -> int:
    """Return when to check again, in milliseconds since 1970."""
    if why.until_ms is not None:
        return min(why.until_ms, now + _MAX_PAUSE_MS)
    return now + min(max((now - since_ms) // _FRACTION, _MIN_PAUSE_MS), _MAX_PAUSE_MS)


def _now() -> int:
    return time.time_ns() // 1_000_000
