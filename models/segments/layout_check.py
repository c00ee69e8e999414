"""Checks of a layout; brokers check little of this, and lose messages if a layout is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from models.segments.layout import SegmentLayout
from models.segments.segment import HASHES, NOT_SEALED, SegmentInfo


def layout_faults(layout: SegmentLayout) -> list[str]:
    """Return descriptions of all faults of a layout.

    This does not apply to synthetic layouts of regular topics, whose segments are active and legacy.
    """
    faults = [*_coverage(layout)]
    for number, segment in sorted(layout.segments.items()):
        faults += (f"segment {number} {fault}" for fault in _segment_faults(layout, number, segment))
    return faults


def migration_faults(layout: SegmentLayout, topics: Sequence[str]) -> list[str]:
    """Return how the layout of a newly migrated topic differs from the expected one (PIP-475).

    Times are not compared. Later splits and merges are differences.

    Args:
        layout: as it is.
        topics: partitions of the regular topic in their order, or the topic itself; in full.

    Returns:
        Descriptions of the differences.
    """
    planned = SegmentLayout.migrated(topics, 0)
    differences: list[str] = []
    for name in ("epoch", "next_segment_id"):
        is_, wanted = getattr(layout, name), getattr(planned, name)
        if is_ != wanted:
            differences.append(f"{name} is {is_}, not {wanted}")
    for number in sorted({*layout.segments, *planned.segments}):
        differences += _segment_differences(number, layout.segments.get(number), planned.segments.get(number))
    return differences


def _segment_differences(number: int, actual: SegmentInfo | None, planned: SegmentInfo | None) -> Iterator[str]:
    if actual is None or planned is None:
        yield f"segment {number} {'is missing' if actual is None else 'is unexpected'}"
        return
    for name in ("hash_range", "state", "parent_ids", "child_ids", "sealed_at_epoch", "legacy_topic_name"):
        is_, wanted = getattr(actual, name), getattr(planned, name)
        if is_ != wanted:
            yield f"{name} of segment {number} is {is_}, not {wanted}"


def _coverage(layout: SegmentLayout) -> Iterator[str]:
    active = layout.active
    if not active:
        yield "no segment is active"
        return
    first, last = active[0].hash_range.start, active[-1].hash_range.end
    if first:
        yield f"no active segment has the hashes before {first:04x}"
    for before, after in pairwise(active):
        if not before.hash_range.precedes(after.hash_range):
            yield f"the active segments {before.descriptor} and {after.descriptor} overlap or have a gap between them"
    if last != HASHES - 1:
        yield f"no active segment has the hashes after {last:04x}"


def _segment_faults(layout: SegmentLayout, number: int, segment: SegmentInfo) -> Iterator[str]:
    if segment.segment_id != number:
        yield f"is called {segment.segment_id} itself"
    if not 0 <= number < layout.next_segment_id:
        yield f"is not below the next id, {layout.next_segment_id}"
    yield from _state_faults(layout, segment)
    yield from _edge_faults(layout, number, segment)


def _state_faults(layout: SegmentLayout, segment: SegmentInfo) -> Iterator[str]:
    if not 0 <= segment.created_at_epoch <= layout.epoch:
        yield f"was created at epoch {segment.created_at_epoch}, and the layout is at {layout.epoch}"
    if segment.active:
        if segment.child_ids:
            yield "is active, and has children"
        if (segment.sealed_at_epoch, segment.sealed_at_ms) != (NOT_SEALED, NOT_SEALED):
            yield "is active, and has a time at which it was sealed"
        if segment.legacy:
            yield f"is active, and its messages are in {segment.legacy_topic_name}"
        return
    if not segment.created_at_epoch <= segment.sealed_at_epoch <= layout.epoch:
        yield f"was sealed at epoch {segment.sealed_at_epoch}"
    if segment.sealed_at_ms < segment.created_at_ms:
        yield "was sealed before it was created"


def _edge_faults(layout: SegmentLayout, number: int, segment: SegmentInfo) -> Iterator[str]:
    for what, ids in (("parent", segment.parent_ids), ("child", segment.child_ids)):
        if len({*ids}) != len(ids):
            yield f"names a {what} twice"
        yield from (f"has the {what} {id_}, which is not there" for id_ in ids if id_ not in layout.segments)
    for parent in filter(None, map(layout.segments.get, segment.parent_ids)):
        if number not in parent.child_ids:
            yield f"has the parent {parent.segment_id}, which does not have it as a child"
        elif parent.segment_id >= number:
            yield f"is older than its parent {parent.segment_id}"
        elif segment.hash_range.end < parent.hash_range.start or parent.hash_range.end < segment.hash_range.start:
            yield f"has no hash of its parent {parent.segment_id}"
    for child in filter(None, map(layout.segments.get, segment.child_ids)):
        if number not in child.parent_ids:
            yield f"has the child {child.segment_id}, which does not have it as a parent"
