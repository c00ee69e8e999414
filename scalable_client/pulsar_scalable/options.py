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
    """Connection options of a client.

    Attributes:
        authentication: authentication object of `pulsar`; for native topics, use `token`.
        token: for token authentication, or a function that returns it each time; also for the
            controller's REST interface.
        token_hosts: hosts that may receive the token, besides those of the service URL and of `controller_url`: exact
            names, `.domain` for all hosts of a domain, addresses, and networks. pulsar-client, which sends the messages
            of controlled topics, follows brokers to every host.
        operation_timeout_seconds: for each request.
        connection_timeout_ms: to connect and for the handshake.
        io_threads: threads of pulsar-client.
        logger: logger of pulsar-client, for example `pulsar.ConsoleLogger(…)`.
        listener_name: advertised listener of the brokers; controlled topics only.
        tls_trust_certs_file_path: certificate authorities, PEM; None for the system's.
        tls_allow_insecure_connection: accept any certificate.
        tls_validate_hostname: whether a certificate must name the broker's host.
        tls_certificate_file_path: certificate of this client, PEM.
        tls_private_key_file_path: private key of that certificate.
        controller_url: URL of the controller's REST interface, `https://host:port`, if layouts do not name it. With a
            token, the URLs of layouts must have TLS and a host that may receive the token.
        create_topics: whether a `topic://…` that does not exist may be created, with one segment, by brokers that
            create topics automatically. By default nothing is created.
    """

    authentication: Any = None
    token: str | Callable[[], str] | None = None
    token_hosts: tuple[str, ...] = ()
    operation_timeout_seconds: int = 30
    connection_timeout_ms: int = 10_000
    io_threads: int = 1
    logger: Any = None
    listener_name: str | None = None
    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None
    controller_url: str | None = None
    create_topics: bool = False


class MessageOptions(TypedDict, total=False):
    """Options of `send` and `send_async`.

    Attributes:
        properties: of the message.
        partition_key: key that chooses the segment and orders messages; None for no key.
        ordering_key: key for Key_Shared subscriptions only.
        sequence_id: for deduplication; None for the next of the segment. A message that is sent again with the same key
            and sequence id is stored once, if the namespace has deduplication on and the segment was neither split nor
            merged in between.
        event_timestamp: milliseconds since 1970.
    """

    properties: Mapping[str, str] | None
    partition_key: str | None
    ordering_key: str | None
    sequence_id: int | None
    event_timestamp: int | None


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Options of a producer.

    Attributes:
        producer_name: unique on the topic, and the same on all segments; None lets brokers choose one for each.
        initial_sequence_id: sequence id before the first message of each segment; None continues where the segment's
            deduplication is.
        send_timeout_millis: time after which a message that is not stored fails; 0 for never.
        max_pending_messages: messages that may wait to be stored, on all segments together.
        block_if_queue_full: wait for room instead of raising `QueueFull`.
        compression_type: of payloads; on native topics NONE and ZLIB only.
        batching_enabled: send messages in batches; native topics ignore it.
        batching_max_messages: largest number of messages in a batch.
        batching_max_allowed_size_in_bytes: largest size of a batch.
        batching_max_publish_delay_ms: longest time that a message waits for its batch.
        properties: properties of the producer, shown in the statistics of segments.
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
        """Reject values that the client library would reject for each segment."""
        for name, minimum in _LEAST_OF_PRODUCERS.items():
            _require_number(name, getattr(self, name), minimum)
        _require_texts("properties", self.properties)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer.

    Attributes:
        consumer_name: None lets this client choose one.
        receiver_queue_size: messages that are prefetched from each segment, at least 1.
        unacked_messages_timeout_ms: time after which an unacknowledged message is redelivered, at least 10,000; None
            for never. Native topics do not support it.
        negative_ack_redelivery_delay_ms: delay between a negative acknowledgement and the redelivery request.
        initial_position: where a new subscription starts on the segments that exist then, sealed ones included.
            Segments that are created later are always read from their start. It has no effect on ordered subscriptions
            of controlled topics, which are created before with a position of their own.
        properties: properties of the consumer, shown in the statistics of segments.
    """

    consumer_name: str | None = None
    receiver_queue_size: int = 1000
    unacked_messages_timeout_ms: int | None = None
    negative_ack_redelivery_delay_ms: int = 60_000
    initial_position: InitialPosition = InitialPosition.Earliest
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Reject values that the client library would reject for each segment."""
        _require_number("receiver_queue_size", self.receiver_queue_size, 1)
        _require_number("negative_ack_redelivery_delay_ms", self.negative_ack_redelivery_delay_ms, 0)
        if self.unacked_messages_timeout_ms is not None:
            _require_number("unacked_messages_timeout_ms", self.unacked_messages_timeout_ms, 10_000)
        _require_texts("properties", self.properties)


def _require_number(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or not minimum <= value < 1 << 31:
        raise Unsupported(f"{name} must be a number from {minimum} to 2^31 - 1, and is {value!r}")


def _require_texts(name: str, properties: Mapping[str, str] | None) -> None:
    pairs: Mapping[Any, Any] = properties or {}
    if not all(isinstance(text, str) for pair in pairs.items() for text in pair):
        raise Unsupported(f"{name} must have string keys and values, and is {properties!r}")
