"""Layout of a scalable topic: its segments over the hash space, and their changes by brokers.

Its JSON is the value of the topic's node beneath `/topics` (PIP-468, "Metadata"; PIP-475, "Broker-side migration
steps"). This module does not call a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import mmh3
from pydantic import Field

from models.segments.segment import (
    FULL,
    MAX_BUCKETS,
    HashRange,
    LayoutError,
    LayoutFault,
    SegmentInfo,
    Stored,
    equal_splits,
)


class SegmentLayout(Stored):
    """Layout of a scalable topic, as its node in the metadata store holds it.

    Attributes:
        epoch: incremented with each change of segments.
        next_segment_id: id of the next new segment.
        segments: by id.
        properties: of the topic.
        deleted: true while brokers delete the topic.
    """

    epoch: int = 0
    next_segment_id: int
    segments: dict[int, SegmentInfo]
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    deleted: bool = False

    @classmethod
    def parse(cls, value: bytes) -> Self:
        """Return the layout that brokers stored.

        Raises:
            pydantic.ValidationError: the value is not a layout; it may be empty.
        """
        return cls.model_validate_json(value)

    def encode(self) -> bytes:
        """Return the JSON that brokers store."""
        return self.model_dump_json(by_alias=True).encode()

    # Changes by brokers -----------------------------------------------------------------------------------------------

    @classmethod
    def initial(cls, count: int, now_ms: int, budget: int = 1) -> Self:
        """Return the layout of a new topic of equal segments.

        Args:
            count: of segments.
            now_ms: milliseconds since 1970.
            budget: entry buckets of all segments together; brokers have 4 by default, and each gets 1 at least.
        """
        splits = equal_splits(max(1, budget // count))
        segments = [
            SegmentInfo(
                segment_id=number,
                hash_range=hash_range,
                created_at_epoch=0,
                created_at_ms=now_ms,
                entry_bucket_splits=splits,
            )
            for number, hash_range in enumerate(HashRange.divided(count))
        ]
        return cls(next_segment_id=count, segments=_by_id(segments))

    @classmethod
    def synthetic(cls, topics: Sequence[str], now_ms: int) -> Self:
        """Return the layout by which V5 clients see a regular topic (PIP-475, "Special segments").

        Args:
            topics: its partitions in their order, or the topic itself where it has none; in full.
            now_ms: milliseconds since 1970.
        """
        plain = cls.initial(len(topics), now_ms)
        named = [
            segment.model_copy(update={"legacy_topic_name": topic})
            for segment, topic in zip(plain.segments.values(), topics, strict=True)
        ]
        return plain.model_copy(update={"segments": _by_id(named)})

    @classmethod
    def migrated(cls, topics: Sequence[str], now_ms: int, budget: int = 1) -> Self:
        """Return the layout of a topic right after its migration (PIP-475, "Broker-side migration steps" 3).

        Args:
            topics: partitions of the regular topic in their order, or the topic itself; in full.
            now_ms: milliseconds since 1970.
            budget: see `initial`.
        """
        splits = equal_splits(max(1, budget // len(topics)))
        parents, children = range(len(topics)), range(len(topics), 2 * len(topics))
        old = [
            SegmentInfo(
                segment_id=number, hash_range=FULL, created_at_epoch=0, created_at_ms=now_ms, legacy_topic_name=name
            ).sealed_by(children, 0, now_ms)
            for number, name in enumerate(topics)
        ]
        new = [
            SegmentInfo(
                segment_id=number,
                hash_range=hash_range,
                parent_ids=tuple(parents),
                created_at_epoch=0,
                created_at_ms=now_ms,
                entry_bucket_splits=splits,
            )
            for number, hash_range in zip(children, HashRange.divided(len(topics)), strict=True)
        ]
        return cls(next_segment_id=2 * len(topics), segments=_by_id((*old, *new)))

    def split(self, segment_id: int, now_ms: int) -> Self:
        """Return the layout after the split of an active segment; each child has half of its buckets.

        Raises:
            LayoutError: there is no such active segment, or it has one hash only.
        """
        parent = self._active(segment_id)
        return self._changed(parent.hash_range.split(), (parent,), now_ms, buckets=max(1, parent.buckets // 2))

    def merge(self, first_id: int, second_id: int, now_ms: int, max_buckets: int = MAX_BUCKETS) -> Self:
        """Return the layout after the merge of two neighbouring active segments, with the buckets of both.

        Args:
            first_id: id of one segment.
            second_id: id of its neighbour.
            now_ms: milliseconds since 1970.
            max_buckets: the most that brokers give a segment.

        Raises:
            LayoutError: a segment is missing or not active, or they are not neighbours.
        """
        # A missing segment is reported before a sealed one.
        self._segment(second_id)
        parents = self._active(first_id), self._active(second_id)
        first, second = sorted(parents, key=lambda segment: segment.hash_range.start)
        if not first.hash_range.precedes(second.hash_range):
            raise LayoutError(
                f"segments {parents[0].descriptor} and {parents[1].descriptor} are not neighbours",
                LayoutFault.NOT_NEIGHBOURS,
            )
        both = HashRange(start=first.hash_range.start, end=second.hash_range.end)
        return self._changed([both], parents, now_ms, buckets=min(first.buckets + second.buckets, max_buckets))

    def rebucket(self, segment_id: int, buckets: int, now_ms: int) -> Self:
        """Return the layout after an active segment got another number of entry buckets.

        Raises:
            LayoutError: there is no such active segment, it has these buckets, or the number is not possible.
        """
        parent = self._active(segment_id)
        if not 1 <= buckets <= MAX_BUCKETS:
            raise LayoutError(f"a segment cannot have {buckets} entry buckets; expected 1 to {MAX_BUCKETS}")
        if parent.entry_bucket_splits == equal_splits(buckets):
            raise LayoutError(f"segment {parent.descriptor} has {buckets} equal entry buckets already")
        return self._changed([parent.hash_range], (parent,), now_ms, buckets=buckets)

    def prune(self, segment_id: int) -> Self:
        """Return the layout without a sealed segment and without references to it.

        Raises:
            LayoutError: the segment is missing or active.
        """
        if self._segment(segment_id).active:
            raise LayoutError(f"segment {segment_id} is active and cannot be pruned")
        rest = {
            number: segment.model_copy(
                update={
                    "parent_ids": tuple(parent for parent in segment.parent_ids if parent != segment_id),
                    "child_ids": tuple(child for child in segment.child_ids if child != segment_id),
                }
            )
            for number, segment in self.segments.items()
            if number != segment_id
        }
        return self.model_copy(update={"epoch": self.epoch + 1, "segments": rest})

    # Queries --------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> list[SegmentInfo]:
        """Segments that take messages, in the order of their hashes."""
        active = [segment for segment in self.segments.values() if segment.active]
        return sorted(
            active, key=lambda segment: (segment.hash_range.start, segment.hash_range.end, segment.segment_id)
        )

    def find(self, value: int) -> SegmentInfo:
        """Return the active segment of a hash.

        Raises:
            LayoutError: no active segment has it.
        """
        for segment in self.active:
            if value in segment.hash_range:
                return segment
        raise LayoutError(f"no active segment has the hash {value:04x}")

    def route(self, key: str) -> SegmentInfo:
        """Return the segment to which producers send a key; regular topics use their partitions (PIP-475)."""
        raw, active = key_hash(key), self.active
        if active and all(segment.legacy for segment in active):
            return self._segment((raw & 0x7FFF_FFFF) % len(active))
        return self.find(raw >> 16)

    def ancestors(self, segment_id: int) -> list[SegmentInfo]:
        """Return the ancestors of a segment, parents before children."""
        ancestors: set[int] = set()
        pending = [*self._segment(segment_id).parent_ids]
        while pending:
            parent = pending.pop()
            if parent not in ancestors:
                ancestors.add(parent)
                pending += self._segment(parent).parent_ids
        # A child's id is always the higher one.
        return [self.segments[number] for number in sorted(ancestors)]

    def _segment(self, segment_id: int) -> SegmentInfo:
        if segment_id not in self.segments:
            there = ", ".join(map(str, self.segments))
            raise LayoutError(f"there is no segment {segment_id}; there are {there}", LayoutFault.SEGMENT_NOT_FOUND)
        return self.segments[segment_id]

    def _active(self, segment_id: int) -> SegmentInfo:
        segment = self._segment(segment_id)
        if not segment.active:
            raise LayoutError(f"segment {segment_id} is sealed", LayoutFault.SEGMENT_SEALED)
        return segment

    def _changed(
        self, ranges: Iterable[HashRange], parents: Sequence[SegmentInfo], now_ms: int, *, buckets: int
    ) -> Self:
        """Return the layout with new segments in place of active ones."""
        epoch = self.epoch + 1
        children = [
            SegmentInfo(
                segment_id=number,
                hash_range=hash_range,
                parent_ids=tuple(parent.segment_id for parent in parents),
                created_at_epoch=epoch,
                created_at_ms=now_ms,
                entry_bucket_splits=equal_splits(buckets),
            )
            for number, hash_range in enumerate(ranges, self.next_segment_id)
        ]
        ids = [child.segment_id for child in children]
        sealed = [parent.sealed_by(ids, epoch, now_ms) for parent in parents]
        segments = {**self.segments, **_by_id((*sealed, *children))}
        return self.model_copy(
            update={"epoch": epoch, "next_segment_id": self.next_segment_id + len(children), "segments": segments}
        )


def _by_id(segments: Iterable[SegmentInfo]) -> dict[int, SegmentInfo]:
    return {segment.segment_id: segment for segment in segments}


def key_hash(key: str) -> int:
    """Return the raw hash of a key, 32 bits; the high 16 choose the segment, the low 16 the entry bucket (PIP-486)."""
    return mmh3.hash(key.encode(), 0, signed=False)
