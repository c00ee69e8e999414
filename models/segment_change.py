"""A split or a merge that is asked of brokers: what it has to make, and whether a layout has it."""

from __future__ import annotations

from dataclasses import dataclass

from models.segment import HashRange, LayoutError, SegmentInfo
from models.segment_layout import SegmentLayout


@dataclass(frozen=True)
class SegmentChange:
    """The split of one segment, or the merge of two neighbours.

    Attributes:
        parents: one or two segments as they stood before, active.
        first_id: the id that the first new segment gets.
    """

    parents: tuple[SegmentInfo, ...]
    first_id: int

    @classmethod
    def of(cls, layout: SegmentLayout, *ids: int) -> SegmentChange:
        """The change of segments of a layout.

        Raises:
            LayoutError: it is not possible.
        """
        _changed(layout, ids, 0)
        return cls(tuple(layout.segments[one] for one in ids), layout.next_segment_id)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the parents."""
        return tuple(one.segment_id for one in self.parents)

    @property
    def ranges(self) -> tuple[HashRange, ...]:
        """Of the new segments."""
        if len(self.parents) == 1:
            return self.parents[0].hash_range.split()
        first, second = sorted((one.hash_range for one in self.parents), key=lambda part: part.start)
        return (HashRange(start=first.start, end=second.end),)

    def after(self, layout: SegmentLayout, now_ms: int) -> SegmentLayout:
        """What the change makes of a layout.

        Raises:
            LayoutError: it is not possible.
        """
        return _changed(layout, self.ids, now_ms)

    def children(self, layout: SegmentLayout) -> tuple[SegmentInfo, ...]:
        """The segments that have taken over; none while all parents are active.

        A parent that was consumed may be pruned, and is not named by its children then.

        Raises:
            LayoutError: somebody has changed the parents in another way.
        """
        now = [layout.segments.get(one) for one in self.ids]
        there = [one for one in now if one is not None]
        if len(there) == len(now) and all(one.active for one in there):
            return ()
        heirs = {child for one in there for child in one.child_ids}
        pruned = len(there) < len(now)
        candidates = [
            one
            for number, one in sorted(layout.segments.items())
            if number in heirs or (pruned and number >= self.first_id)
        ]
        found = [next((one for one in candidates if one.hash_range == part), None) for part in self.ranges]
        children = tuple(one for one in found if one is not None)
        if any(one.active for one in there) or len(children) < len(found):
            named = ", ".join(one.descriptor for one in self.parents)
            raise LayoutError(f"somebody has changed {named} in another way: {_told(now, self.ids)}")
        return children


def _changed(layout: SegmentLayout, ids: tuple[int, ...], now_ms: int) -> SegmentLayout:
    first, *others = ids
    return layout.merge(first, *others, now_ms=now_ms) if others else layout.split(first, now_ms)


def _told(now: list[SegmentInfo | None], ids: tuple[int, ...]) -> str:
    return "; ".join(
        f"{number} is not there" if one is None else f"{number} is {one.state}, with the children {list(one.child_ids)}"
        for number, one in zip(ids, now, strict=True)
    )
