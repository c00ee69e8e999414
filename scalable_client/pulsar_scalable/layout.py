"""The segments of a scalable topic, and which of them takes a message (PIP-486, "Key routing"; PIP-468, "DAG").

Nothing here talks to a broker.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import mmh3

from pulsar_scalable.errors import LayoutError

HASHES = 0x1_0000
"""How many hashes there are: 0 to 65535."""


def key_hash(key: str | bytes) -> int:
    """Return the raw hash of a key, 32 bits without a sign: Murmur3, x86, seed 0, of its UTF-8 bytes.

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
    """One segment.

    Attributes:
        id: unique in its topic.
        start: the first hash, 0 to 65535.
        end: the last hash, which belongs to the segment.
        active: whether it takes messages; a sealed one is only read.
        parents: ids of those that it came from and that are still there.
        children: ids of those that took over from it.
        legacy_topic: the regular topic that holds its messages, in full (PIP-475, "Special segments").
        created_ms: when it was created, milliseconds since 1970; 0 where that is not known.
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
        """Whether they have hashes in common."""
        return self.start <= other.end and other.start <= self.end

    @property
    def descriptor(self) -> str:
        """The last part of its topic's name."""
        return f"{self.start:04x}-{self.end:04x}-{self.id}"

    def topic(self, scalable: str) -> str:
        """The topic that producers and consumers of this segment attach to.

        Args:
            scalable: `topic://tenant/namespace/topic`, with any domain or none.
        """
        return self.legacy_topic or f"segment://{scalable.partition('://')[2] or scalable}/{self.descriptor}"


@dataclass(frozen=True)
class Layout:
    """All segments of a scalable topic at one time.

    Attributes:
        topic: `topic://tenant/namespace/topic`.
        epoch: grows with each change of segments.
        segments: in the order of their ids.
        brokers: service URLs of active segments' owners by segment id, as far as the broker knew them.
        controller: service URL of the broker that leads; None before any does, and for regular topics.
        controller_tls: the same with TLS.
        generation: how often the topic was seen to be deleted and created again by the one that follows it.
        deleted: the topic is gone, and these were its segments.
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
        """The segments by their ids."""
        return {segment.id: segment for segment in self.segments}

    @cached_property
    def active(self) -> tuple[Segment, ...]:
        """Those that take messages, in the order of their hashes."""
        found = [segment for segment in self.segments if segment.active]
        return tuple(sorted(found, key=lambda one: (one.start, one.end, one.id)))

    @cached_property
    def synthetic(self) -> bool:
        """Whether it only shows a regular topic, which was not made scalable yet."""
        return bool(self.active) and all(one.legacy_topic for one in self.active)

    @property
    def incarnation(self) -> int:
        """Tell topics of one name apart; 0 where that is not known."""
        return self.generation

    @property
    def is_deleted(self) -> bool:
        """Whether the topic is gone."""
        return self.deleted

    def segment_for(self, key: str | bytes | int) -> Segment:
        """Return the active segment of a key, or of a raw hash that `key_hash` gave.

        Raises:
            LayoutError: no active segment takes it.
        """
        raw = key if isinstance(key, int) else key_hash(key)
        if self.synthetic:
            # As partitioned topics do: a key must not change its partition while clients are replaced.
            wanted = partition_hash(raw) % len(self.active)
            partition = self.by_id.get(wanted)
            if partition is None or not partition.active:
                raise LayoutError(f"{self.topic} has no active segment {wanted} at epoch {self.epoch}")
            return partition
        value = segment_hash(raw)
        for segment in self.active:
            if value in segment:
                return segment
        raise LayoutError(f"no active segment of {self.topic} takes hash {value:04x} at epoch {self.epoch}")

    def topic_of(self, segment: Segment) -> str:
        """The topic that producers and consumers of a segment attach to."""
        return segment.topic(self.topic)

    def drain_order(self) -> tuple[Segment, ...]:
        """All segments, each behind all of its parents: the order that keeps messages of a key in order."""
        done: set[int] = set()
        order: list[Segment] = []
        left = list(self.segments)
        while left:
            ready = [one for one in left if all(parent in done or parent not in self.by_id for parent in one.parents)]
            if not ready:
                raise LayoutError(f"segments of {self.topic} are parents of each other")
            order += ready
            done.update(one.id for one in ready)
            left = [one for one in left if one.id not in done]
        return tuple(order)

    def supersedes(self, other: Layout | None) -> bool:
        """Whether it is to take the place of another one of the same topic; an epoch never goes back.

        A regular topic and the scalable one that it becomes have the same epoch, 0.
        """
        if other is None or self.epoch > other.epoch:
            return True
        return self.epoch == other.epoch and self != other and not (self.synthetic and not other.synthetic)

    def replaces(self, other: Layout) -> bool:
        """Whether it is of a topic that was created after the other one's was deleted.

        Its epochs begin with 0 again. All of its segments are younger than all of the other one's, which is never so
        for an older layout of the same topic.
        """
        if self.epoch > other.epoch or self.synthetic or other.synthetic or not (self.segments and other.segments):
            return False
        return min(segment.created_ms for segment in self.segments) > max(
            segment.created_ms for segment in other.segments
        )


class RoundRobin:
    """Takes turns over active segments, for messages without a key; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0

    def segment(self, layout: Layout) -> Segment:
        """The next active segment.

        Raises:
            LayoutError: there is none.
        """
        if not layout.active:
            raise LayoutError(f"{layout.topic} has no active segment at epoch {layout.epoch}")
        with self._lock:
            turn = self._next
            self._next += 1
        return layout.active[turn % len(layout.active)]


def synthetic(topic: str, parts: Iterable[str]) -> Layout:
    """A regular topic as brokers show it to clients of scalable topics (PIP-475, "Special segments").

    Args:
        topic: the name that it will have as a scalable one.
        parts: its partitions in their order, or the topic itself where it has none; in full.
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
