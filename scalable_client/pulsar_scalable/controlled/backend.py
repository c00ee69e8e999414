"""Backend for topics that a workflow controls."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any

from pulsar_scalable.controlled.follower import Follower
from pulsar_scalable.controlled.library import Library, close_quietly, error_of, pulsar, translated
from pulsar_scalable.controlled.rest import ConsumerKey, RestAccess
from pulsar_scalable.controlled.sessions import ControlledSession
from pulsar_scalable.enums import ConsumerKind, ConsumerType
from pulsar_scalable.errors import AlreadyClosed, ConnectionLost, ScalableError, TopicNotFound
from pulsar_scalable.messages import RawMessage
from pulsar_scalable.names import TopicName
from pulsar_scalable.native_backend import NativeBackend
from pulsar_scalable.options import ClientOptions, ConsumerOptions, ProducerOptions
from pulsar_scalable.ports import Content, EmptyReader, LayoutWatch, OnAssignment, OnLayout, OnStored, Sharing, Start

_logger = logging.getLogger("pulsar_scalable")
# Timeouts and the limit of pending messages apply to the whole scalable topic, and are enforced by its producer.
_NO_TIMEOUT, _SPARE = 0, 16
_READ_LIMIT_MS = 5000
_PAUSE = 0.05


class ControlledBackend:
    """Backend that uses pulsar-client for brokers, and REST for controllers.

    Args:
        service_url: service URL of the brokers.
        options: options of the client; a layout and an assignment must arrive within its operation timeout.
        access: access to controllers.
        native: backend for queries that pulsar-client lacks; None if it has no credentials.
    """

    def __init__(
        self,
        service_url: str,
        options: ClientOptions,
        access: RestAccess,
        native: NativeBackend | None,
    ) -> None:
        self._native = native
        self._library = Library(service_url, options, native.end_of if native else None)
        self._access = access
        self._timeout = options.operation_timeout_seconds

    def watch(self, topic: TopicName, on_layout: OnLayout) -> LayoutWatch:
        """Report the layout of a topic, and each newer one."""
        return Follower(
            self._library,
            topic,
            on_layout,
            reader_name=f"layout-{secrets.token_hex(5)}",
            timeout=self._timeout,
        )

    def register(
        self,
        topic: TopicName,
        subscription: str,
        consumer_name: str,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
    ) -> ControlledSession:
        """Register a consumer."""
        consumer = ConsumerKey(topic, subscription, consumer_name, secrets.token_hex(8))
        return ControlledSession(self._library, self._access, consumer, kind, on_assignment, timeout=self._timeout)

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> Sender:
        """Open a producer of a segment."""
        return Sender(self._library, topic, options, producer_name)

    def open_receiver(self, topic: str, subscription: str, options: ConsumerOptions, sharing: Sharing) -> Receiver:
        """Open a consumer of a segment."""
        return Receiver(self._library, topic, subscription, options, sharing.consumer_type)

    def open_reader(self, topic: str, start: Start) -> Reader | EmptyReader:
        """Open a reader of a segment."""
        if self._is_empty(topic):
            return EmptyReader()
        return Reader(self._library, topic, start)

    def _is_empty(self, topic: str) -> bool:
        # pulsar-client would retry again and again, without the reason.
        try:
            return self._native is not None and self._native.is_empty(topic)
        except TopicNotFound:
            raise
        except ScalableError as error:
            _logger.info("%s: %s", topic, error)
            return False

    def last_position(self, topic: str) -> bytes | None:
        """Return the serialised id of the last message of a segment."""
        return last_position(self._library, topic)

    def close(self) -> None:
        """Close all that is open."""
        self._library.close()


class Sender:
    """Sends messages to a segment."""

    def __init__(self, library: Library, topic: str, options: ProducerOptions, replaced: str | None = None) -> None:
        self._topic = topic
        with library.own_client() as self._client, translated(f"opening a producer of {topic}"):
            self._inner = self._client.create_producer(
                topic,
                producer_name=replaced or options.producer_name,
                initial_sequence_id=options.initial_sequence_id,
                send_timeout_millis=_NO_TIMEOUT,
                compression_type=pulsar.CompressionType(int(options.compression_type)),
                max_pending_messages=options.max_pending_messages + _SPARE,
                # Deduplication drops a batch by its first message, so messages that may be stored are resent one by
                # one.
                batching_enabled=options.batching_enabled and replaced is None,
                batching_max_messages=options.batching_max_messages,
                batching_max_allowed_size_in_bytes=options.batching_max_allowed_size_in_bytes,
                batching_max_publish_delay_ms=options.batching_max_publish_delay_ms,
                properties=dict(options.properties) if options.properties else None,
            )
        self.producer_name: str = self._inner.producer_name()
        self._last: int = self._inner.last_sequence_id()

    @property
    def is_connected(self) -> bool:
        """True if pulsar-client has a connection."""
        return self._inner.is_connected()

    def last_sequence_id(self) -> int:
        """Return the sequence id that deduplication knew when this was opened; -1 for none."""
        return self._last

    def send(self, content: Content, sequence_id: int, on_stored: OnStored) -> None:
        """Send a message."""

        def called_back(result: Any, message_id: Any) -> None:
            # An exception here would end the process.
            try:
                if result == pulsar.Result.Ok:
                    on_stored(None, message_id)
                else:
                    on_stored(error_of(result.name, f"storing message {sequence_id} of {self._topic}"), None)
            except Exception:
                _logger.exception("%s: the outcome of message %d cannot be reported", self._topic, sequence_id)

        try:
            with translated(f"sending to {self._topic}"):
                self._inner.send_async(
                    content.data,
                    called_back,
                    properties=content.properties,
                    partition_key=content.partition_key,
                    ordering_key=content.ordering_key,
                    sequence_id=sequence_id,
                    event_timestamp=content.event_timestamp,
                )
        except ScalableError as error:
            on_stored(error, None)

    def close(self) -> None:
        """Close it."""
        # pulsar-client logs an error if it has closed the producer of a terminated topic itself.
        if self._inner.is_connected():
            close_quietly(self._inner)
        close_quietly(self._client)


class Receiver:
    """Receives the messages of a segment for a subscription."""

    def __init__(
        self, library: Library, topic: str, subscription: str, options: ConsumerOptions, consumer_type: ConsumerType
    ) -> None:
        self._topic = topic
        with library.own_client() as self._client, translated(f"subscribing {subscription} to {topic}"):
            self._inner = self._client.subscribe(
                topic,
                subscription,
                consumer_type=pulsar.ConsumerType(int(consumer_type)),
                initial_position=pulsar.InitialPosition(int(options.initial_position)),
                receiver_queue_size=options.receiver_queue_size,
                consumer_name=options.consumer_name,
                unacked_messages_timeout_ms=options.unacked_messages_timeout_ms,
                negative_ack_redelivery_delay_ms=options.negative_ack_redelivery_delay_ms,
                properties=dict(options.properties) if options.properties else None,
            )

    def receive(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        with translated(f"receiving from {self._topic}"):
            return self._inner.receive(timeout_millis)

    def acknowledge(self, message_id: Any) -> None:
        """Acknowledge a message."""
        with translated(f"acknowledging in {self._topic}"):
            self._inner.acknowledge(message_id)

    def acknowledge_cumulative(self, message_id: Any) -> None:
        """Acknowledge all messages up to this one."""
        with translated(f"acknowledging in {self._topic}"):
            self._inner.acknowledge_cumulative(message_id)

    def negative_acknowledge(self, message: RawMessage) -> None:
        """Request redelivery of a message."""
        with translated(f"acknowledging in {self._topic}"):
            self._inner.negative_acknowledge(message)

    @property
    def is_drained(self) -> bool | None:
        """None: brokers report it, but pulsar-client does not pass it on to Python."""
        return None

    def close(self) -> None:
        """Close it."""
        close_quietly(self._inner)
        close_quietly(self._client)


class Reader:
    """Reads a segment without a durable subscription."""

    def __init__(self, library: Library, topic: str, start: Start) -> None:
        self._topic = topic
        with library.own_client(start.answer_limit) as self._client, translated(f"opening a reader of {topic}"):
            position, inclusive = pulsar.MessageId.earliest, False
            if start.after is not None:
                position = pulsar.MessageId.deserialize(start.after)
            elif start.time_ms is not None:
                position, inclusive = _start_at(self._client, topic, start.time_ms)
            self._inner = self._client.create_reader(topic, position, start_message_id_inclusive=inclusive)

    def read_next(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        with translated(f"reading {self._topic}"):
            return self._inner.read_next(timeout_millis)

    def has_message_available(self) -> bool:
        """Return whether there is a next message now."""
        # pulsar-client would wait for its whole timeout, and can never open some sealed segments again.
        if not self._inner.is_connected():
            raise ConnectionLost(f"{self._topic}: the reader has no connection")
        with translated(f"reading {self._topic}"):
            try:
                return self._inner.has_message_available()
            except RuntimeError as cause:
                raise AlreadyClosed(f"{self._topic}: {cause}") from cause

    def close(self) -> None:
        """Close it."""
        close_quietly(self._inner)
        close_quietly(self._client)


def _start_at(client: Any, topic: str, time_ms: int) -> tuple[Any, bool]:
    """Return the position for all messages since a time, and whether it is inclusive."""
    # A reader that prefetches while it seeks reaches the end of a sealed segment, and its connection breaks.
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=1)
    try:
        reader.seek(time_ms)
        if not _has_message_after_seek(reader):
            return pulsar.MessageId.latest, False
        return reader.read_next(_READ_LIMIT_MS).message_id(), True
    finally:
        close_quietly(reader)


def _has_message_after_seek(reader: Any) -> bool:
    """Return whether there is a next message.

    A seek disconnects the reader, and until it is back the broker answers that it knows no such consumer.
    """
    end = time.monotonic() + _READ_LIMIT_MS / 1000
    while True:
        try:
            return reader.has_message_available()
        except pulsar.BrokerMetadataError:
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


def last_position(library: Library, topic: str) -> bytes | None:
    """Return the serialised id of the last message of a segment; None if it is empty."""
    with library.own_client(Start().answer_limit) as client, translated(f"finding the last message of {topic}"):
        reader = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
        last: bytes | None = None
        while reader.has_message_available():
            last = reader.read_next(_READ_LIMIT_MS).message_id().serialize()
        close_quietly(reader)
    close_quietly(client)
    return last
