"""What the metadata store keeps of a topic with a controller of ours: its layout, and a change of it that is under way.

The JSON is that of PIP-468 ("Metadata"), as brokers of 5.0.0-M1 write it for their own topics, with fields of ours.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field

from models.segment import LayoutError, SegmentInfo, Stored
from models.segment_layout import SegmentLayout


class Change(StrEnum):
    """What changes segments."""

    SPLIT = "split"
    MERGE = "merge"


class Mutation(Stored):
    """One change of segments. What it makes follows from the layout with which it began.

    Attributes:
        change: split or merge.
        segments: those that are sealed by it: one, or two neighbours.
        epoch: of the layout with which it began.
    """

    change: Change
    segments: tuple[int, ...]
    epoch: int

    def applied(self, layout: SegmentLayout, now_ms: int) -> SegmentLayout:
        """The layout behind it.

        Raises:
            LayoutError: it does not fit the layout.
        """
        if layout.epoch != self.epoch:
            raise LayoutError(f"{self} began with epoch {self.epoch}, and the layout is at {layout.epoch}")
        if self.change is Change.SPLIT:
            (segment,) = self.segments
            return layout.split(segment, now_ms)
        one, other = self.segments
        return layout.merge(one, other, now_ms)

    def made(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """The segments that it makes, without their times; errors are those of `applied`."""
        behind = self.applied(layout, 0)
        return [behind.segments[number] for number in range(layout.next_segment_id, behind.next_segment_id)]

    def sealed(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """The segments that it seals, in the order in which they are."""
        return [layout.segments[number] for number in self.segments]

    def __str__(self) -> str:
        return f"{self.change} of {' and '.join(map(str, self.segments))}"


class ControlledLayout(SegmentLayout):
    """The record of a topic.

    Attributes:
        created_ms: when the topic was created, in milliseconds since 1970; one of the same name later has another.
        pending: the change that is under way: its new segments may be there, and its old ones may be ended.
        last: the newest change that is part of the layout.
        deleting: the topic is being deleted, and nothing else is done with it.
    """

    created_ms: int
    pending: Mutation | None = Field(default=None, exclude_if=lambda value: value is None)
    last: Mutation | None = Field(default=None, exclude_if=lambda value: value is None)
    deleting: bool = Field(default=False, exclude_if=lambda value: not value)

    @classmethod
    def created(cls, segments: int, properties: dict[str, str], now_ms: int) -> Self:
        """The record of a new topic of equal segments."""
        plain = cls.model_validate({**SegmentLayout.initial(segments, now_ms).model_dump(), "created_ms": now_ms})
        return plain.model_copy(update={"properties": properties})

    @property
    def plain(self) -> SegmentLayout:
        """The layout, without what only the controller needs."""
        return SegmentLayout(
            epoch=self.epoch,
            next_segment_id=self.next_segment_id,
            segments=self.segments,
            properties=self.properties,
        )

    def begun(self, mutation: Mutation) -> Self:
        """The record while a change is under way.

        Raises:
            LayoutError: it does not fit the layout, or another one is under way.
        """
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is under way")
        mutation.applied(self, 0)
        return self.model_copy(update={"pending": mutation})

    def done(self, now_ms: int) -> Self:
        """The record behind the change that is under way."""
        assert self.pending is not None, "a change is under way"
        layout = self.pending.applied(self, now_ms)
        changed = {"epoch": layout.epoch, "next_segment_id": layout.next_segment_id, "segments": layout.segments}
        return self.model_copy(update={**changed, "pending": None, "last": self.pending})


class PublishedLayout(Stored):
    """A message of the layout topic: all that clients need to know of a topic.

    Attributes:
        created_ms: tells topics of one name apart, in milliseconds since 1970.
        epoch: clients never go back in it.
        segments: by id.
        properties: of the topic.
        deleted: the topic is gone.
    """

    created_ms: int
    epoch: int
    segments: dict[int, SegmentInfo]
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    deleted: bool = False

    @classmethod
    def of(cls, record: ControlledLayout) -> Self:
        """What clients are told of a record."""
        return cls(
            created_ms=record.created_ms,
            epoch=record.epoch,
            segments=record.segments,
            properties=record.properties,
            deleted=record.deleting,
        )

    def encode(self) -> bytes:
        """The message's content, JSON."""
        return self.model_dump_json(by_alias=True).encode()
