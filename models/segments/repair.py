"""What the layout of a scalable topic says of the regular one that it came from."""

from __future__ import annotations

from collections.abc import Collection

from models.segments.layout import SegmentLayout

NEVER_DROPPED = 253_402_300_799_000
"""Milliseconds since 1970 at the end of the year 9999: a broker drops a segment once it was sealed for some time."""


def comes_from(layout: SegmentLayout, topics: Collection[str]) -> bool:
    """Return whether a layout can have come from the migration of a regular topic, whatever brokers did since.

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
    """Return the layout with regular parents that brokers never drop: they were sealed at the end of time."""
    kept = {
        number: one.model_copy(update={"sealed_at_ms": NEVER_DROPPED}) if one.legacy else one
        for number, one in layout.segments.items()
    }
    return layout.model_copy(update={"segments": kept})
