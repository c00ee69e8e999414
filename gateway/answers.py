"""Bodies of the gateway's answers: reasons as brokers give them, and the gateway's own statistics."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from models.segments.segment import SegmentState, SubscriptionKind
from models.topic_controller.names import segment_topic
from models.topic_controller.state import ControllerStatus, SegmentStats, TopicReport


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Reason(_Answer):
    """Reason for which a request is refused.

    Attributes:
        reason: cause and cure.
    """

    reason: str


class Health(_Answer):
    """Health of the gateway.

    Attributes:
        status: `ok`.
    """

    status: str = "ok"


class SegmentFigures(_Answer):
    """A segment as its broker sees it.

    Attributes:
        name: of its topic, in full.
        state: whether it takes messages.
        msg_rate_in: messages per second.
        bytes_rate_in: bytes per second.
        storage_size: bytes on bookies.
        producer_count: connected producers.
        backlog: messages that are not acknowledged, by subscription.
        consumers: connected consumers, by subscription.
        unavailable_reason: why the broker gave no figures; left out if it did.
    """

    name: str
    state: SegmentState
    msg_rate_in: float
    bytes_rate_in: float
    storage_size: int
    producer_count: int
    backlog: dict[str, int]
    consumers: dict[str, int]
    unavailable_reason: str = Field(default="", exclude_if=lambda text: not text)

    @classmethod
    def of(cls, topic: str, stats: SegmentStats) -> Self:
        """Return the statistics of a segment, as the controller reports them."""
        return cls(
            name=segment_topic(topic, stats.descriptor),
            state=SegmentState.ACTIVE if stats.active else SegmentState.SEALED,
            msg_rate_in=stats.messages_in,
            bytes_rate_in=stats.bytes_in,
            storage_size=stats.stored_bytes,
            producer_count=stats.producers,
            backlog=stats.backlog,
            consumers=stats.consumers,
            unavailable_reason=stats.unavailable_reason,
        )


class SubscriptionFigures(_Answer):
    """A subscription.

    Attributes:
        consumer_count: sessions, if it is ordered; else the most consumers that are connected to one segment.
        type: how it is consumed; None if only its consumers have created it.
        msg_backlog: messages that are not acknowledged, on all segments.
    """

    consumer_count: int
    type: SubscriptionKind | None
    msg_backlog: int


class TopicFigures(_Answer):
    """Statistics of a topic (PIP-468, "Get aggregated stats").

    Attributes:
        epoch: of the layout.
        total_segments, active_segments, sealed_segments: how many there are.
        segments: by id.
        subscriptions: by name.
    """

    epoch: int
    total_segments: int
    active_segments: int
    sealed_segments: int
    segments: dict[int, SegmentFigures]
    subscriptions: dict[str, SubscriptionFigures]

    @classmethod
    def of(cls, topic: str, report: TopicReport, status: ControllerStatus) -> Self:
        """Return the statistics of a topic, as the controller reports them."""
        active = sum(1 for segment in report.segments if segment.active)
        return cls(
            epoch=report.epoch,
            total_segments=len(report.segments),
            active_segments=active,
            sealed_segments=len(report.segments) - active,
            segments={segment.segment: SegmentFigures.of(topic, segment) for segment in report.segments},
            subscriptions=_subscriptions(report, status),
        )


def _subscriptions(report: TopicReport, status: ControllerStatus) -> dict[str, SubscriptionFigures]:
    def consumers(name: str) -> int:
        if status.subscriptions.get(name) is SubscriptionKind.STREAM:
            return status.consumers.get(name, 0)
        return max((segment.consumers.get(name, 0) for segment in report.segments), default=0)

    return {
        name: SubscriptionFigures(
            consumer_count=consumers(name), type=status.subscriptions.get(name), msg_backlog=backlog
        )
        for name, backlog in sorted(report.subscriptions.items())
    }
