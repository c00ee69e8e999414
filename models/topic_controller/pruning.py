"""When sealed segments leave the layout, and when their topics are deleted: beyond PIP-468, similar to Pulsar 5.0."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from pydantic import Field

from models.base import Frozen, Result
from models.lifecycle.fields import Bool, Duration
from models.segments.segment import SegmentInfo
from models.topic_controller.record import ControlledLayout

MAX_PRUNED = 10_000
"""Most segments of a request."""

INFINITE = -1
"""Retention without limit, as brokers write it."""

_MINUTE_MS = 60_000


class Pruning(Frozen):
    """When sealed segments are removed.

    Attributes:
        after: how long a segment stays after it was sealed, even if it is consumed.
        delete_after: how long its topic, empty and terminated, stays after its removal from the layout. A client that
            is away for longer and still has the old layout creates an ordinary topic of that name, where brokers create
            topics automatically. `null` keeps it indefinitely.
    """

    after: Duration = Field(default=timedelta(minutes=5), ge=timedelta(0))
    delete_after: Duration | None = Field(default=timedelta(days=1), ge=timedelta(0))


class PruningChange(Frozen):
    """New settings for pruning; `null` turns it off."""

    pruning: Pruning | None


class PruneRequest(Frozen):
    """Remove sealed segments now.

    Attributes:
        segments: ids of segments; all by default. A segment whose parents stay is not removed.
        force: also remove segments that only retention keeps, or that have no subscription. Unacknowledged messages are
            never removed.
    """

    segments: tuple[int, ...] = Field(default=(), max_length=MAX_PRUNED)
    force: Bool = False


class Candidate(Result):
    """A sealed segment without parents in the layout.

    Attributes:
        descriptor: the segment's part of the topic's name.
        sealed_at_ms: when it was sealed, in milliseconds since 1970.
    """

    descriptor: str
    sealed_at_ms: int


class PruneWatch(Result):
    """Input of a check whether segments can be removed.

    Attributes:
        pruning: the settings.
        candidates: sealed segments that may be removed.
        retired: when segments left the layout, in milliseconds since 1970, by descriptor.
    """

    pruning: Pruning
    candidates: tuple[Candidate, ...] = ()
    retired: dict[str, int] = Field(default_factory=dict[str, int])

    @classmethod
    def of(cls, record: ControlledLayout, pruning: Pruning) -> PruneWatch | None:
        """Return the input of the check for a layout; None if there is nothing to check."""
        watch = cls(
            pruning=pruning,
            candidates=tuple(
                Candidate(descriptor=segment.descriptor, sealed_at_ms=segment.sealed_at_ms)
                for segment in record.segments.values()
                if segment.sealed and segment.root
            ),
            retired={segment.descriptor: segment.removed_at_ms for segment in record.retired}
            if pruning.delete_after is not None
            else {},
        )
        return watch if watch.candidates or watch.retired else None


class PruneTask(Result):
    """Input of a step that removes segments.

    Attributes:
        request: which segments.
        pruning: the settings.
        epoch: epoch of the layout that the workflow has.
    """

    request: PruneRequest
    pruning: Pruning
    epoch: int


class PruneResult(Result):
    """Result of a removal of segments.

    Attributes:
        removed: ids of segments that left the layout.
        deleted: ids of segments whose topics were deleted.
        retained: why sealed segments stay, by id; the requested ones, or the first 20.
        at_ms: time of the removal, in milliseconds since 1970.
        record: the current layout, where it does not follow from the one that the workflow has.
    """

    removed: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    retained: dict[int, str] = Field(default_factory=dict[int, str])
    at_ms: int = 0
    record: ControlledLayout | None = None


class SegmentContents(NamedTuple):
    """Contents of a sealed segment, as its broker reports them.

    Attributes:
        entries: number of stored entries.
        unacknowledged: messages that are still to be read or acknowledged, by subscription, reader or cluster.
        retention_minutes: how long consumed messages are retained; -1 indefinitely.
    """

    entries: int
    unacknowledged: dict[str, int]
    retention_minutes: int


class KeepReason(NamedTuple):
    """The reason why a segment stays.

    Attributes:
        why: the reason, a sentence.
        until_ms: when it ends, in milliseconds since 1970; None if unknown.
        always: whether it also holds with `force`.
    """

    why: str
    until_ms: int | None = None
    always: bool = False


def keep_reason(
    sealed_at_ms: int, contents: SegmentContents | None, pruning: Pruning, now_ms: int
) -> KeepReason | None:
    """Return why a sealed segment stays; None if it can be removed.

    Args:
        sealed_at_ms: when it was sealed, in milliseconds since 1970.
        contents: its contents; None if its topic does not exist.
        pruning: the settings.
        now_ms: time in milliseconds since 1970.
    """
    until = sealed_at_ms + int(pruning.after.total_seconds() * 1000)
    if now_ms < until:
        return KeepReason("it was sealed a short time ago", until)
    if contents is None:
        return None
    # mutant: topic-controller/prunes-what-is-left
    if unread := {name: count for name, count in contents.unacknowledged.items() if count}:
        name, count = min(unread.items())
        return KeepReason(f"{name} has {count} unacknowledged messages", always=True)
    if not contents.entries:
        return None
    if contents.retention_minutes == INFINITE:
        return KeepReason("retention keeps it indefinitely")
    if now_ms < (until := sealed_at_ms + contents.retention_minutes * _MINUTE_MS):
        return KeepReason(f"retention keeps it for {contents.retention_minutes} minutes", until)
    has_subscription = bool(contents.unacknowledged)
    if not (has_subscription or contents.retention_minutes):  # mutant: topic-controller/prunes-what-has-no-subscription
        # Without a subscription nothing is consumed, and without retention nothing says how long messages are needed.
        return KeepReason("it has neither a subscription nor retention")
    return None


def removable_segments(record: ControlledLayout, request: PruneRequest) -> list[SegmentInfo]:
    """Return the sealed segments that a request names, parents before their children."""
    wanted = {*request.segments} or {*record.segments}
    return [
        segment for segment_id, segment in sorted(record.segments.items()) if segment_id in wanted and segment.sealed
    ]
