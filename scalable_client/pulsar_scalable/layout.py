"""Segments of a scalable topic, and the choice of a message's segment (PIP-486, "Key routing"; PIP-468, "DAG").

Nothing here connects to a broker.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import mmh3

from pulsar_scalable.errors import LayoutError

HASHES = 0x1_0000
"""Number of hashes: 0 to 65535."""


def key_hash(key: str | bytes) -> int:
    """Return the raw hash of a key, 32 bits, unsigned: Murmur3, x86, seed 0, of its UTF-8 bytes.

    Its halves are independent: `segment_hash` chooses the segment, `bucket_hash` the entry bucket (PIP-486).
    """
    raw = key.encode() if isinstance(key, str) else key
    return mmh3.hash(raw, 0, signed=False)


def segment_hash(raw: int) -> int:
    """Return the half of a key's hash that chooses its segment, 0 to 65535."""
    return raw >> 16


def bucket_hash(raw: int) -> int:
    """Return the half of a key's hash that chooses its entry bucket in the segment, 0 to 65535."""
    return raw & 0xFFFF


def partition_hash(raw: int) -> int:
    """Return the 31 bits of a key's hash that choose a partition of a regular topic."""
    return raw & 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a scalable topic.

    Attributes:
        id: unique in its topic.
        start: the first hash, 0 to 65535.
        end: the last hash, inclusive.
        active: whether it accepts messages; a sealed segment is only read.
        parents: ids of the segments that it came from, if they still exist.
        children: ids of the segments that replaced it.
        legacy_topic: complete name of the regular topic that holds its messages (PIP-475, "Special segments").
        created_ms: when it was created, milliseconds since 1970; 0 if unknown.
    """

    id: int
    start: int
    end: int
    active: bool = True
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    legacy_topic: str | None = None
    created_ms: int = field(default=0, compare=False)

    def __contains__(self, value: int) -> bool:
        return self.start <= value <= self.end

    def overlaps(self, other: Segment) -> bool:
        """Return whether two segments have hashes in common."""
        return self.start <= other.end and other.start <= self.end

    @property
    def descriptor(self) -> str:
        """Last part of its topic's name."""
        return f"{self.start:04x}-{self.end:04x}-{self.id}"

    def topic(self, scalable: str) -> str:
        """Return the topic that producers and consumers of this segment connect to.

        Args:
            scalable: `topic://tenant/namespace/topic`, with any domain or without one.
        """
        return self.legacy_topic or f"segment://{scalable.partition('://')[2] or scalable}/{self.descriptor}"


@dataclass(frozen=True)
class Layout:
    """Segments of a scalable topic at one point in time.

    Attributes:
        topic: `topic://tenant/namespace/topic`.
        epoch: grows with each change of segments.
        segments: in the order of their ids.
        brokers: service URLs of the owners of active segments, by segment id, as far as the broker knew them.
        controller: service URL of the leading broker; None without a leader, and for regular topics.
        controller_tls: the same with TLS.
        generation: how often a watch has seen the topic deleted and created again.
        deleted: whether the topic was deleted; these were its segments.
    """

    topic: str
    epoch: int
    segments: tuple[Segment, ...]
    brokers: tuple[tuple[int, str], ...] = ()
    controller: str | None = None
    controller_tls: str | None = None
    generation: int = 0
    deleted: bool = False

    @cached_property
    def by_id(self) -> dict[int, Segment]:
        """Segments by their ids."""
        return {segment.id: segment for segment in self.segments}

    @cached_property
    def active(self) -> tuple[Segment, ...]:
        """Segments that accept messages, in the order of their hashes."""
        active = [segment for segment in self.segments if segment.active]
        return tuple(sorted(active, key=lambda segment: (segment.start, segment.end, segment.id)))

    @cached_property
    def synthetic(self) -> bool:
        """True if it describes a regular topic, which is not scalable yet."""
        return bool(self.active) and all(segment.legacy_topic for segment in self.active)

    @property
    def incarnation(self) -> int:
        """Number that distinguishes topics that had the same name; 0 if unknown."""
        return self.generation

    @property
    def is_deleted(self) -> bool:
        """True if the topic was deleted."""
        return self.deleted

    def segment_for(self, key: str | bytes | int) -> Segment:
        """Return the active segment of a key, or of a raw hash from `key_hash`.

        Raises:
            LayoutError: no active segment covers the hash.
        """
        raw = key if isinstance(key, int) else key_hash(key)
        if self.synthetic:
            # Same rule as for partitioned topics: a key must stay in its partition while clients are upgraded.
            wanted = partition_hash(raw) % len(self.active)
            partition = self.by_id.get(wanted)
            if partition is None or not partition.active:
                raise LayoutError(f"{self.topic} has no active segment {wanted} at epoch {self.epoch}")
            return partition
        value = segment_hash(raw)
        for segment in self.active:
            if value in segment:
                return segment
        raise LayoutError(f"no active segment of {self.topic} covers hash {value:04x} at epoch {self.epoch}")

    def topic_of(self, segment: Segment) -> str:
        """Return the topic that producers and consumers of a segment connect to."""
        return segment.topic(self.topic)

    def drain_order(self) -> tuple[Segment, ...]:
        """Return all segments, each after its parents: reading in this order keeps the order per key."""
        done: set[int] = set()
        order: list[Segment] = []
        remaining = list(self.segments)
        while remaining:
            ready = [
                segment
                for segment in remaining
                if all(parent in done or parent not in self.by_id for parent in segment.parents)
            ]
            if not ready:
                raise LayoutError(f"segments of {self.topic} are parents of each other")
            order += ready
            done.update(segment.id for segment in ready)
            remaining = [segment for segment in remaining if segment.id not in done]
        return tuple(order)

    def supersedes(self, other: Layout | None) -> bool:
        """Return whether this layout is newer than another one of the same topic; an epoch never decreases.

        A regular topic and the scalable one that it becomes have the same epoch, 0.
        """
        if other is None or self.epoch > other.epoch:
            return True
        return self.epoch == other.epoch and self != other and not (self.synthetic and not other.synthetic)

    def replaces(self, other: Layout) -> bool:
        """Return whether this layout belongs to a topic that was created after the other one was deleted.

        Its epochs start at 0 again. All its segments are younger than those of the other layout, which is never true
        for an older layout of the same topic.
        """
        if self.epoch > other.epoch or self.synthetic or other.synthetic or not (self.segments and other.segments):
            return False
        return min(segment.created_ms for segment in self.segments) > max(
            segment.created_ms for segment in other.segments
        )


class RoundRobin:
    """Chooses active segments in turn, for messages without a key; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0

    def segment(self, layout: Layout) -> Segment:
        """Return the next active segment.

        Raises:
            LayoutError: the layout has no active segment.
        """
        if not layout.active:
            raise LayoutError(f"{layout.topic} has no active segment at epoch {layout.epoch}")
        with self._lock:
            turn = self._next
            self._next += 1
        return layout.active[turn % len(layout.active)]


def synthetic(topic: str, parts: Iterable[str]) -> Layout:
    """Return the layout that brokers show for a regular topic (PIP-475, "Special segments").

    Args:
        topic: name of the future scalable topic.
        parts: complete names of its partitions in order, or of the topic itself if it is not partitioned.
    """
    names = list(parts)
    width = HASHES // len(names)
    segments = [
        Segment(
            id=number,
            start=number * width,
            end=HASHES - 1 if number == len(names) - 1 else (number + 1) * width - 1,
            legacy_topic=name,
        )
        for number, name in enumerate(names)
    ]
    return Layout(topic, 0, tuple(segments))
