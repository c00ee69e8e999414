"""The verbs `split`, `merge` and `rebucket`."""

from __future__ import annotations

from itertools import pairwise

from activities.scalable_topic.operations.context import Hand, Look
from activities.scalable_topic.operations.layout_change import carried_out, planned
from clients.pulsar.segment_loads import segment_load
from models.scalable_topic.operation_input import SegmentChoice
from models.scalable_topic.operation_results import TopicOutcome
from models.segments.change import SegmentChange
from models.segments.layout import SegmentLayout
from models.segments.segment import LayoutError, SegmentInfo


def look_at_split(look: Look) -> TopicOutcome:
    """Which segment would be split, and into what."""
    return planned(look, to_split)


def split(hand: Hand) -> TopicOutcome:
    """Split the segment that is named, the widest, or the busiest."""
    return carried_out(hand, to_split)


def look_at_merge(look: Look) -> TopicOutcome:
    """Which segments would be merged."""
    return planned(look, to_merge)


def merge(hand: Hand) -> TopicOutcome:
    """Merge the segments that are named, or the two neighbours with the least traffic."""
    return carried_out(hand, to_merge)


def look_at_rebucket(look: Look) -> TopicOutcome:
    """Return which segment would get other entry buckets."""
    return planned(look, to_rebucket)


def rebucket(hand: Hand) -> TopicOutcome:
    """Give other entry buckets to the segment that is named, the widest, or the busiest."""
    return carried_out(hand, to_rebucket)


def to_split(look: Look, layout: SegmentLayout) -> SegmentChange:
    """The split that is asked for.

    Raises:
        LayoutError: there is no such segment, or it has one hash only.
    """
    return _change(layout, _chosen(look, layout))


def to_rebucket(look: Look, layout: SegmentLayout) -> SegmentChange:
    """Return the rebucket that is asked for.

    Raises:
        LayoutError: there is no such segment, or it cannot have so many entry buckets.
    """
    return _change(layout, _chosen(look, layout), buckets=look.task.input.buckets)


def to_merge(look: Look, layout: SegmentLayout) -> SegmentChange:
    """The merge that is asked for.

    Raises:
        LayoutError: there are no such segments, they are no neighbours, or there is one segment only.
    """
    if look.task.input.segments:
        return _change(layout, *look.task.input.segments)
    loads = {one.segment_id: _traffic(look, one) for one in layout.active}

    def rank(pair: tuple[SegmentInfo, SegmentInfo]) -> tuple[float, float, int]:
        bytes_, messages = (sum(both) for both in zip(*(loads[one.segment_id] for one in pair), strict=True))
        return bytes_, messages, sum(one.hash_range.size for one in pair)

    if len(layout.active) < 2:
        raise LayoutError("it has one active segment only, which cannot be merged")
    one, other = min(pairwise(layout.active), key=rank)
    return _change(layout, one.segment_id, other.segment_id)


def _chosen(look: Look, layout: SegmentLayout) -> int:
    """Return the id of the segment that is named, or chosen."""
    input = look.task.input
    if input.segment is not None:
        return input.segment
    busiest = input.choose is SegmentChoice.BUSIEST

    def rank(segment: SegmentInfo) -> tuple[float, float, int]:
        return (*(_traffic(look, segment) if busiest else (0.0, 0.0)), segment.hash_range.size)

    # Of equals the first one: a second attempt, and people, find the same.
    return max(layout.active, key=rank).segment_id


def _change(layout: SegmentLayout, *ids: int, buckets: int | None = None) -> SegmentChange:
    """Return the change of these segments, which may have been made already."""
    there = [layout.segments[number] for number in ids if number in layout.segments]
    made = SegmentChange(tuple(there), layout.next_segment_id, buckets)
    if len(there) == len(ids) and (all(segment.sealed for segment in there) or made.children(layout)):
        return made
    return SegmentChange.of(layout, *ids, buckets=buckets)


def _traffic(look: Look, segment: SegmentInfo) -> tuple[float, float]:
    load = segment_load(look.store, look.name, segment.segment_id)
    return load.byte_rate, load.msg_rate
