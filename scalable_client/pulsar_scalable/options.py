"""Options of producers and consumers; the names are those of pulsar-client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_scalable.enums import Compression, ConsumerType, InitialPosition
from pulsar_scalable.errors import Unsupported

_LEAST_OF_PRODUCERS = {
    "send_timeout_millis": 0,
    "max_pending_messages": 1,
    "batching_max_messages": 1,
    "batching_max_allowed_size_in_bytes": 1,
    "batching_max_publish_delay_ms": 0,
}


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer works.

    Attributes:
        producer_name: unique on the topic; the same on each segment. None lets brokers choose one for each.
        initial_sequence_id: that the last message before the first one of a segment has; None continues where the
            segment's deduplication is.
        send_timeout_millis: after which a message that is not stored fails; 0 for never.
        max_pending_messages: that may wait to be stored, on all segments together.
        block_if_queue_full: wait for room instead of raising `QueueFull`.
        compression_type: of payloads; on native topics NONE and ZLIB only.
        batching_enabled: put messages together; native topics send each on its own all the same.
        batching_max_messages: of a batch.
        batching_max_allowed_size_in_bytes: of a batch.
        batching_max_publish_delay_ms: that a message waits for others.
        properties: of the producer, which statistics of segments show.
    """

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30_000
    max_pending_messages: int = 1000
    block_if_queue_full: bool = False
    compression_type: Compression = Compression.NONE
    batching_enabled: bool = False
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Refuse what the library would refuse for each segment."""
        for name, least in _LEAST_OF_PRODUCERS.items():
            _require_number(name, getattr(self, name), least)
        _require_texts("properties", self.properties)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer works.

    Attributes:
        consumer_name: None lets this client choose one.
        receiver_queue_size: messages that each segment holds ready, 1 at least.
        unacked_messages_timeout_ms: after which a message that was received and not acknowledged comes again, 10,000
            at least; None for never. Native topics have none.
        negative_ack_redelivery_delay_ms: between a negative acknowledgement and the request to send again.
        initial_position: where the subscription begins, when it is new, on the segments that are there, sealed ones
            included; those that come later are read from their begin, whatever it is. Ordered subscriptions of
            controlled topics are created before, with an initial position of their own, and this does not count.
        properties: of the consumer, which statistics of segments show.
        consumer_type: how the subscription of each segment is shared.
        buckets: all entry buckets of a segment that several consumers of a stream share.
    """

    consumer_name: str | None = None
    receiver_queue_size: int = 1000
    unacked_messages_timeout_ms: int | None = None
    negative_ack_redelivery_delay_ms: int = 60_000
    initial_position: InitialPosition = InitialPosition.Earliest
    properties: Mapping[str, str] | None = None
    consumer_type: ConsumerType = ConsumerType.Shared
    buckets: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the library would refuse for each segment."""
        _require_number("receiver_queue_size", self.receiver_queue_size, 1)
        _require_number("negative_ack_redelivery_delay_ms", self.negative_ack_redelivery_delay_ms, 0)
        if self.unacked_messages_timeout_ms is not None:
            _require_number("unacked_messages_timeout_ms", self.unacked_messages_timeout_ms, 10_000)
        _require_texts("properties", self.properties)


def _require_number(name: str, found: object, least: int) -> None:
    if not isinstance(found, int) or not least <= found < 1 << 31:
        raise Unsupported(f"{name} has to be a number from {least} to 2^31 - 1, and is {found!r}")


def _require_texts(name: str, found: Mapping[str, str] | None) -> None:
    said: Mapping[Any, Any] = found or {}
    if not all(isinstance(text, str) for pair in said.items() for text in pair):
        raise Unsupported(f"{name} have to be texts by name, and are {found!r}")
