"""What the metadata store keeps of a topic with a controller of ours: its layout, and a change of it that is under way.

The JSON is that of PIP-468 ("Metadata"), as brokers of Pulsar 5.0 write it for their own topics, with fields of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Self

from pydantic import Field

from models.segments.layout import SegmentLayout
from models.segments.segment import LayoutError, SegmentInfo, Stored


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

    def apply(self, layout: SegmentLayout, now_ms: int) -> SegmentLayout:
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

    def new_segments(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """The segments that it makes, without their times; errors are those of `applied`."""
        behind = self.apply(layout, 0)
        return [behind.segments[number] for number in range(layout.next_segment_id, behind.next_segment_id)]

    def first_segment(self, record: ControlledLayout) -> int:
        """The first id that it makes, by a record in which it is under way or done."""
        if record.last != self:
            return record.next_segment_id
        # Ids of changes that were given up since are used up as well, and parents may be pruned.
        return min(number for number, one in record.segments.items() if one.created_at_epoch == self.epoch + 1)

    def old_segments(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """The segments that it seals, in the order in which they are."""
        return [layout.segments[number] for number in self.segments]

    def __str__(self) -> str:
        return f"{self.change} of {' and '.join(map(str, self.segments))}"


class Retired(Stored):
    """A segment that is not in the layout any more, and whose topic is still there.

    Attributes:
        segment_id: its id.
        descriptor: its part of the topic's name.
        removed_at_ms: when it left the layout, in milliseconds since 1970.
    """

    segment_id: int
    descriptor: str
    removed_at_ms: int


class ControlledLayout(SegmentLayout):
    """The record of a topic.

    Attributes:
        created_ms: when the topic was created, in milliseconds since 1970; one of the same name later has another.
        pending: the change that is under way: its new segments may be there, and its old ones may be ended.
        last: the newest change that is part of the layout.
        deleting: the topic is being deleted, and nothing else is done with it.
        controller_urls: where consumers reach the controller's REST interface.
        retired: segments that were pruned, or made for a change that was given up, and whose topics are still there.
    """

    created_ms: int
    pending: Mutation | None = Field(default=None, exclude_if=lambda value: value is None)
    last: Mutation | None = Field(default=None, exclude_if=lambda value: value is None)
    deleting: bool = Field(default=False, exclude_if=lambda value: not value)
    controller_urls: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    retired: tuple[Retired, ...] = Field(default=(), exclude_if=lambda value: not value)

    @classmethod
    def created(
        cls, segments: int, properties: dict[str, str], now_ms: int, controller_urls: tuple[str, ...] = ()
    ) -> Self:
        """The record of a new topic of equal segments."""
        plain = cls.model_validate({**SegmentLayout.initial(segments, now_ms).model_dump(), "created_ms": now_ms})
        return plain.model_copy(update={"properties": properties, "controller_urls": controller_urls})

    @property
    def changed_at_ms(self) -> int:
        """Return when segments last split or merged, in milliseconds since 1970; 0 for never.

        A new segment is always active or the parent of newer ones, so pruning takes nothing away from this.
        """
        return max(
            (segment.created_at_ms for segment in self.segments.values() if segment.created_at_epoch > 0), default=0
        )

    @property
    def plain(self) -> SegmentLayout:
        """The layout, without what only the controller needs."""
        return SegmentLayout(
            epoch=self.epoch,
            next_segment_id=self.next_segment_id,
            segments=self.segments,
            properties=self.properties,
        )

    def too_old(self, epoch: int) -> str:
        """Why this record cannot be used where clients have the layout of a later epoch, with the cure."""
        return (
            f"the layout in the metadata store is of epoch {self.epoch}, and clients have that of {epoch}: somebody "
            "has put an old one back. Put the newest message with the key layout of the layout topic there"
        )

    def with_next_segment(self, first_segment: int | None) -> Self:
        """The record in which the next segment has this id; None for the one that it has."""
        return self if first_segment is None else self.model_copy(update={"next_segment_id": first_segment})

    def with_pending(self, mutation: Mutation) -> Self:
        """The record while a change is under way.

        Raises:
            LayoutError: it does not fit the layout, or another one is under way.
        """
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is under way")
        mutation.apply(self, 0)
        return self.model_copy(update={"pending": mutation})

    def without_pending(self, mutation: Mutation, now_ms: int, taken: Collection[int] = ()) -> Self:
        """The record without a change that was begun, and has ended nothing; another one stays.

        What was made for it is to be deleted, and its ids come no more: an attempt that comes late deletes nothing that
        another change makes.

        Args:
            mutation: the change.
            now_ms: the time.
            taken: ids whose topics hold what is not ours, and stay.
        """
        if self.pending != mutation:
            return self
        return self.with_skipped_ids(mutation, now_ms, taken).model_copy(update={"pending": None})

    def with_skipped_ids(self, mutation: Mutation, now_ms: int, taken: Collection[int]) -> Self:
        """Return the record in which a change that is under way makes its segments with the next ids.

        Args:
            mutation: the change; the record stays as it is where another one is under way.
            now_ms: the time.
            taken: ids whose topics hold what is not ours; other topics that were made are to be deleted.
        """
        if self.pending != mutation:
            return self
        made = mutation.new_segments(self)
        gone = [
            Retired(segment_id=one.segment_id, descriptor=one.descriptor, removed_at_ms=now_ms)
            for one in made
            if one.segment_id not in taken  # mutant: topic-controller/topics-of-others-are-deleted
        ]
        # mutant: topic-controller/ids-of-taken-topics-are-used
        changed = {"next_segment_id": self.next_segment_id + len(made), "retired": (*self.retired, *gone)}
        return self.model_copy(update=changed)

    def with_commit(self, now_ms: int) -> Self:
        """The record behind the change that is under way."""
        assert self.pending is not None, "a change is under way"
        layout = self.pending.apply(self, now_ms)
        changed = {"epoch": layout.epoch, "next_segment_id": layout.next_segment_id, "segments": layout.segments}
        return self.model_copy(update={**changed, "pending": None, "last": self.pending})

    def with_controller_urls(self, controller_urls: tuple[str, ...]) -> Self:
        """The record with other addresses of the controller, which clients take as a change of the layout.

        Raises:
            LayoutError: a change of segments is under way, which is one of this epoch.
        """
        if self.controller_urls == controller_urls:
            return self
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is under way")
        return self.model_copy(update={"epoch": self.epoch + 1, "controller_urls": controller_urls})

    def without_segments(self, segments: Iterable[int], now_ms: int) -> Self:
        """The record without sealed segments, whose topics are to be deleted later.

        Raises:
            LayoutError: one is not there or takes messages, its parents would stay, or a change is under way.
        """
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is under way")
        record = self
        for number in sorted(segments):
            layout = record.prune(number)
            segment = record.segments[number]
            if not segment.root:  # mutant: topic-controller/prunes-children-first
                raise LayoutError(f"segment {number} has parents, which would not come before its children any more")
            gone = Retired(segment_id=number, descriptor=segment.descriptor, removed_at_ms=now_ms)
            record = layout.model_copy(update={"retired": (*record.retired, gone)})
        return record

    def without_retired(self, segments: Collection[int]) -> Self:
        """The record without pruned segments whose topics are gone."""
        left = tuple(one for one in self.retired if one.segment_id not in segments)
        return self.model_copy(update={"retired": left})


class PublishedLayout(Stored):
    """A message of the layout topic: all that clients need to know of a topic.

    Attributes:
        created_ms: tells topics of one name apart, in milliseconds since 1970.
        epoch: clients never go back in it.
        segments: by id.
        properties: of the topic.
        deleted: the topic is gone.
        controller_urls: where consumers reach the controller's REST interface.
    """

    created_ms: int
    epoch: int
    segments: dict[int, SegmentInfo]
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    deleted: bool = False
    controller_urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: ControlledLayout) -> Self:
        """What clients are told of a record."""
        return cls(
            created_ms=record.created_ms,
            epoch=record.epoch,
            segments=record.segments,
            properties=record.properties,
            deleted=record.deleting,
            controller_urls=record.controller_urls,
        )

    def encode(self) -> bytes:
        """The message's content, JSON."""
        return self.model_dump_json(by_alias=True).encode()
