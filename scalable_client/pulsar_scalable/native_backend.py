"""Backend for topics that a broker of Pulsar 5 controls."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace
from typing import Any

from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import (
    Refused,
    ScalableError,
    TimedOut,
    TopicNotFound,
    UnreadableMessage,
    Unsupported,
)
from pulsar_scalable.messages import Entry, MessagePosition, RawMessage, Unreadable, position_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.client import NativeClient
from pulsar_scalable.native.consumer import SegmentConsumer, SegmentConsumerOptions
from pulsar_scalable.native.message import MessageId
from pulsar_scalable.native.producer import SegmentProducer
from pulsar_scalable.native.registration import Assignment, Registration
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from pulsar_scalable.ports import (
    Content,
    EmptyReader,
    LayoutWatch,
    OnAssignment,
    OnLayout,
    OnStored,
    Sharing,
    Start,
    is_without_ledgers,
)

_logger = logging.getLogger("pulsar_scalable")
_EARLIEST = MessageId(-1, -1)
_NOWHERE: MessagePosition = (-1, -1, -1)
_PAUSES = (0.1, 0.3, 0.0)


class NativeSender:
    """Sends messages to a segment."""

    def __init__(self, client: NativeClient, inner: SegmentProducer) -> None:
        self._client = client
        self._inner = inner
        self.producer_name = inner.producer_name
        self._last = inner.last_sequence_id()

    @property
    def is_connected(self) -> bool:
        """True if there is a connection."""
        return self._inner.is_connected

    def last_sequence_id(self) -> int:
        """Return the sequence id that deduplication knew when this was opened; -1 for none."""
        return self._last

    def send(self, content: Content, sequence_id: int, on_stored: OnStored) -> None:
        """Send a message."""
        try:
            self._inner.send_async(
                content.data,
                on_stored,
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
        self._client.discard(self._inner)


class NativeReceiver:
    """Receives the messages of a segment for a subscription."""

    def __init__(self, client: NativeClient, inner: SegmentConsumer) -> None:
        self._client = client
        self._inner = inner

    def receive(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        return _received(self._inner, timeout_millis)

    def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge a message."""
        self._inner.acknowledge(message_id)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge all messages up to this one."""
        self._inner.acknowledge_cumulative(message_id)

    def negative_acknowledge(self, message: Any) -> None:
        """Request redelivery of a message."""
        self._inner.negative_acknowledge(message)

    @property
    def is_drained(self) -> bool | None:
        """True if the segment is sealed and all of it is acknowledged: brokers report its end only then."""
        return self._inner.has_reached_end_of_topic

    def close(self) -> None:
        """Close it."""
        self._client.discard(self._inner)


class NativeReader:
    """Reads a segment without a durable subscription."""

    def __init__(self, client: NativeClient, inner: SegmentConsumer, start: Start) -> None:
        self._client = client
        self._inner = inner
        self._waiting: RawMessage | None = None
        self._last = _NOWHERE if start.after is None else position_of(MessageId.deserialize(start.after))
        # A reader that seeks is opened again at its first position, because brokers forget the new one.
        self._since = start.time_ms or 0

    def read_next(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        message, self._waiting = self._waiting or self._receive(timeout_millis), None
        return message

    def has_message_available(self) -> bool:
        """Return whether there is a next message now."""
        if self._waiting is not None:
            return True
        last = self._inner.get_last_message_id()
        if last.entry < 0 or _last_of_entry(last) <= self._last:
            return False
        try:
            self._waiting = self._receive(1000)
        except TimedOut:
            # The remaining entries may contain no messages.
            return False
        return True

    def close(self) -> None:
        """Close it."""
        self._client.discard(self._inner)

    def _receive(self, timeout_millis: int) -> RawMessage:
        while True:
            message = _received(self._inner, timeout_millis)
            position = position_of(message.message_id())
            # Brokers start with the first message of the batch; they also do after a lost connection.
            if position > self._last:
                self._last = position
                if isinstance(message, Unreadable) or message.publish_timestamp() >= self._since:
                    return message


class NativeSession:
    """Registration of a consumer with the broker that controls the topic."""

    def __init__(self, client: NativeClient, inner: Registration) -> None:
        self._client = client
        self._inner = inner

    @property
    def assignment(self) -> Assignment:
        """The newest assignment."""
        return self._inner.assignment

    def leave(self) -> None:
        """End the registration; other consumers get the segments immediately."""
        self._client.discard(self._inner)

    def detach(self) -> None:
        """End the registration; other consumers get the segments after the broker's grace period."""
        self._inner.detach()
        self._client.discard(self._inner)


