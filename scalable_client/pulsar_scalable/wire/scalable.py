"""Commands of scalable topics (PIP-468, "Client-Broker Protocol"; PIP-460).

Source: PulsarApi.proto of Pulsar 5.0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.wire.commands import Command, IntRange, KeyValue
from pulsar_scalable.wire.proto import (
    Message,
    flag,
    integer,
    integers,
    nested,
    nested_all,
    optional_integer,
    optional_text,
    text,
    texts,
)

_ACTIVE = 0


@dataclass(frozen=True, slots=True)
class SegmentInfoProto(Message):
    """One segment."""

    segment_id: int = integer(1)
    hash_start: int = integer(2)
    hash_end: int = integer(3)
    state: int = integer(4)
    parent_ids: tuple[int, ...] = integers(5)
    child_ids: tuple[int, ...] = integers(6)
    created_at_epoch: int | None = optional_integer(7)
    sealed_at_epoch: int | None = optional_integer(8)
    created_at_ms: int | None = optional_integer(9)
    sealed_at_ms: int | None = optional_integer(10)
    legacy_topic_name: str | None = optional_text(11)

    def segment(self) -> Segment:
        """The same in this client's words."""
        return Segment(
            id=self.segment_id,
            start=self.hash_start,
            end=self.hash_end,
            active=self.state == _ACTIVE,
            parents=self.parent_ids,
            children=self.child_ids,
            legacy_topic=self.legacy_topic_name or None,
            created_ms=self.created_at_ms or 0,
        )


@dataclass(frozen=True, slots=True)
class SegmentBrokerAddress(Message):
    """The owner of a segment."""

    segment_id: int = integer(1)
    broker_url: str | None = optional_text(2)
    broker_url_tls: str | None = optional_text(3)


@dataclass(frozen=True, slots=True)
class ScalableTopicDAG(Message):
    """The graph of all segments, and who leads."""

    epoch: int = integer(1)
    segments: tuple[SegmentInfoProto, ...] = nested_all(2, SegmentInfoProto)
    segment_brokers: tuple[SegmentBrokerAddress, ...] = nested_all(3, SegmentBrokerAddress)
    controller_broker_url: str | None = optional_text(4)
    controller_broker_url_tls: str | None = optional_text(5)

    def layout(self, topic: str) -> Layout:
        """The same in this client's words.

        Args:
            topic: `topic://tenant/namespace/topic`.
        """
        found = sorted((one.segment() for one in self.segments), key=lambda one: one.id)
        return Layout(
            topic=topic,
            epoch=self.epoch,
            segments=tuple(found),
            brokers=tuple((one.segment_id, one.broker_url) for one in self.segment_brokers if one.broker_url),
            controller=self.controller_broker_url or None,
            controller_tls=self.controller_broker_url_tls or None,
        )


@dataclass(frozen=True, slots=True)
class ScalableTopicLookup(Command):
    """Open a session that reports a topic's layout, and each change of it.

    Where `create_if_missing` is left out, a broker creates a missing topic that it may create automatically.
    """

    number: ClassVar[int] = 70
    session_id: int = integer(1)
    topic: str = text(2)
    create_if_missing: bool | None = flag(3)


@dataclass(frozen=True, slots=True)
class ScalableTopicUpdate(Command):
    """A layout, the first one too; or why there is none."""

    number: ClassVar[int] = 71
    session_id: int = integer(1)
    dag: ScalableTopicDAG | None = nested(2, ScalableTopicDAG)
    error: int | None = optional_integer(3)
    message: str | None = optional_text(4)
    resolved_topic_name: str | None = optional_text(5)


@dataclass(frozen=True, slots=True)
class ScalableTopicClose(Command):
    """End such a session."""

    number: ClassVar[int] = 72
    session_id: int = integer(1)


@dataclass(frozen=True, slots=True)
class ScalableAssignedSegment(Message):
    """A segment that a consumer is to read.

    `bucket_ranges` is empty where it is the only consumer; else it is the full list of the segment's entry buckets,
    whose messages the broker shares among all consumers of the segment (PIP-486).
    """

    segment_id: int = integer(1)
    hash_start: int = integer(2)
    hash_end: int = integer(3)
    segment_topic: str = text(4)
    bucket_ranges: tuple[IntRange, ...] = nested_all(5, IntRange)


@dataclass(frozen=True, slots=True)
class ScalableConsumerAssignment(Message):
    """All segments that a consumer is to read."""

    layout_epoch: int = integer(1)
    segments: tuple[ScalableAssignedSegment, ...] = nested_all(2, ScalableAssignedSegment)


@dataclass(frozen=True, slots=True)
class ScalableTopicSubscribe(Command):
    """Register a consumer with the leader of the topic's controller; it stays as long as the connection."""

    number: ClassVar[int] = 73
    request_id: int = integer(1)
    topic: str = text(2)
    subscription: str = text(3)
    consumer_name: str = text(4)
    consumer_id: int = integer(5)
    consumer_type: int = integer(6)


@dataclass(frozen=True, slots=True)
class ScalableTopicSubscribeResponse(Command):
    """The first assignment; brokers may send an update before it."""

    number: ClassVar[int] = 74
    request_id: int = integer(1)
    error: int | None = optional_integer(2)
    message: str | None = optional_text(3)
    assignment: ScalableConsumerAssignment | None = nested(4, ScalableConsumerAssignment)


@dataclass(frozen=True, slots=True)
class ScalableTopicAssignmentUpdate(Command):
    """An assignment that takes the place of the last one."""

    number: ClassVar[int] = 75
    consumer_id: int = integer(1)
    assignment: ScalableConsumerAssignment | None = nested(2, ScalableConsumerAssignment)


@dataclass(frozen=True, slots=True)
class WatchScalableTopics(Command):
    """Open a session that tells a namespace's scalable topics; all filters have to match."""

    number: ClassVar[int] = 76
    watch_id: int = integer(1)
    namespace: str = text(2)
    property_filters: tuple[KeyValue, ...] = nested_all(3, KeyValue)
    current_hash: str | None = optional_text(4)


@dataclass(frozen=True, slots=True)
class ScalableTopicsSnapshot(Message):
    """All topics."""

    topics: tuple[str, ...] = texts(1)


@dataclass(frozen=True, slots=True)
class ScalableTopicsDiff(Message):
    """What changed."""

    added: tuple[str, ...] = texts(1)
    removed: tuple[str, ...] = texts(2)


@dataclass(frozen=True, slots=True)
class WatchScalableTopicsUpdate(Command):
    """All topics at first, then what changed; or why nothing can be told."""

    number: ClassVar[int] = 77
    watch_id: int = integer(1)
    snapshot: ScalableTopicsSnapshot | None = nested(2, ScalableTopicsSnapshot)
    diff: ScalableTopicsDiff | None = nested(3, ScalableTopicsDiff)
    error: int | None = optional_integer(4)
    message: str | None = optional_text(5)


@dataclass(frozen=True, slots=True)
class WatchScalableTopicsClose(Command):
    """End such a session."""

    number: ClassVar[int] = 78
    watch_id: int = integer(1)


@dataclass(frozen=True, slots=True)
class ScalableTopicUnsubscribe(Command):
    """Leave a subscription: the controller gives the consumer's segments to others at once; answered with Success."""

    number: ClassVar[int] = 82
    request_id: int = integer(1)
    consumer_id: int = integer(2)
