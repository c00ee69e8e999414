"""The record of a controlled topic in the metadata store: its layout, and the change that is in progress.

The JSON is that of PIP-468 ("Metadata"), as brokers of Pulsar 5.0 write it for their own topics, with our own fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Self

from pydantic import Field

from models.segments.layout import SegmentLayout
from models.segments.segment import LayoutError, SegmentInfo, Stored

ROOT = "/pulsar/pulsar-migrate"
"""Parent of the records of all controlled topics in the brokers' metadata store."""


class Change(StrEnum):
    """A kind of change of segments."""

    SPLIT = "split"
    MERGE = "merge"


class Mutation(Stored):
    """A split or a merge. The segments that it creates follow from the layout at its start.

    Attributes:
        change: split or merge.
        segments: ids of the segments that it seals: one, or two neighbours.
        epoch: epoch of the layout at its start.
    """

    change: Change
    segments: tuple[int, ...]
    epoch: int

    def apply(self, layout: SegmentLayout, now_ms: int) -> SegmentLayout:
        """Return the layout after the change.

        Raises:
            LayoutError: the change does not fit the layout.
        """
        if layout.epoch != self.epoch:
            raise LayoutError(f"{self} was prepared for epoch {self.epoch}, but the layout is at {layout.epoch}")
        if self.change is Change.SPLIT:
            (segment,) = self.segments
            return layout.split(segment, now_ms)
        first, second = self.segments
        return layout.merge(first, second, now_ms)

    def new_segments(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """Return the segments that the change creates, without their times; errors as in `apply`."""
        after = self.apply(layout, 0)
        return [after.segments[segment_id] for segment_id in range(layout.next_segment_id, after.next_segment_id)]

    def first_segment(self, record: ControlledLayout) -> int:
        """Return the first id that the change creates, from a record in which it is in progress or done."""
        if record.last != self:
            return record.next_segment_id
        # Later ids may belong to abandoned changes, and the parents may be pruned.
        return min(
            segment_id for segment_id, segment in record.segments.items() if segment.created_at_epoch == self.epoch + 1
        )

    def old_segments(self, layout: SegmentLayout) -> list[SegmentInfo]:
        """Return the segments that the change seals, in the order of `segments`."""
        return [layout.segments[segment_id] for segment_id in self.segments]

    def __str__(self) -> str:
        return f"{self.change} of {' and '.join(map(str, self.segments))}"


class Retired(Stored):
    """A segment that left the layout, and whose topic still exists.

    Attributes:
        segment_id: id of the segment.
        descriptor: the segment's part of the topic's name.
        removed_at_ms: when it left the layout, in milliseconds since 1970.
    """

    segment_id: int
    descriptor: str
    removed_at_ms: int


class ControlledLayout(SegmentLayout):
    """The record of a controlled topic.

    Attributes:
        created_ms: when the topic was created, in milliseconds since 1970; distinguishes topics of the same name.
        pending: the change in progress: its new segments may exist, and its old ones may be terminated.
        last: the newest change in the layout.
        deleting: the topic is being deleted, and accepts no other change.
        controller_urls: where consumers reach the controller's REST interface.
        retired: segments that were pruned, or created for an abandoned change, and whose topics still exist.
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
        """Return the record of a new topic with segments of equal size."""
        plain = cls.model_validate({**SegmentLayout.initial(segments, now_ms).model_dump(), "created_ms": now_ms})
        return plain.model_copy(update={"properties": properties, "controller_urls": controller_urls})

    @property
    def changed_at_ms(self) -> int:
        """When segments last split or merged, in milliseconds since 1970; 0 for never.

        Pruning does not change it: a new segment stays until it is the parent of newer ones.
        """
        return max(
            (segment.created_at_ms for segment in self.segments.values() if segment.created_at_epoch > 0), default=0
        )

    @property
    def plain(self) -> SegmentLayout:
        """The layout without the fields that only the controller needs."""
        return SegmentLayout(
            epoch=self.epoch,
            next_segment_id=self.next_segment_id,
            segments=self.segments,
            properties=self.properties,
        )

    def too_old(self, epoch: int) -> str:
        """Return why this record cannot be used where clients have the layout of a later epoch, and what to do."""
        return (
            f"the layout in the metadata store has epoch {self.epoch}, but clients have epoch {epoch}: an old record "
            "was restored. Replace it by the newest message with the key layout in the layout topic"
        )

    def with_next_segment(self, first_segment: int | None) -> Self:
        """Return the record with another id for the next segment; None keeps the id."""
        return self if first_segment is None else self.model_copy(update={"next_segment_id": first_segment})

    def with_pending(self, mutation: Mutation) -> Self:
        """Return the record with a change in progress.

        Raises:
            LayoutError: the change does not fit the layout, or another one is in progress.
        """
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is in progress")
        mutation.apply(self, 0)
        return self.model_copy(update={"pending": mutation})

    def without_pending(self, mutation: Mutation, now_ms: int, taken: Collection[int] = ()) -> Self:
        """Return the record without a change that has terminated no segment; with another change it is unchanged.

        Topics created for the change become retired, and its ids are not used again: a late attempt cannot delete what
        another change creates.

        Args:
            mutation: the change.
            now_ms: time in milliseconds since 1970.
            taken: ids whose topics contain data of others, and must not be deleted.
        """
        if self.pending != mutation:
            return self
        return self.with_skipped_ids(mutation, now_ms, taken).model_copy(update={"pending": None})

    def with_skipped_ids(self, mutation: Mutation, now_ms: int, taken: Collection[int]) -> Self:
        """Return the record in which the change in progress creates its segments with the next ids.

        Args:
            mutation: the change; a record with another change is unchanged.
            now_ms: time in milliseconds since 1970.
            taken: ids whose topics contain data of others; topics of the other ids become retired.
        """
        if self.pending != mutation:
            return self
        created = mutation.new_segments(self)
        retired = [
            Retired(segment_id=segment.segment_id, descriptor=segment.descriptor, removed_at_ms=now_ms)
            for segment in created
            if segment.segment_id not in taken  # mutant: topic-controller/topics-of-others-are-deleted
        ]
        # mutant: topic-controller/ids-of-taken-topics-are-used
        changed = {"next_segment_id": self.next_segment_id + len(created), "retired": (*self.retired, *retired)}
        return self.model_copy(update=changed)

    def with_commit(self, now_ms: int) -> Self:
        """Return the record after the commit of the change in progress."""
        assert self.pending is not None, "a change is in progress"
        layout = self.pending.apply(self, now_ms)
        changed = {"epoch": layout.epoch, "next_segment_id": layout.next_segment_id, "segments": layout.segments}
        return self.model_copy(update={**changed, "pending": None, "last": self.pending})

    def with_controller_urls(self, controller_urls: tuple[str, ...]) -> Self:
        """Return the record with other addresses of the controller; clients see this as a change of the layout.

        Raises:
            LayoutError: a change of segments is in progress, which depends on the epoch.
        """
        if self.controller_urls == controller_urls:
            return self
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is in progress")
        return self.model_copy(update={"epoch": self.epoch + 1, "controller_urls": controller_urls})

    def without_segments(self, segments: Iterable[int], now_ms: int) -> Self:
        """Return the record without sealed segments, whose topics are deleted later.

        Raises:
            LayoutError: a segment is missing or active, its parents would stay, or a change is in progress.
        """
        if self.pending is not None:
            raise LayoutError(f"the {self.pending} is in progress")
        record = self
        for segment_id in sorted(segments):
            layout = record.prune(segment_id)
            segment = record.segments[segment_id]
            if not segment.root:  # mutant: topic-controller/prunes-children-first
                raise LayoutError(f"segment {segment_id} still has parents in the layout; prune them first")
            retired = Retired(segment_id=segment_id, descriptor=segment.descriptor, removed_at_ms=now_ms)
            record = layout.model_copy(update={"retired": (*record.retired, retired)})
        return record

    def without_retired(self, segments: Collection[int]) -> Self:
        """Return the record without retired segments whose topics are deleted."""
        retired = tuple(segment for segment in self.retired if segment.segment_id not in segments)
        return self.model_copy(update={"retired": retired})


class PublishedLayout(Stored):
    """A message of the layout topic: all that clients need to know about a topic.

    Attributes:
        created_ms: when the topic was created, in milliseconds since 1970; distinguishes topics of the same name.
        epoch: epoch of the layout; clients ignore lower ones.
        segments: segments, by id.
        properties: properties of the topic.
        deleted: the topic is deleted.
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
        """Return the message for a record."""
        return cls(
            created_ms=record.created_ms,
            epoch=record.epoch,
            segments=record.segments,
            properties=record.properties,
            deleted=record.deleting,
            controller_urls=record.controller_urls,
        )

    def encode(self) -> bytes:
        """Return the content of the message as JSON."""
        return self.model_dump_json(by_alias=True).encode()
