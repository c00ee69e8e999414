"""A segment of a scalable topic and the hashes that it takes, as brokers store them (PIP-468, 475 and 486)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator
from pydantic.alias_generators import to_camel

HASHES = 0x1_0000
"""Number of hashes: 0 to 65535."""

NOT_SEALED = -1
"""Epoch and time of a segment that is not sealed. PIP-468 says 0, but brokers write -1."""

MAX_BUCKETS = HASHES
"""The most entry buckets that a segment can have; brokers allow 1024, unless they are configured otherwise."""

_DERIVED = ("sealed", "active", "root", "leaf", "legacy")


class LayoutFault(StrEnum):
    """Reason why a change is not possible in a layout.

    SEGMENT_NOT_FOUND: the layout has no such segment.
    SEGMENT_SEALED: a segment takes no more messages.
    NOT_NEIGHBOURS: segments to be merged do not have neighbouring hashes.
    TOO_SMALL: a segment to be split has one hash only.
    OTHER: anything else; the same request may fit later.
    """

    SEGMENT_NOT_FOUND = "segment_not_found"
    SEGMENT_SEALED = "segment_sealed"
    NOT_NEIGHBOURS = "not_neighbours"
    TOO_SMALL = "too_small"
    OTHER = "other"


class LayoutError(ValueError):
    """Error: a change is not possible in this layout.

    Attributes:
        fault: the reason.
    """

    def __init__(self, reason: str, fault: LayoutFault = LayoutFault.OTHER) -> None:
        super().__init__(reason)
        self.fault = fault


class Stored(BaseModel):
    """Base of models that brokers store; unknown fields are preserved."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


class HashRange(Stored):
    """Range of hashes.

    Attributes:
        start: the first one, 0 to 65535.
        end: the last one, which belongs to the range.
    """

    start: int
    end: int

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        if not 0 <= self.start <= self.end < HASHES:
            raise ValueError(
                f"{self.start} to {self.end} is not a range of hashes; expected 0 <= start <= end < {HASHES}"
            )
        return self

    @property
    def size(self) -> int:
        """Number of hashes."""
        return self.end - self.start + 1

    def __contains__(self, value: int) -> bool:
        return self.start <= value <= self.end

    def __str__(self) -> str:
        return f"{self.start:04x}-{self.end:04x}"

    def split(self) -> tuple[HashRange, HashRange]:
        """Return both halves; if the size is odd, the first half is larger.

        Raises:
            LayoutError: the range has one hash only.
        """
        if self.size < 2:
            raise LayoutError(f"{self} has only one hash and cannot be split", LayoutFault.TOO_SMALL)
        middle = self.start + (self.end - self.start) // 2
        return HashRange(start=self.start, end=middle), HashRange(start=middle + 1, end=self.end)

    def precedes(self, other: HashRange) -> bool:
        """Return whether another range begins right after this one."""
        return self.end + 1 == other.start

    @classmethod
    def divided(cls, count: int) -> list[HashRange]:
        """Return the whole space in equal parts; the last takes the remainder.

        Raises:
            LayoutError: the count is not possible.
        """
        if not 1 <= count <= HASHES:
            raise LayoutError(f"the hash space cannot be divided into {count} segments; 1 to {HASHES} is possible")
        width = HASHES // count
        starts = range(0, count * width, width)
        return [
            cls(start=at, end=at + width - 1 if number < count else HASHES - 1) for number, at in enumerate(starts, 1)
        ]


FULL = HashRange(start=0, end=HASHES - 1)


class SegmentState(StrEnum):
    """Producers write to ACTIVE segments; a SEALED one is read only."""

    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


class SubscriptionKind(StrEnum):
    """Kind of a subscription of a scalable topic: STREAM is in order by key, QUEUE is shared."""

    STREAM = "STREAM"
    QUEUE = "QUEUE"


class SegmentInfo(Stored):
    """Segment of a scalable topic.

    Attributes:
        segment_id: unique in the topic, never reused.
        hash_range: hashes of its keys.
        state: active or sealed.
        parent_ids, child_ids: neighbours in the graph of segments; those that were pruned are not named any more.
        created_at_epoch, sealed_at_epoch: epochs of the layout.
        created_at_ms, sealed_at_ms: milliseconds since 1970.
        legacy_topic_name: the regular topic that holds its messages, in full (PIP-475, "Special segments").
        entry_bucket_splits: the first entry hash of every entry bucket but the first one, in ascending order; empty
            for one bucket (PIP-486).
    """

    segment_id: int
    hash_range: HashRange
    state: SegmentState = SegmentState.ACTIVE
    parent_ids: tuple[int, ...] = ()
    child_ids: tuple[int, ...] = ()
    created_at_epoch: int
    sealed_at_epoch: int = NOT_SEALED
    created_at_ms: int
    sealed_at_ms: int = NOT_SEALED
    legacy_topic_name: str | None = Field(default=None, exclude_if=lambda name: name is None)
    entry_bucket_splits: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_derived(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: field for name, field in cast("Mapping[str, object]", value).items() if name not in _DERIVED}

    @computed_field
    @property
    def sealed(self) -> bool:
        """True if the segment takes no more messages."""
        return self.state is SegmentState.SEALED

    @computed_field
    @property
    def active(self) -> bool:
        """True if producers write to the segment."""
        return self.state is SegmentState.ACTIVE

    @computed_field
    @property
    def root(self) -> bool:
        """True if the segment has no parents, or all were pruned."""
        return not self.parent_ids

    @computed_field
    @property
    def leaf(self) -> bool:
        """True if the segment has no children."""
        return not self.child_ids

    @computed_field
    @property
    def legacy(self) -> bool:
        """True if the messages are in a regular topic."""
        return self.legacy_topic_name is not None

    @property
    def buckets(self) -> int:
        """Number of entry buckets, at least 1."""
        return len(self.entry_bucket_splits) + 1

    @property
    def descriptor(self) -> str:
        """Its part of the segment's topic name: `{first hash}-{last hash}-{id}`."""
        return f"{self.hash_range}-{self.segment_id}"

    def topic(self, scalable: str) -> str:
        """Return the topic that holds its messages.

        Args:
            scalable: `tenant/namespace/topic`.
        """
        return self.legacy_topic_name or f"segment://{scalable}/{self.descriptor}"

    def sealed_by(self, children: Sequence[int], epoch: int, now_ms: int) -> SegmentInfo:
        """Return the segment after children replaced it."""
        return self.model_copy(
            update={
                "state": SegmentState.SEALED,
                "child_ids": tuple(children),
                "sealed_at_epoch": epoch,
                "sealed_at_ms": now_ms,
            }
        )


def equal_splits(buckets: int) -> tuple[int, ...]:
    """Return the borders of entry buckets of equal width, as brokers compute them.

    Args:
        buckets: how many; 1 to `MAX_BUCKETS`.
    """
    return tuple(number * HASHES // buckets for number in range(1, buckets))
