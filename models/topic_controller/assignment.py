"""Which consumer of an ordered subscription reads which segments (PIP-468, "SubscriptionCoordinator")."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

Assignments = dict[str, tuple[int, ...]]
"""Ids of segments by consumer; a consumer without any has none."""


def assign(layout: SegmentLayout, drained: Collection[int], consumers: Iterable[str]) -> Assignments:
    """Divide segments among consumers: active ones in turn, in the order of their hashes, consumers by name.

    An active segment is handed out when all that it came from is consumed, so that no message of a key overtakes an
    earlier one. A sealed one goes to whoever has the first of those that it became: that one waits for it, and no turn
    of others changes when it is consumed.

    Args:
        layout: of the topic.
        drained: ids of sealed segments of which the subscription has consumed all.
        consumers: names of those that are registered.
    """
    names = sorted({*consumers})
    if not names:
        return {}
    owners = {one.segment_id: names[turn % len(names)] for turn, one in enumerate(layout.active)}
    shares: dict[str, list[int]] = {name: [] for name in names}
    for segment in in_order(layout):
        if segment.segment_id not in drained and has_turn(segment, layout, drained):
            shares[owners[_heir(segment, layout)]].append(segment.segment_id)
    return {name: tuple(ids) for name, ids in shares.items()}


def has_turn(segment: SegmentInfo, layout: SegmentLayout, drained: Collection[int]) -> bool:
    """Whether nothing is left of what it came from; what the layout does not name any more is consumed."""
    return all(ancestor.segment_id in drained for ancestor in layout.ancestors(segment.segment_id))


def in_order(layout: SegmentLayout) -> list[SegmentInfo]:
    """All segments, in the order of their hashes."""
    return sorted(
        layout.segments.values(),
        key=lambda segment: (segment.hash_range.start, segment.hash_range.end, segment.segment_id),
    )


def changed(before: Assignments, after: Assignments) -> Assignments:
    """Those of `after` that a consumer must be told."""
    return {name: ids for name, ids in after.items() if before.get(name) != ids}


def _heir(segment: SegmentInfo, layout: SegmentLayout) -> int:
    """The active segment that has its first hash now."""
    return segment.segment_id if segment.active else layout.find(segment.hash_range.start).segment_id
