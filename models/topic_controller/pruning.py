"""Which sealed segments leave the layout, and when their topics go: beyond PIP-468, much as brokers of Pulsar 5.0."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from pydantic import Field

from models.base import Frozen, Result
from models.lifecycle.fields import Bool, Duration
from models.segments.segment import SegmentInfo
from models.topic_controller.record import ControlledLayout

INFINITE = -1
"""As brokers write it: retention that never ends."""

_MINUTE_MS = 60_000


class Pruning(Frozen):
    """When sealed segments go.

    Attributes:
        after: how long a segment stays behind its end, even when all of it is consumed.
        delete_after: how long its topic stays behind its removal from the layout: empty, and ended. A client that is
            away for longer, and then continues with the layout of before, makes an ordinary topic of that name where
            brokers create topics by themselves. `null` keeps it indefinitely.
    """

    after: Duration = Field(default=timedelta(minutes=5), ge=timedelta(0))
    delete_after: Duration | None = Field(default=timedelta(days=1), ge=timedelta(0))


class PruningChange(Frozen):
    """Other settings; `null` turns pruning off."""

    pruning: Pruning | None


class PruneRequest(Frozen):
    """Remove sealed segments now that may go.

    Attributes:
        segments: which ones; all of them by default. One whose parents stay, stays as well.
        force: also those that retention keeps, or that nobody has subscribed to; never what a subscription has left.
    """

    segments: tuple[int, ...] = ()
    force: Bool = False


class Candidate(Result):
    """A sealed segment whose parents are gone.

    Attributes:
        descriptor: its part of the topic's name.
        sealed_at_ms: milliseconds since 1970.
    """

    descriptor: str
    sealed_at_ms: int


class PruneWatch(Result):
    """What is looked at.

    Attributes:
        pruning: the settings.
        candidates: sealed segments that may go.
        retired: segments that are not in the layout any more, with the time of their removal, by descriptor.
    """

    pruning: Pruning
    candidates: tuple[Candidate, ...] = ()
    retired: dict[str, int] = Field(default_factory=dict[str, int])

    @classmethod
    def of(cls, record: ControlledLayout, pruning: Pruning) -> PruneWatch | None:
        """What must be looked at in a layout; None for nothing."""
        watch = cls(
            pruning=pruning,
            candidates=tuple(
                Candidate(descriptor=segment.descriptor, sealed_at_ms=segment.sealed_at_ms)
                for segment in record.segments.values()
                if segment.sealed and segment.root
            ),
            retired={one.descriptor: one.removed_at_ms for one in record.retired}
            if pruning.delete_after is not None
            else {},
        )
        return watch if watch.candidates or watch.retired else None


class PruneTask(Result):
    """What a step removes.

    Attributes:
        request: which segments.
        pruning: the settings.
        epoch: of the layout that the workflow has.
    """

    request: PruneRequest
    pruning: Pruning
    epoch: int


class PruneResult(Result):
    """What has gone.

    Attributes:
        removed: ids of segments that are not in the layout any more.
        deleted: ids of segments whose topics are gone as well.
        retained: why sealed segments stay, by id; those that were asked for, or the first 20.
        at_ms: when it was removed, in milliseconds since 1970.
        record: the layout as it stands, where it does not follow from the one that the workflow has.
    """

    removed: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    retained: dict[int, str] = Field(default_factory=dict[int, str])
    at_ms: int = 0
    record: ControlledLayout | None = None


class SegmentContents(NamedTuple):
    """What a sealed segment holds, as its broker says.

    Attributes:
        entries: that are kept.
        left: messages that somebody must read or acknowledge, by subscription, reader or cluster; 0 for nothing.
        retention_minutes: how long consumed messages are kept; -1 indefinitely.
    """

    entries: int
    left: dict[str, int]
    retention_minutes: int


class KeepReason(NamedTuple):
    """Why a segment stays.

    Attributes:
        why: a sentence.
        until_ms: when that ends, in milliseconds since 1970; None where nobody knows.
        always: whether `force` does not change it.
    """

    why: str
    until_ms: int | None = None
    always: bool = False


def keep_reason(
    sealed_at_ms: int, contents: SegmentContents | None, pruning: Pruning, now_ms: int
) -> KeepReason | None:
    """Why a sealed segment stays; None where it may go.

    Args:
        sealed_at_ms: its end.
        contents: what it holds; None where its topic is gone.
        pruning: the settings.
        now_ms: milliseconds since 1970.
    """
    until = sealed_at_ms + int(pruning.after.total_seconds() * 1000)
    if now_ms < until:
        return KeepReason("it was sealed a short time ago", until)
    if contents is None:
        return None
    # mutant: topic-controller/prunes-what-is-left
    if unread := {name: count for name, count in contents.left.items() if count}:
        name, count = min(unread.items())
        return KeepReason(f"{name} has {count} messages left", always=True)
    if not contents.entries:
        return None
    if contents.retention_minutes == INFINITE:
        return KeepReason("retention keeps it indefinitely")
    if now_ms < (until := sealed_at_ms + contents.retention_minutes * _MINUTE_MS):
        return KeepReason(f"retention keeps it for {contents.retention_minutes} minutes", until)
    if not contents.left and not contents.retention_minutes:  # mutant: topic-controller/prunes-what-has-no-subscription
        # Without a subscription nothing is consumed, and without retention nothing says how long it counts.
        return KeepReason("nobody has subscribed to it, and it has no retention")
    return None


def removable_segments(record: ControlledLayout, request: PruneRequest) -> list[SegmentInfo]:
    """Sealed segments that a request names, parents before their children."""
    wanted = {*request.segments} or {*record.segments}
    return [one for number, one in sorted(record.segments.items()) if number in wanted and one.sealed]
