"""Split, merge or rebucket of segments: its result, and whether a layout already contains it."""

from __future__ import annotations

from dataclasses import dataclass

from models.segments.layout import SegmentLayout
from models.segments.segment import HashRange, LayoutError, SegmentInfo, equal_splits


@dataclass(frozen=True)
class SegmentChange:
    """The split or the rebucket of one segment, or the merge of two neighbours.

    Attributes:
        parents: one or two segments as they were before, active.
        first_id: the id that the first new segment gets.
        buckets: rebucket: number of entry buckets of the new segment; None for other changes.
    """

    parents: tuple[SegmentInfo, ...]
    first_id: int
    buckets: int | None = None

    @classmethod
    def of(cls, layout: SegmentLayout, *ids: int, buckets: int | None = None) -> SegmentChange:
        """Return the change of segments of a layout.

        Raises:
            LayoutError: the change is not possible.
        """
        _changed(layout, ids, buckets, 0)
        return cls(tuple(layout.segments[number] for number in ids), layout.next_segment_id, buckets)

    @property
    def ids(self) -> tuple[int, ...]:
        """Return the ids of the parents."""
        return tuple(parent.segment_id for parent in self.parents)

    @property
    def ranges(self) -> tuple[HashRange, ...]:
        """Return the hash ranges of the new segments."""
        if self.buckets is not None:
            return (self.parents[0].hash_range,)
        if len(self.parents) == 1:
            return self.parents[0].hash_range.split()
        first, second = sorted((parent.hash_range for parent in self.parents), key=lambda hash_range: hash_range.start)
        return (HashRange(start=first.start, end=second.end),)

    def after(self, layout: SegmentLayout, now_ms: int) -> SegmentLayout:
        """Return the layout after the change; after a merge, brokers may allow fewer entry buckets.

        Raises:
            LayoutError: the change is not possible.
        """
        return _changed(layout, self.ids, self.buckets, now_ms)

    def children(self, layout: SegmentLayout) -> tuple[SegmentInfo, ...]:
        """Return the segments that replaced the parents; none while all parents are active.

        A consumed parent may be pruned; its children then do not name it. A segment that already has the entry
        buckets of a rebucket is its own child.

        Raises:
            LayoutError: the parents were changed in another way.
        """
        parents = [layout.segments.get(number) for number in self.ids]
        there = [parent for parent in parents if parent is not None]
        if len(there) == len(parents) and all(parent.active for parent in there):
            return (
                ()
                if self.buckets is None
                else tuple(parent for parent in there if self._is_child(parent, parent.hash_range))
            )
        heirs = {child for parent in there for child in parent.child_ids}
        pruned = len(there) < len(parents)
        candidates = [
            segment
            for number, segment in sorted(layout.segments.items())
            if number in heirs or (pruned and number >= self.first_id)
        ]
        matches = [
            next((candidate for candidate in candidates if self._is_child(candidate, range_)), None)
            for range_ in self.ranges
        ]
        children = tuple(child for child in matches if child is not None)
        if any(parent.active for parent in there) or len(children) < len(matches):
            named = ", ".join(parent.descriptor for parent in self.parents)
            raise LayoutError(
                f"{named} was changed in another way by another client, or by a broker on its own: "
                f"{_described(parents, self.ids)}"
            )
        return children

    def _is_child(self, segment: SegmentInfo, hash_range: HashRange) -> bool:
        """Return whether a segment can be the result of this change for a hash range."""
        right = self.buckets is None or segment.entry_bucket_splits == equal_splits(self.buckets)
        return right and segment.hash_range == hash_range


def _changed(layout: SegmentLayout, ids: tuple[int, ...], buckets: int | None, now_ms: int) -> SegmentLayout:
    first, *others = ids
    if buckets is not None:
        return layout.rebucket(first, buckets, now_ms)
    return layout.merge(first, *others, now_ms=now_ms) if others else layout.split(first, now_ms)


def _described(parents: list[SegmentInfo | None], ids: tuple[int, ...]) -> str:
    return "; ".join(
        f"{number} is not there"
        if parent is None
        else f"{number} is {parent.state}, with the children {list(parent.child_ids)}"
        for number, parent in zip(ids, parents, strict=True)
    )
