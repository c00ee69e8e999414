"""How producers and consumers work; the names are those of pulsar-client where it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_scalable.enums import Compression, ConsumerType, InitialPosition
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.native.message import MessageId

if TYPE_CHECKING:
    from pulsar_scalable.native.consumer import SegmentConsumer

OnEnd = Callable[["SegmentConsumer"], None]
OnSent = Callable[[ScalableError | None, MessageId | None], None]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer works; the names are those of pulsar-client's `create_producer`.

    Attributes:
        producer_name: unique on the topic; None lets the broker choose one.
        initial_sequence_id: that the last message before the first one has; None continues where the broker's
            deduplication is.
        send_timeout_millis: after which a message that is not stored fails; 0 for never.
        max_pending_messages: that may wait to be stored.
        block_if_queue_full: wait for room instead of raising `QueueFull`.
        compression_type: of payloads; NONE or ZLIB.
        properties: of the producer, which the topic's statistics show.
    """

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30_000
    max_pending_messages: int = 1000
    block_if_queue_full: bool = False
    compression_type: Compression = Compression.NONE
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer works; the names are those of pulsar-client's `subscribe` where it has them.

    Attributes:
        consumer_type: how the subscription is shared.
        buckets: all entry buckets of a segment, first and last hash of each, by which a Key_Shared subscription shares
            it; empty to share it by the hashes of keys.
        initial_position: where the subscription begins if it is new.
        receiver_queue_size: messages that are held ready, 1 at least.
        consumer_name: None lets the broker choose one; Failover consumers take turns in the order of names.
        negative_ack_redelivery_delay_ms: between a negative acknowledgement and the request to send again.
        ack_receipt_enabled: wait for the broker's answer to each acknowledgement.
        priority_level: lower ones are served first.
        properties: of the consumer, which the topic's statistics show.
        end_of_topic: called when the topic is terminated and all of it was sent to this subscription; messages of it
            may still wait to be received. It is called in the connection's thread, and must not wait.
        start_message_id: makes a reader of it: the subscription is gone with its connection, and begins behind this
            message; messages of its batch come again. None for a durable subscription.
        create_topic: whether brokers may make the topic, where they are allowed to.
    """

    consumer_type: ConsumerType = ConsumerType.Exclusive
    initial_position: InitialPosition = InitialPosition.Latest
    receiver_queue_size: int = 1000
    consumer_name: str | None = None
    negative_ack_redelivery_delay_ms: int = 60_000
    ack_receipt_enabled: bool = False
    priority_level: int | None = None
    properties: Mapping[str, str] | None = None
    end_of_topic: OnEnd | None = None
    start_message_id: MessageId | None = None
    create_topic: bool = True
    buckets: tuple[tuple[int, int], ...] = ()
