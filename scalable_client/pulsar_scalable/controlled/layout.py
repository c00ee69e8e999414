"""The layout of a controlled topic as its controller publishes it, and the assignments that stand next to it."""

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
    """The layout of a topic that a workflow controls.

    Attributes:
        created_ms: tells topics of one name apart, in milliseconds since 1970.
        deleted: the topic is gone.
        controller_urls: where the controller's REST interface is, if it tells.
    """

    created_ms: int = 0
    deleted: bool = False
    controller_urls: tuple[str, ...] = ()

    @property
    def incarnation(self) -> int:
        """Tells topics of one name apart."""
        return self.created_ms

    @property
    def is_deleted(self) -> bool:
        """Whether the topic is gone."""
        return self.deleted

    def topic_of(self, segment: Segment) -> str:
        """The topic that producers and consumers of a segment attach to."""
        return TopicName.parse(self.topic).segment_topic(segment.descriptor)

    def supersedes(self, other: Layout | None) -> bool:
        """Whether it is to take the place of another one; an epoch never goes back, unless the topic is a new one."""
        if not isinstance(other, ControlledLayout):
            return True
        if self.created_ms != other.created_ms:
            return self.created_ms > other.created_ms
        # A deletion has the epoch of the last change.
        return self.epoch > other.epoch or (self.epoch == other.epoch and self.deleted and not other.deleted)


def parse_layout(topic: TopicName, data: bytes) -> ControlledLayout:
    """Read a layout as controllers publish it.

    Raises:
        ProtocolViolation: it is none.
    """
    try:
        told = _object(data)
        segments = cast("Mapping[str, Any]", told["segments"])
        return ControlledLayout(
            topic=topic.scalable,
            epoch=int(told["epoch"]),
            segments=tuple(sorted((_segment(segment) for segment in segments.values()), key=lambda one: one.id)),
            created_ms=int(told["createdMs"]),
            deleted=bool(told.get("deleted", False)),
            controller_urls=tuple(map(str, told.get("controllerUrls") or ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ProtocolViolation(f"{topic.layout_topic} holds what is no layout: {cause!r}") from cause


class Told(NamedTuple):
    """An assignment as the controller tells it.

    Attributes:
        created_ms: of the topic; 0 where it is not told.
        generation: never goes back for one consumer.
        assignment: what the consumer is to read.
        evicted: the controller has forgotten the consumer, which must register again.
    """

    created_ms: int
    generation: int
    assignment: Assignment
    evicted: bool


def assignment_key(subscription: str, consumer_name: str) -> str:
    """The key of a consumer's assignments in the layout topic."""
    return f"assignment/{subscription}/{consumer_name}"


def parse_assignment(data: bytes) -> Told:
    """Read an assignment: a message of the layout topic, or the answer to a registration.

    Raises:
        ProtocolViolation: it is none.
    """
    try:
        told = _object(data)
        segments = tuple(_assigned(one) for one in told["segments"])
        created_ms = int(told.get("createdMs", 0))
        return Told(
            created_ms=created_ms,
            generation=int(told["generation"]),
            assignment=Assignment(int(told["layoutEpoch"]), segments, created_ms),
            evicted=bool(told.get("evicted", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ProtocolViolation(f"this is no assignment: {cause!r}: {data[:200]!r}") from cause


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"{type(found).__name__} where an object is due")
    return cast("dict[str, Any]", found)


def _assigned(told: Mapping[str, Any]) -> AssignedSegment:
    hashes = told["hashRange"]
    return AssignedSegment(int(told["segmentId"]), int(hashes["start"]), int(hashes["end"]), str(told["topic"]))


def _segment(told: Mapping[str, Any]) -> Segment:
    return Segment(
        id=int(told["segmentId"]),
        start=int(told["hashRange"]["start"]),
        end=int(told["hashRange"]["end"]),
        active=told["state"] == _ACTIVE,
        parents=tuple(map(int, told.get("parentIds") or ())),
        children=tuple(map(int, told.get("childIds") or ())),
    )
