"""Scalable topics for tests, and operations on their segments."""

from __future__ import annotations

from itertools import count

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_scalable.errors import TimedOut
from pulsar_scalable.native import Message, SegmentConsumer

SUBSCRIPTION = "reader"
_LATE_MS = 30_000
_numbers = count(1)


def make_scalable(admin: PulsarAdmin, segments: int, kind: SubscriptionKind = SubscriptionKind.STREAM) -> TopicName:
    """Create a scalable topic without auto-scaling, with a recorded subscription."""
    name = TopicName.parse(f"public/default/native-client-{next(_numbers)}")
    admin.scalable_topics.create(name, segments)
    admin.scalable_topics.set_auto_scale_policy(name, AutoScalePolicy(enabled=False))
    admin.scalable_topics.register(name, SUBSCRIPTION, kind)
    return name


def scalable(name: TopicName) -> str:
    """Return `topic://tenant/namespace/topic`."""
    return f"topic://{name.local_path}"


def take_all(consumer: SegmentConsumer, least: int = 0, *, silence_ms: int = 1500) -> list[Message]:
    """Receive and acknowledge until no message arrives for a while.

    Args:
        consumer: of a segment.
        least: messages that are waited for longer, as a broker may send the first ones late.
        silence_ms: milliseconds without a message after these.
    """
    messages: list[Message] = []
    while True:
        try:
            message = consumer.receive(silence_ms if len(messages) >= least else _LATE_MS)
        except TimedOut:
            return messages
        consumer.acknowledge(message)
        messages.append(message)
