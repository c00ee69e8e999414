"""Sealed segments of which nothing is left: out of the layout first, and deleted later.

Who reads by positions, or comes late with the layout of before, finds a topic that is ended, and continues elsewhere.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta

from activities.lifecycle.polling import PollResult
from activities.lifecycle.step import polling_step, step
from activities.topic_controller.context import ControllerTask, LeaderTask, ObserverTask
from activities.topic_controller.names import segment_topic
from activities.topic_controller.publish import publish
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

# A tenth of the time for which something waits already, so that what waits for weeks costs next to nothing.
_SHARE = 10
_SOONEST_MS, _LATEST_MS = 15_000, 3_600_000
_NAMED = 20


@polling_step(ObserverTask)
def await_prune(task: ObserverTask, watch: PruneWatch) -> PollResult[bool]:
    """Look whether a segment may go; it answers True, and never False."""
    name, now = task.name, _now()
    reasons: list[tuple[str, KeepReason, int]] = []
    for candidate in watch.candidates:
        contents = _contents(task.admin, segment_topic(name, candidate.descriptor))
        if (why := keep_reason(candidate.sealed_at_ms, contents, watch.pruning, now)) is None:
            return PollResult(answer=True)
        reasons.append((candidate.descriptor, why, candidate.sealed_at_ms))
    for descriptor, removed_at_ms in watch.retired.items():
        why = _is_kept(task.admin, segment_topic(name, descriptor), removed_at_ms, watch, now)
        if why is None:
            return PollResult(answer=True)
        reasons.append((descriptor, why, removed_at_ms))
    descriptor, first, since = min(reasons, key=lambda reason: _next(reason[1], reason[2], now))
    again = timedelta(milliseconds=max(_SOONEST_MS, _next(first, since, now) - now))
    return PollResult(why=f"segment {descriptor} stays: {first.why}", again=again)


@step(LeaderTask)
def prune(task: LeaderTask, asked: PruneTask) -> PruneResult:
    """Take segments out of the layout that may go, publish that, and delete topics of those that went long ago.

    Raises:
        StoreConflict: the topic is being deleted, or a change is under way.
    """
    record = task.records.read()
    if record is None or record.deleting or record.pending is not None:
        raise StoreConflict(f"{task.name} cannot be pruned now: it is deleted, or a change is under way")
    now = _now()
    goes, stays = _sorted_out(task, record, asked, now)
    seen = record
    if goes:
        record = task.records.change(lambda found: _pruned(found, seen, goes, now))
    # Also what an earlier attempt took out of the layout.
    if record.epoch != asked.epoch:
        publish(task)
    deleted = _delete_retired(task, record, asked, now)
    record = task.records.change(lambda found: found.without_retired(deleted))
    expected = asked.epoch + len(goes)
    return PruneResult(
        removed=tuple(goes),
        deleted=tuple(deleted),
        retained={number: stays[number] for number in sorted(stays)[:_NAMED]},
        at_ms=now,
        record=None if record.epoch == expected else record,
    )


def _pruned(found: ControlledLayout, seen: ControlledLayout, goes: list[int], now: int) -> ControlledLayout:
    """Only of the layout whose segments were looked at."""
    if found.epoch != seen.epoch or found.created_ms != seen.created_ms:
        raise RetryableError(f"the layout has come to epoch {found.epoch} meanwhile; it is looked at again")
    try:
        return found.without_segments(goes, now)
    except LayoutError as error:
        raise StoreConflict(f"segments cannot be pruned: {error}") from error


def _sorted_out(
    task: ControllerTask, record: ControlledLayout, asked: PruneTask, now: int
) -> tuple[list[int], dict[int, str]]:
    """Segments that go, and why others stay."""
    goes: list[int] = []
    stays = dict.fromkeys(asked.request.segments, "it is not in the layout, or takes messages")
    for segment in removable_segments(record, asked.request):
        if why := _why_stays(task, segment, goes, asked, now):
            stays[segment.segment_id] = why
        else:
            goes.append(segment.segment_id)
            stays.pop(segment.segment_id, None)
    return goes, stays


def _why_stays(task: ControllerTask, segment: SegmentInfo, goes: list[int], asked: PruneTask, now: int) -> str:
    if {*segment.parent_ids} - {*goes}:
        # Without it, nothing would say that its children come behind what its parents have left.
        return f"it comes from {', '.join(map(str, segment.parent_ids))}, of which something stays"
    task.context.check()
    why = keep_reason(
        segment.sealed_at_ms,
        _contents(task.admin, segment_topic(task.name, segment.descriptor)),
        asked.pruning,
        now,
    )
    return why.why if why and (why.always or not asked.request.force) else ""


def _contents(admin: PulsarAdminReader, name: TopicName) -> SegmentContents | None:
    """What a sealed segment holds; None where it is gone.

    Raises:
        AdminError: its broker does not say.
    """
    try:
        stats, inside, retention = admin.topics.stats(name), admin.topics.internal_stats(name), _retention(admin, name)
    except AdminNotFound:
        return None
    # What was not acknowledged, or is delayed, counts; readers and replicators hold messages as subscriptions do.
    left = {one: place.msg_backlog for one, place in stats.client_subscriptions.items()}
    left |= {f"replication to {one}": place.replication_backlog for one, place in stats.replication.items()}
    return SegmentContents(entries=inside.number_of_entries, left=left, retention_minutes=retention)


def _retention(admin: PulsarAdminReader, name: TopicName) -> int:
    return admin.topics.retention(name).retention_time_in_minutes


def _delete_retired(task: ControllerTask, record: ControlledLayout, asked: PruneTask, now: int) -> list[int]:
    """Delete topics of segments that left the layout long ago; ids of those that are gone."""
    watch = PruneWatch(pruning=asked.pruning)

    def is_due(one: Retired) -> bool:
        return _is_kept(task.admin, segment_topic(task.name, one.descriptor), one.removed_at_ms, watch, now) is None

    gone: list[int] = []
    for one in record.retired:
        # Somebody may have come meanwhile, and would make the topic again as an ordinary one.
        with suppress(AdminConflict):
            if is_due(one):
                delete_topic(task, segment_topic(task.name, one.descriptor), force=False)
                gone.append(one.segment_id)
    return gone


def _is_kept(
    admin: PulsarAdminReader, name: TopicName, removed_at_ms: int, watch: PruneWatch, now: int
) -> KeepReason | None:
    """Why the topic of a segment that left the layout stays."""
    wait = watch.pruning.delete_after
    if wait is None:
        return KeepReason("the topics of removed segments are never deleted")
    until = removed_at_ms + int(wait.total_seconds() * 1000)
    if now < until:
        return KeepReason("it left the layout a short time ago", until)
    with suppress(AdminNotFound):
        if admin.topics.stats(name).has_clients:
            return KeepReason("clients with an older layout are connected to its topic")
    return None


def _next(why: KeepReason, since_ms: int, now: int) -> int:
    """When it is worth another look."""
    if why.until_ms is not None:
        return min(why.until_ms, now + _LATEST_MS)
    return now + min(max((now - since_ms) // _SHARE, _SOONEST_MS), _LATEST_MS)


def _now() -> int:
    return time.time_ns() // 1_000_000
