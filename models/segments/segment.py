"""A segment of a scalable topic and the hashes that it takes, as brokers store them (PIP-468, 475 and 486)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator
from pydantic.alias_generators import to_camel

HASHES = 0x1_0000
"""How many hashes there are: 0 to 65535."""

NOT_SEALED = -1
"""Epoch and time of a segment that is not sealed; the proposal says 0, brokers write this."""

MAX_BUCKETS = HASHES
"""The most entry buckets that a segment can have; brokers allow 1024, unless they are configured otherwise."""

_DERIVED = ("sealed", "active", "root", "leaf", "legacy")


class LayoutFault(StrEnum):
    """Why a change does not fit a layout, for programs.

    SEGMENT_NOT_FOUND: the layout has no such segment.
    SEGMENT_SEALED: a segment takes no messages any more.
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
    """What is asked for cannot be done with this layout.

    Attributes:
        fault: why, for programs.
    """

    def __init__(self, reason: str, fault: LayoutFault = LayoutFault.OTHER) -> None:
        super().__init__(reason)
        self.fault = fault


class Stored(BaseModel):
    """A part of what brokers store: fields that we do not know survive."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


class HashRange(Stored):
    """Neighbouring hashes.

    Attributes:
        start: the first one, 0 to 65535.
        end: the last one, which belongs to the range.
    """

    start: int
    end: int

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        if not 0 <= self.start <= self.end < HASHES:
            raise ValueError(f"{self.start} to {self.end} is no range of hashes")
        return self

    @property
    def size(self) -> int:
        """How many hashes it has."""
        return self.end - self.start + 1

    def __contains__(self, value: int) -> bool:
        return self.start <= value <= self.end

    def __str__(self) -> str:
        return f"{self.start:04x}-{self.end:04x}"

    def split(self) -> tuple[HashRange, HashRange]:
        """Return both halves; where the size is odd, the first has one more.

        Raises:
            LayoutError: it has one hash only.
        """
        if self.size < 2:
            raise LayoutError(f"{self} has one hash only, and cannot be split", LayoutFault.TOO_SMALL)
        middle = self.start + (self.end - self.start) // 2
        return HashRange(start=self.start, end=middle), HashRange(start=middle + 1, end=self.end)

    def precedes(self, other: HashRange) -> bool:
        """Return whether another range begins right after this one."""
        return self.end + 1 == other.start

    @classmethod
    def divided(cls, count: int) -> list[HashRange]:
        """Return the whole space in equal parts; the last takes the remainder.

        Raises:
            LayoutError: there are not so many hashes.
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
    """How a subscription of a scalable topic is consumed: by key in order, or by all consumers together."""

    STREAM = "STREAM"
    QUEUE = "QUEUE"


class SegmentInfo(Stored):
    """One segment.

    Attributes:
        segment_id: unique in the topic, never used again.
        hash_range: of the keys that it took or takes.
        state: whether it still takes messages.
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
        return {name: one for name, one in cast("Mapping[str, object]", value).items() if name not in _DERIVED}

    @computed_field
    @property
    def sealed(self) -> bool:
        """Whether it takes no messages any more."""
        return self.state is SegmentState.SEALED

    @computed_field
    @property
    def active(self) -> bool:
        """Whether producers write to it."""
        return self.state is SegmentState.ACTIVE

    @computed_field
    @property
    def root(self) -> bool:
        """Whether it has no parents, or all of them were pruned."""
        return not self.parent_ids

    @computed_field
    @property
    def leaf(self) -> bool:
        """Whether it has no children."""
        return not self.child_ids

    @computed_field
    @property
    def legacy(self) -> bool:
        """Whether its messages are in a regular topic."""
        return self.legacy_topic_name is not None

    @property
    def buckets(self) -> int:
        """Return the number of its entry buckets, at least 1."""
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
        """Return the same segment once children have taken over."""
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
