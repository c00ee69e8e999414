"""Layout of a controlled topic as its controller publishes it, and the assignments in the same topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.registration import AssignedSegment, Assignment

LAYOUT_KEY = "layout"
_ACTIVE = "ACTIVE"


@dataclass(frozen=True)
class ControlledLayout(Layout):
    """Layout of a topic that a workflow controls.

    Attributes:
        created_ms: time of creation, milliseconds since 1970; distinguishes topics that had the same name.
        deleted: whether the topic was deleted.
        controller_urls: URLs of the controller's REST interface; empty if not published.
    """

    created_ms: int = 0
    deleted: bool = False
    controller_urls: tuple[str, ...] = ()

    @property
    def incarnation(self) -> int:
        """Number that distinguishes topics that had the same name."""
        return self.created_ms

    @property
    def is_deleted(self) -> bool:
        """True if the topic was deleted."""
        return self.deleted

    def topic_of(self, segment: Segment) -> str:
        """Return the topic that producers and consumers of a segment connect to."""
        return TopicName.parse(self.topic).segment_topic(segment.descriptor)

    def supersedes(self, other: Layout | None) -> bool:
        """Return whether this layout is newer; an epoch never decreases, unless the topic is a new one."""
        if not isinstance(other, ControlledLayout):
            return True
        if self.created_ms != other.created_ms:
            return self.created_ms > other.created_ms
        # A deletion has the epoch of the last change.
        return self.epoch > other.epoch or (self.epoch == other.epoch and self.deleted and not other.deleted)


def parse_layout(topic: TopicName, data: bytes) -> ControlledLayout:
    """Parse a layout that a controller published.

    Raises:
        ProtocolViolation: the data are not a layout.
    """
    try:
        fields = _object(data)
        segments = cast("Mapping[str, Any]", fields["segments"])
        return ControlledLayout(
            topic=topic.scalable,
            epoch=int(fields["epoch"]),
            segments=tuple(
                sorted((_segment(segment) for segment in segments.values()), key=lambda segment: segment.id)
            ),
            created_ms=int(fields["createdMs"]),
            deleted=bool(fields.get("deleted", False)),
            controller_urls=tuple(map(str, fields.get("controllerUrls") or ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ProtocolViolation(f"invalid layout in {topic.layout_topic}: {cause!r}") from cause


class AssignmentMessage(NamedTuple):
    """An assignment that the controller published or returned.

    Attributes:
        created_ms: time of the topic's creation; 0 if not sent.
        generation: never decreases for one consumer.
        assignment: segments for the consumer.
        evicted: the controller has removed the consumer, which must register again.
    """

    created_ms: int
    generation: int
    assignment: Assignment
    evicted: bool


def assignment_key(subscription: str, consumer_name: str) -> str:
    """Return the key of a consumer's assignments in the layout topic."""
    return f"assignment/{subscription}/{consumer_name}"


def parse_assignment(data: bytes) -> AssignmentMessage:
    """Parse an assignment: a message of the layout topic, or the answer to a registration.

    Raises:
        ProtocolViolation: the data are not an assignment.
    """
    try:
        fields = _object(data)
        segments = tuple(_assigned(segment) for segment in fields["segments"])
        created_ms = int(fields.get("createdMs", 0))
        return AssignmentMessage(
            created_ms=created_ms,
            generation=int(fields["generation"]),
            assignment=Assignment(int(fields["layoutEpoch"]), segments, created_ms),
            evicted=bool(fields.get("evicted", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ProtocolViolation(f"invalid assignment: {cause!r}: {data[:200]!r}") from cause


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, not {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _assigned(fields: Mapping[str, Any]) -> AssignedSegment:
    hashes = fields["hashRange"]
    return AssignedSegment(int(fields["segmentId"]), int(hashes["start"]), int(hashes["end"]), str(fields["topic"]))


def _segment(fields: Mapping[str, Any]) -> Segment:
    return Segment(
        id=int(fields["segmentId"]),
        start=int(fields["hashRange"]["start"]),
        end=int(fields["hashRange"]["end"]),
        active=fields["state"] == _ACTIVE,
        parents=tuple(map(int, fields.get("parentIds") or ())),
        children=tuple(map(int, fields.get("childIds") or ())),
    )