class NativeBackend:
    """Backend for brokers of Pulsar 5.

    Args:
        client: client with the connections; it is closed with this backend.
    """

    def __init__(self, client: NativeClient) -> None:
        self._client = client

    def watch(self, topic: TopicName, on_layout: OnLayout) -> LayoutWatch:
        """Report the layout of a topic, and each newer one."""
        return self._client.watch(topic.scalable, on_layout)

    def register(
        self,
        topic: TopicName,
        subscription: str,
        consumer_name: str,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
    ) -> NativeSession:
        """Register a consumer."""
        made = self._client.register(topic.scalable, subscription, consumer_name, kind, on_assignment)
        return NativeSession(self._client, made)

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> NativeSender:
        """Open a producer of a segment."""
        name = producer_name or _segment_name(options.producer_name, topic)
        made = self._client.create_producer(topic, replace(options, producer_name=name, block_if_queue_full=False))
        return NativeSender(self._client, made)

    def open_receiver(
        self, topic: str, subscription: str, options: ConsumerOptions, sharing: Sharing
    ) -> NativeReceiver:
        """Open a consumer of a segment."""
        if options.unacked_messages_timeout_ms is not None:
            raise Unsupported(f"{topic}: native topics do not support unacked_messages_timeout_ms; leave it out")
        native = SegmentConsumerOptions(
            consumer_type=sharing.consumer_type,
            initial_position=options.initial_position,
            receiver_queue_size=options.receiver_queue_size,
            consumer_name=_segment_name(options.consumer_name, topic),
            negative_ack_redelivery_delay_ms=options.negative_ack_redelivery_delay_ms,
            properties=options.properties,
            create_topic=False,
            buckets=sharing.buckets,
        )
        made = self._client.subscribe(topic, subscription, native)
        return NativeReceiver(self._client, made)

    def open_reader(self, topic: str, start: Start) -> NativeReader | EmptyReader:
        """Open a reader of a segment."""
        position = _EARLIEST if start.after is None else MessageId.deserialize(start.after)
        for pause in _PAUSES:
            try:
                return NativeReader(self._client, self._reader(topic, position), start)
            except Refused as error:
                if not is_without_ledgers(error):
                    raise
            # A retry finds out whether the cause is another one.
            time.sleep(pause)
        return EmptyReader()

    def is_empty(self, topic: str) -> bool:
        """Return whether a sealed segment has no messages left, so that no reader can be opened.

        Raises:
            ScalableError: the broker does not answer.
        """
        reader = self.open_reader(topic, Start())
        reader.close()
        return isinstance(reader, EmptyReader)

    def _reader(self, topic: str, position: MessageId) -> SegmentConsumer:
        options = SegmentConsumerOptions(start_message_id=position, create_topic=False)
        return self._client.subscribe(topic, f"reader-{secrets.token_hex(5)}", options)

    def exists(self, topic: str) -> bool:
        """Return whether a topic exists; the check does not create it.

        Raises:
            ScalableError: the broker does not answer.
        """
        try:
            self._last(topic)
        except TopicNotFound:
            return False
        return True

    def end_of(self, topic: str) -> Entry | None:
        """Return the last entry of a topic; None if the topic is empty or missing. The check does not create it.

        Raises:
            ScalableError: the broker does not answer.
        """
        try:
            last = self._last(topic)
        except TopicNotFound:
            return None
        return (last.ledger, last.entry) if last else None

    def last_position(self, topic: str) -> bytes | None:
        """Return the serialised id of the last message of a segment."""
        last = self._last(topic)
        if last is None:
            return None
        ledger, entry, index = _last_of_entry(last)
        return MessageId(ledger, entry, index, last.size).serialize()

    def _last(self, topic: str) -> MessageId | None:
        inner = self._reader(topic, _EARLIEST)
        try:
            last = inner.get_last_message_id()
            return last if last.entry >= 0 else None
        finally:
            self._client.discard(inner)

    def close(self) -> None:
        """Close all that is open."""
        self._client.close()


def _segment_name(name: str | None, topic: str) -> str | None:
    """Return the name of a producer or consumer on one segment; all clients form it this way, so statistics match."""
    if name is None or not topic.startswith("segment://"):
        return name
    return f"{name}-seg-{topic.rpartition('-')[2]}"


def _received(consumer: SegmentConsumer, timeout_millis: int) -> RawMessage:
    """Return the next message, also an unreadable one: the application decides whether to acknowledge it."""
    try:
        return consumer.receive(timeout_millis)
    except UnreadableMessage as error:
        _logger.warning("%s", error)
        return Unreadable(error)


def _last_of_entry(message_id: MessageId) -> MessagePosition:
    """Return the position of the last message in the entry of a message."""
    last = message_id.size - 1 if message_id.index >= 0 and message_id.size else message_id.index
    return (message_id.ledger, message_id.entry, last)
