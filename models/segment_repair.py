"""How the layout of a topic that was regular once gets parents back that brokers have pruned."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from models.segment import LayoutError, SegmentInfo
from models.segment_layout import SegmentLayout

NEVER_DROPPED = 253_402_300_799_000
"""Milliseconds since 1970 at the end of the year 9999: a broker drops a segment once it was sealed for some time."""


def with_parents(layout: SegmentLayout, topics: Sequence[str], ids: Collection[int]) -> SegmentLayout:
    """The layout with sealed parents again, as it would be if they had not been pruned.

    Args:
        layout: as it is.
        topics: partitions of the regular topic in their order, or the topic itself; in full.
        ids: of the parents that are missing; the same numbers as those of their partitions.

    Raises:
        LayoutError: it does not come from these topics, or has segments of these ids.
    """
    planned = SegmentLayout.migrated(topics, _made(layout))
    _require_origin(layout, planned, len(topics), ids)
    children = [number for number in range(len(topics), 2 * len(topics)) if number in layout.segments]
    parents = {number: planned.segments[number].model_copy(update={"child_ids": tuple(children)}) for number in ids}
    linked = {number: _with(layout.segments[number], ids) for number in children}
    segments = dict(sorted({**layout.segments, **parents, **linked}.items()))
    return layout.model_copy(update={"epoch": layout.epoch + 1, "segments": segments})


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
    """The layout with regular parents that brokers never drop: they were sealed at the end of time."""
    kept = {
        number: one.model_copy(update={"sealed_at_ms": NEVER_DROPPED}) if one.legacy else one
        for number, one in layout.segments.items()
    }
    return layout.model_copy(update={"segments": kept})


def _with(child: SegmentInfo, parents: Collection[int]) -> SegmentInfo:
    return child.model_copy(update={"parent_ids": tuple(sorted({*child.parent_ids, *parents}))})


def _made(layout: SegmentLayout) -> int:
    """When the topic became scalable; a migration gives all that it makes one time."""
    return min((one.created_at_ms for one in layout.segments.values()), default=0)


def _require_origin(layout: SegmentLayout, planned: SegmentLayout, count: int, ids: Collection[int]) -> None:
    if taken := sorted({*ids} & layout.segments.keys()):
        raise LayoutError(f"the layout has segments {taken} already")
    if missing := sorted({*ids} - set(range(count))):
        raise LayoutError(f"{count} regular topics have no parents {missing}")
    if layout.next_segment_id < planned.next_segment_id:
        raise LayoutError(f"the layout has had {layout.next_segment_id} segments, and not {planned.next_segment_id}")
    for number, wanted in planned.segments.items():
        found = layout.segments.get(number)
        if found is not None and _origin(found) != _origin(wanted):
            raise LayoutError(
                f"segment {found.descriptor} does not come from {count} regular topics, of which {wanted.descriptor} "
                f"would have come"
            )


def _origin(segment: SegmentInfo) -> tuple[object, ...]:
    return segment.hash_range, segment.created_at_epoch, segment.legacy_topic_name
