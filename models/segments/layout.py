"""The layout of a scalable topic: segments over the hash space, and what brokers make of them.

Its JSON is the value of the topic's node beneath `/topics` (PIP-468, "Metadata"; PIP-475, "Broker-side migration
steps"). Nothing here talks to a server.
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
    """All segments of a scalable topic, and what else its node holds.

    Attributes:
        epoch: raised by one with each change of segments.
        next_segment_id: the id that the next segment gets.
        segments: by id.
        properties: of the topic.
        deleted: whether brokers are deleting the topic.
    """

    epoch: int = 0
    next_segment_id: int
    segments: dict[int, SegmentInfo]
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    deleted: bool = False

    @classmethod
    def parse(cls, value: bytes) -> Self:
        """Return a layout as brokers store it.

        Raises:
            pydantic.ValidationError: it is not one; nothing at all, for example.
        """
        return cls.model_validate_json(value)

    def encode(self) -> bytes:
        """Return the layout as brokers store it."""
        return self.model_dump_json(by_alias=True).encode()

    # What brokers make ------------------------------------------------------------------------------------------------

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
                hash_range=part,
                created_at_epoch=0,
                created_at_ms=now_ms,
                entry_bucket_splits=splits,
            )
            for number, part in enumerate(HashRange.divided(count))
        ]
        return cls(next_segment_id=count, segments=_by_id(segments))

    @classmethod
    def synthetic(cls, topics: Sequence[str], now_ms: int) -> Self:
        """Return a regular topic as V5 clients see it (PIP-475, "Special segments").

        Args:
            topics: its partitions in their order, or the topic itself where it has none; in full.
            now_ms: milliseconds since 1970.
        """
        plain = cls.initial(len(topics), now_ms)
        named = [
            one.model_copy(update={"legacy_topic_name": topic})
            for one, topic in zip(plain.segments.values(), topics, strict=True)
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
                hash_range=part,
                parent_ids=tuple(parents),
                created_at_epoch=0,
                created_at_ms=now_ms,
                entry_bucket_splits=splits,
            )
            for number, part in zip(children, HashRange.divided(len(topics)), strict=True)
        ]
        return cls(next_segment_id=2 * len(topics), segments=_by_id((*old, *new)))

    def split(self, segment_id: int, now_ms: int) -> Self:
        """Return the layout after an active segment was divided in the middle; each child has half of its buckets.

        Raises:
            LayoutError: there is no such active segment, or it has one hash only.
        """
        parent = self._active(segment_id)
        return self._changed(parent.hash_range.split(), (parent,), now_ms, buckets=max(1, parent.buckets // 2))

    def merge(self, one_id: int, other_id: int, now_ms: int, max_buckets: int = MAX_BUCKETS) -> Self:
        """Return the layout after two active segments, next to each other, became one with the buckets of both.

        Args:
            one_id: of one of them.
            other_id: of the other one.
            now_ms: milliseconds since 1970.
            max_buckets: the most that brokers give a segment.

        Raises:
            LayoutError: one of them is not there or not active, or they are not neighbours.
        """
        # One that is not there counts before one that is sealed.
        self._segment(other_id)
        one, other = self._active(one_id), self._active(other_id)
        first, second = sorted((one, other), key=lambda segment: segment.hash_range.start)
        if not first.hash_range.precedes(second.hash_range):
            raise LayoutError(
                f"segments {one.descriptor} and {other.descriptor} are not neighbours", LayoutFault.NOT_NEIGHBOURS
            )
        both = HashRange(start=first.hash_range.start, end=second.hash_range.end)
        return self._changed([both], (one, other), now_ms, buckets=min(one.buckets + other.buckets, max_buckets))

    def rebucket(self, segment_id: int, buckets: int, now_ms: int) -> Self:
        """Return the layout after an active segment was replaced by one of the same hashes with other entry buckets.

        Raises:
            LayoutError: there is no such active segment, it has these buckets, or there cannot be so many.
        """
        parent = self._active(segment_id)
        if not 1 <= buckets <= MAX_BUCKETS:
            raise LayoutError(f"a segment cannot have {buckets} entry buckets; 1 to {MAX_BUCKETS} is possible")
        if parent.entry_bucket_splits == equal_splits(buckets):
            raise LayoutError(f"segment {parent.descriptor} has {buckets} equal entry buckets already")
        return self._changed([parent.hash_range], (parent,), now_ms, buckets=buckets)

    def prune(self, segment_id: int) -> Self:
        """Return the layout without a sealed segment, whose neighbours forget it.

        Raises:
            LayoutError: it is not there, or still takes messages.
        """
        if self._segment(segment_id).active:
            raise LayoutError(f"segment {segment_id} is active, and cannot be pruned")
        rest = {
            number: one.model_copy(
                update={
                    "parent_ids": tuple(parent for parent in one.parent_ids if parent != segment_id),
                    "child_ids": tuple(child for child in one.child_ids if child != segment_id),
                }
            )
            for number, one in self.segments.items()
            if number != segment_id
        }
        return self.model_copy(update={"epoch": self.epoch + 1, "segments": rest})

    # What is asked of it ----------------------------------------------------------------------------------------------

    @property
    def active(self) -> list[SegmentInfo]:
        """Those that take messages, in the order of their hashes."""
        found = [segment for segment in self.segments.values() if segment.active]
        return sorted(found, key=lambda one: (one.hash_range.start, one.hash_range.end, one.segment_id))

    def find(self, value: int) -> SegmentInfo:
        """Return the active segment of a hash.

        Raises:
            LayoutError: no active segment has it.
        """
        for one in self.active:
            if value in one.hash_range:
                return one
        raise LayoutError(f"no active segment has the hash {value:04x}")

    def route(self, key: str) -> SegmentInfo:
        """Where producers send messages with a key: as in a partitioned topic, as long as it is one (PIP-475)."""
        raw, active = key_hash(key), self.active
        if active and all(one.legacy for one in active):
            return self._segment((raw & 0x7FFF_FFFF) % len(active))
        return self.find(raw >> 16)

    def ancestors(self, segment_id: int) -> list[SegmentInfo]:
        """Return those from which a segment came, each once, parents before their children."""
        found: set[int] = set()
        left = [*self._segment(segment_id).parent_ids]
        while left:
            parent = left.pop()
            if parent not in found:
                found.add(parent)
                left += self._segment(parent).parent_ids
        # A child's id is always the higher one.
        return [self.segments[number] for number in sorted(found)]

    def _segment(self, segment_id: int) -> SegmentInfo:
        if segment_id not in self.segments:
            there = ", ".join(map(str, self.segments))
            raise LayoutError(f"there is no segment {segment_id}; there are {there}", LayoutFault.SEGMENT_NOT_FOUND)
        return self.segments[segment_id]

    def _active(self, segment_id: int) -> SegmentInfo:
        found = self._segment(segment_id)
        if not found.active:
            raise LayoutError(f"segment {segment_id} is sealed", LayoutFault.SEGMENT_SEALED)
        return found

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
