"""Assignment of segments to the consumers of an ordered subscription (PIP-468, "SubscriptionCoordinator")."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

Assignments = dict[str, tuple[int, ...]]
"""Ids of segments by consumer; an empty tuple for a consumer without segments."""


def assign(layout: SegmentLayout, drained: Collection[int], consumers: Iterable[str]) -> Assignments:
    """Divide segments among consumers: active segments by their hashes, round robin over the sorted names of consumers.

    An active segment is assigned once all its ancestors are consumed, so that messages of a key stay in order. A sealed
    segment goes to the consumer of the first active segment that descends from it. That consumer waits for it anyway,
    and no other assignment changes when it is consumed.

    Args:
        layout: layout of the topic.
        drained: ids of sealed segments that the subscription has consumed completely.
        consumers: names of the registered consumers.
    """
    names = sorted({*consumers})
    if not names:
        return {}
    owners = {segment.segment_id: names[position % len(names)] for position, segment in enumerate(layout.active)}
    shares: dict[str, list[int]] = {name: [] for name in names}
    for segment in in_order(layout):
        if segment.segment_id not in drained and is_assignable(segment, layout, drained):
            shares[owners[_active_descendant(segment, layout)]].append(segment.segment_id)
    return {name: tuple(ids) for name, ids in shares.items()}


def is_assignable(segment: SegmentInfo, layout: SegmentLayout, drained: Collection[int]) -> bool:
    """Return whether all ancestors of a segment are consumed; an ancestor that left the layout counts as consumed."""
    return all(ancestor.segment_id in drained for ancestor in layout.ancestors(segment.segment_id))


def in_order(layout: SegmentLayout) -> list[SegmentInfo]:
    """Return all segments of a layout, ordered by their hashes."""
    return sorted(
        layout.segments.values(),
        key=lambda segment: (segment.hash_range.start, segment.hash_range.end, segment.segment_id),
    )


def changed(before: Assignments, after: Assignments) -> Assignments:
    """Return the assignments that differ from those in `before`."""
    return {name: ids for name, ids in after.items() if before.get(name) != ids}


def _active_descendant(segment: SegmentInfo, layout: SegmentLayout) -> int:
    """Return the active segment that covers the first hash of a segment."""
    return segment.segment_id if segment.active else layout.find(segment.hash_range.start).segment_id
