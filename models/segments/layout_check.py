"""What is wrong with a layout; brokers check little of this, and lose messages where it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from models.segments.layout import SegmentLayout
from models.segments.segment import HASHES, NOT_SEALED, SegmentInfo


def layout_faults(layout: SegmentLayout) -> list[str]:
    """Return all faults of the layout of a scalable topic, in words; empty for none.

    Layouts of regular topics, as V5 clients see them, are not meant: their segments are active and legacy at once.
    """
    found = [*_coverage(layout)]
    for number, segment in sorted(layout.segments.items()):
        found += (f"segment {number} {fault}" for fault in _segment_faults(layout, number, segment))
    return found


def migration_faults(layout: SegmentLayout, topics: Sequence[str]) -> list[str]:
    """Return how the layout of a topic that was just migrated differs from what its migration must make (PIP-475).

    Times are not compared. What brokers split or merge afterwards is a difference.

    Args:
        layout: as it is.
        topics: partitions of the regular topic in their order, or the topic itself; in full.

    Returns:
        In words; empty for none.
    """
    planned = SegmentLayout.migrated(topics, 0)
    found: list[str] = []
    for name in ("epoch", "next_segment_id"):
        is_, wanted = getattr(layout, name), getattr(planned, name)
        if is_ != wanted:
            found.append(f"{name} is {is_}, and not {wanted}")
    for number in sorted({*layout.segments, *planned.segments}):
        found += _segment_differences(number, layout.segments.get(number), planned.segments.get(number))
    return found


def _segment_differences(number: int, found: SegmentInfo | None, planned: SegmentInfo | None) -> Iterator[str]:
    if found is None or planned is None:
        yield f"segment {number} {'is missing' if found is None else 'is one too many'}"
        return
    for name in ("hash_range", "state", "parent_ids", "child_ids", "sealed_at_epoch", "legacy_topic_name"):
        is_, wanted = getattr(found, name), getattr(planned, name)
        if is_ != wanted:
            yield f"{name} of segment {number} is {is_}, and not {wanted}"


def _coverage(layout: SegmentLayout) -> Iterator[str]:
    active = layout.active
    if not active:
        yield "no segment is active"
        return
    first, last = active[0].hash_range.start, active[-1].hash_range.end
    if first:
        yield f"no active segment has the hashes before {first:04x}"
    for one, other in pairwise(active):
        if not one.hash_range.precedes(other.hash_range):
            yield f"between the active segments {one.descriptor} and {other.descriptor} is a gap, or they overlap"
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
