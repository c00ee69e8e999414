"""Relation between the layout of a scalable topic and the regular topic that it came from."""

from __future__ import annotations

from collections.abc import Collection

from models.segments.layout import SegmentLayout

NEVER_DROPPED = 253_402_300_799_000
"""End of the year 9999, in milliseconds since 1970: brokers drop a segment some time after it was sealed."""


def comes_from(layout: SegmentLayout, topics: Collection[str]) -> bool:
    """Return whether a layout can result from the migration of a regular topic, with or without later changes.

    Args:
        layout: as it is.
        topics: partitions of the regular topic, or the topic itself; in full. Some may have been added since.
    """
    if named := {segment.legacy_topic_name for segment in layout.segments.values() if segment.legacy}:
        return bool(named & {*topics})
    # A migration gives the ids 0 to n - 1 to regular parents, and n to 2n - 1 to its children.
    first = [number for number, segment in layout.segments.items() if not segment.created_at_epoch]
    return not first or max(first) < 2 * min(first)


def with_kept_parents(layout: SegmentLayout) -> SegmentLayout:
    """Return the layout with a seal time of its regular parents in the far future, so that brokers never drop them."""
    segments = {
        number: segment.model_copy(update={"sealed_at_ms": NEVER_DROPPED}) if segment.legacy else segment
        for number, segment in layout.segments.items()
    }
    return layout.model_copy(update={"segments": segments})
