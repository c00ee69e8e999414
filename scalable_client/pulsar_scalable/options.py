"""Options of clients, producers, consumers and messages; the names are those of pulsar-client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from pulsar_scalable.enums import Compression, InitialPosition
from pulsar_scalable.errors import Unsupported

_LEAST_OF_PRODUCERS = {
    "send_timeout_millis": 0,
    "max_pending_messages": 1,
    "batching_max_messages": 1,
    "batching_max_allowed_size_in_bytes": 1,
    "batching_max_publish_delay_ms": 0,
}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client connects.

    Attributes:
        authentication: of `pulsar`; with native topics, `token` serves instead.
        token: for token authentication, or a function that gives it each time that it is needed; also for the
            controller's REST interface.
        operation_timeout_seconds: for each request.
        connection_timeout_ms: to connect and for the handshake.
        io_threads: of pulsar-client.
        logger: of pulsar-client, `pulsar.ConsoleLogger(…)` for example.
        listener_name: of brokers that are reached in several ways; controlled topics only.
        tls_trust_certs_file_path: authorities, PEM; None for the system's.
        tls_allow_insecure_connection: take any certificate.
        tls_validate_hostname: whether a certificate must name the broker's host.
        tls_certificate_file_path: of this client, PEM.
        tls_private_key_file_path: of that certificate.
        controller_url: of the controller's REST interface, `https://host:port`, where layouts do not name it.
        create_topics: whether a `topic://…` that does not exist may be created, with one segment, by brokers that
            create topics automatically. By default nothing is created.
    """

    authentication: Any = None
    token: str | Callable[[], str] | None = None
    operation_timeout_seconds: int = 30
    connection_timeout_ms: int = 10_000
    io_threads: int = 1
    logger: Any = None
    listener_name: str | None = None
    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = False
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None
    controller_url: str | None = None
    create_topics: bool = False


class MessageOptions(TypedDict, total=False):
    """What `send` and `send_async` take besides the content.

    Attributes:
        properties: of the message.
        partition_key: its key, which chooses the segment and orders messages; None for none.
        ordering_key: the key for Key_Shared subscriptions alone.
        sequence_id: for deduplication; None for the next of the segment. A message that is sent again with its key and
            its sequence id is stored once where the namespace has deduplication on, and its segment was neither split
            nor merged meanwhile.
        event_timestamp: milliseconds since 1970.
    """

    properties: Mapping[str, str] | None
    partition_key: str | None
    ordering_key: str | None
    sequence_id: int | None
    event_timestamp: int | None


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
    """

    consumer_name: str | None = None
    receiver_queue_size: int = 1000
    unacked_messages_timeout_ms: int | None = None
    negative_ack_redelivery_delay_ms: int = 60_000
    initial_position: InitialPosition = InitialPosition.Earliest
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Refuse what the library would refuse for each segment."""
        _require_number("receiver_queue_size", self.receiver_queue_size, 1)
        _require_number("negative_ack_redelivery_delay_ms", self.negative_ack_redelivery_delay_ms, 0)
        if self.unacked_messages_timeout_ms is not None:
            _require_number("unacked_messages_timeout_ms", self.unacked_messages_timeout_ms, 10_000)
        _require_texts("properties", self.properties)


def _require_number(name: str, found: object, least: int) -> None:
    if not isinstance(found, int) or not least <= found < 1 << 31:
        raise Unsupported(f"{name} must be a number from {least} to 2^31 - 1, and is {found!r}")


def _require_texts(name: str, found: Mapping[str, str] | None) -> None:
    said: Mapping[Any, Any] = found or {}
    if not all(isinstance(text, str) for pair in said.items() for text in pair):
        raise Unsupported(f"{name} must be texts by name, and are {found!r}")
