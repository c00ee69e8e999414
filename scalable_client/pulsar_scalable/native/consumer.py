"""A consumer of one segment, or of any other topic."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_scalable.enums import ConsumerType, InitialPosition
from pulsar_scalable.errors import ProtocolViolation, ScalableError, TimedOut, UnreadableMessage, Unsupported
from pulsar_scalable.native.broker_session import BrokerSession
from pulsar_scalable.native.message import Message, MessageId
from pulsar_scalable.native.payload import Entry
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.connection import Channel, Connection
from pulsar_wire.frames import Command
from pulsar_wire.pool import Pool
from pulsar_wire.values import key_values

_logger = logging.getLogger("pulsar_scalable")
_IN_ORDER = (ConsumerType.Exclusive, ConsumerType.Failover)
_WORD = 64

OnEnd = Callable[["SegmentConsumer"], None]


@dataclass(frozen=True, slots=True)
class SegmentConsumerOptions:
    """Options of a consumer; the names are those of pulsar-client's `subscribe` where it has them.

    Attributes:
        consumer_type: type of the subscription.
        buckets: all entry buckets of a segment, first and last hash of each, by which a Key_Shared subscription shares
            it; empty to share it by the hashes of keys.
        initial_position: position where a new subscription starts.
        receiver_queue_size: messages that are prefetched, at least 1.
        consumer_name: None lets the broker choose one; Failover consumers take turns in the order of names.
        negative_ack_redelivery_delay_ms: delay between a negative acknowledgement and the redelivery request.
        ack_receipt_enabled: wait for the broker's answer to each acknowledgement.
        priority_level: consumers with a lower value are served first.
        properties: properties of the consumer, shown in the topic's statistics.
        end_of_topic: called when the topic is terminated and all of it was sent to this subscription; the queue may
            still have messages. It is called in the connection's thread, and must not block.
        start_message_id: makes it a reader: the subscription ends with its connection, and starts after this message;
            messages of its batch are delivered again. None for a durable subscription.
        create_topic: whether brokers may create the topic, if automatic creation is allowed.
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


class SegmentConsumer(BrokerSession):
    """Receives messages of one topic; created by `NativeClient.subscribe`.

    When the connection breaks or the topic moves, it subscribes again and receives the unacknowledged messages again.
    """

    def __init__(self, pool: Pool, topic: str, subscription: str, number: int, options: SegmentConsumerOptions) -> None:
        super().__init__(pool, topic, Channel.CONSUMER, number)
        self._options = options
        self._subscription = subscription
        self._type = options.consumer_type
        self._queue: deque[Message | UnreadableMessage] = deque()
        self._batches = Batches()
        self._used = 0
        self._threshold = max(1, options.receiver_queue_size // 2)
        # Identifies messages that a broker sent before it processed a redelivery request.
        self._epoch = 0
        self._seeking = False
        self._openings = 0
        self._nacked: dict[MessageId, float] = {}
        self._unsent: list[api.CommandAck] = []
        self._ended = False
        self._start = options.start_message_id
        self._begin()

    @property
    def subscription(self) -> str:
        """The subscription's name."""
        return self._subscription

    @property
    def has_reached_end_of_topic(self) -> bool:
        """True if the topic is terminated and all of it was sent to this subscription."""
        return self._ended

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Args:
            timeout_millis: longest time to wait; None to wait indefinitely.

        Raises:
            TimedOut: no message arrived in time.
            UnreadableMessage: the next message cannot be read; the following one comes with the next call.
            AlreadyClosed: the consumer is closed, also during this call.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        with self._changed:
            while not self._queue:
                self._check()
                remaining = None if until is None else until - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimedOut(f"{self._topic}: no message within {timeout_millis} ms")
                self._changed.wait(remaining)
            self._check()
            message = self._queue.popleft()
            if self._start is not None:
                self._start = message.message_id() if isinstance(message, Message) else message.message_id
            self._use(1)
        if isinstance(message, UnreadableMessage):
            raise message
        return message

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message.

        A batch is acknowledged at the broker after all its messages are; before that, all are delivered again
        elsewhere.

        Raises:
            ScalableError: with `ack_receipt_enabled`, the broker did not confirm it.
        """
        message_id = _id_of(message)
        with self._changed:
            self._check()
            self._nacked.pop(_entry_of(message_id), None)
            complete = self._batches.acknowledge(message_id)
        if complete:
            self._acknowledge(api.CommandAck.Individual, _entry_of(message_id))

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge all messages up to this one.

        Raises:
            Unsupported: the subscription is shared by key or by all.
            ScalableError: with `ack_receipt_enabled`, the broker did not confirm it.
        """
        if self._type not in _IN_ORDER:
            raise Unsupported(
                f"{self._topic}: a {self._type.name} subscription has no cumulative acknowledgement;"
                " acknowledge messages one by one"
            )
        message_id = _id_of(message)
        with self._changed:
            self._check()
            complete = self._batches.acknowledge_up_to(message_id)
        # The entry before the first message of a batch, even if its id is -1.
        last = MessageId(message_id.ledger, message_id.entry if complete else message_id.entry - 1)
        with self._changed:
            self._nacked = {entry: when for entry, when in self._nacked.items() if entry > last}
        self._acknowledge(api.CommandAck.Cumulative, last)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Request redelivery after the delay; with order, also of all later messages."""
        delay = self._options.negative_ack_redelivery_delay_ms / 1000
        with self._changed:
            self._check()
            self._nacked.setdefault(_entry_of(_id_of(message)), time.monotonic() + delay)

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of all unacknowledged messages.

        Raises:
            ScalableError: the topic's owner cannot be reached within the operation timeout.
        """
        self._redeliver_all(self._attached("redelivering"))

    def seek(self, position: MessageId | int) -> None:
        """Move the subscription; returns when it is moved.

        Args:
            position: id of the next message, or a time in milliseconds since 1970.

        Raises:
            ScalableError: the broker rejects the seek, or the consumer is not reopened in time.
        """
        connection = self._attached("seeking")
        request = api.CommandSeek(
            consumer_id=self._number,
            message_id=position.entry_data() if isinstance(position, MessageId) else None,
            message_publish_time=position if isinstance(position, int) else None,
        )
        with self._changed:
            self._seeking, before = True, self._openings
            # Acknowledged messages must be delivered again.
            self._batches = Batches()
            self._nacked.clear()
        try:
            connection.ask(request, f"seeking in {self._topic}", api.CommandSuccess)
        except BaseException:
            with self._changed:
                self._seeking = False
            raise
        with self._changed:
            self._ended = False
            # The broker closes the consumer for the seek before it answers; a broker that does not continues with it.
            if self._connection is connection and self._openings == before:
                self._seeking = False
                self._clear()
        self._attached("seeking")

    def get_last_message_id(self) -> MessageId:
        """Return the id of the topic's last message; its entry is -1 if the topic is empty."""
        connection = self._attached("asking for the last message")
        request = api.CommandGetLastMessageId(consumer_id=self._number)
        what = f"asking for the last message of {self._topic}"
        answer = connection.ask(request, what, api.CommandGetLastMessageIdResponse)
        return MessageId.of(answer.last_message_id)

    def unsubscribe(self) -> None:
        """Delete the subscription, and close this consumer.

        Raises:
            ScalableError: the broker rejects it, for example because other consumers are connected.
        """
        connection = self._attached("unsubscribing")
        request = api.CommandUnsubscribe(consumer_id=self._number)
        connection.ask(request, f"unsubscribing from {self._topic}", api.CommandSuccess)
        self.close()

    def close(self) -> None:
        """Close it; unacknowledged messages go to other consumers. Closing twice is safe."""
        self._finish()

    def tick(self, now: float) -> None:
        """Request the redeliveries that are due."""
        with self._changed:
            due = [entry for entry, when in self._nacked.items() if when <= now]
            connection = self._connection
            if not due or connection is None:
                return
            for entry in due:
                del self._nacked[entry]
        if self._type in _IN_ORDER:
            # To keep the order, brokers send everything again: messages in the queue would come twice.
            self._redeliver_all(connection)
            return
        self._request_redelivery(connection, due)

    def _open(self, connection: Connection) -> None:
        options = self._options
        request = api.CommandSubscribe(
            topic=self._topic,
            subscription=self._subscription,
            subType=api.CommandSubscribe.SubType.Name(self._type),
            consumer_id=self._number,
            consumer_name=options.consumer_name,
            priority_level=options.priority_level,
            durable=self._start is None,
            start_message_id=None if self._start is None else self._start.start_data(),
            metadata=key_values(options.properties or {}),
            initialPosition=api.CommandSubscribe.InitialPosition.Name(options.initial_position),
            consumer_epoch=self._epoch if self._type in _IN_ORDER else None,
            force_topic_creation=self._options.create_topic,
            keySharedMeta=_shared_by(options.buckets),
        )
        connection.ask(request, f"subscribing {self._subscription} to {self._topic}", api.CommandSuccess)

    def _opened(self, connection: Connection) -> None:
        # The broker sends the queued messages and the negatively acknowledged ones again.
        self._queue.clear()
        self._nacked.clear()
        self._used = 0
        self._seeking = False
        self._openings += 1
        for command in self._unsent:
            connection.send(command)
        self._unsent.clear()
        connection.send(self._flow(self._options.receiver_queue_size))

    def _closing(self, request_id: int) -> Command:
        return api.CommandCloseConsumer(consumer_id=self._number, request_id=request_id)

    def _failed(self, error: ScalableError) -> None:
        _logger.warning("%s: the consumer ends: %s", self._topic, error)

    def pushed(self, connection: Connection, command: Command, body: bytes) -> None:
        """Handle a message, the topic's end, or a close by the broker."""
        if isinstance(command, api.CommandMessage):
            self._take(connection, command, body)
        elif isinstance(command, api.CommandCloseConsumer):
            self.detached(connection, "the broker closed it")
        elif isinstance(command, api.CommandReachedEndOfTopic):
            self._end()

    def _end(self) -> None:
        with self._changed:
            again, self._ended = self._ended, True
        if again or self._options.end_of_topic is None:
            return
        try:
            self._options.end_of_topic(self)
        except Exception:
            # The connection must serve others as well.
            _logger.exception("%s: the callback of the topic's end failed", self._topic)

    def _take(self, connection: Connection, command: api.CommandMessage, body: bytes) -> None:
        position = MessageId.of(command.message_id)
        messages: list[Message | UnreadableMessage]
        count = 1
        with self._changed:
            if connection is not self._connection and connection is not self._opening:
                return
            try:
                entry = Entry(body)
                count = entry.count
                stale = command.HasField("consumer_epoch") and command.consumer_epoch < self._epoch
                messages = [] if stale or self._seeking or entry.is_marker else self._messages(entry, position, command)
            except (Unsupported, ProtocolViolation) as error:
                # If the connection were closed instead, the same message would come again and again.
                messages = [UnreadableMessage(f"{self._topic}, {position}: {error}", position)]
            self._queue.extend(messages)
            self._use(count - len(messages))
            self._changed.notify_all()

    def _messages(
        self, entry: Entry, position: MessageId, command: api.CommandMessage
    ) -> list[Message | UnreadableMessage]:
        """Return the messages of an entry that the application needs."""
        contents = entry.contents()
        size = entry.count if entry.is_batch else 0
        wanted = self._batches.add(position, size, command.ack_set) if entry.is_batch else {-1}
        if not wanted:
            # Application and broker have acknowledged all of the batch together, but neither knew.
            self._send_ack(self._ack(api.CommandAck.Individual, position))
        return [
            Message(
                self._topic,
                entry,
                content,
                MessageId(position.ledger, position.entry, content.index, size, position.partition_index),
                command.redelivery_count,
            )
            for content in contents
            if content.index in wanted
        ]

    def _use(self, count: int) -> None:
        """Count messages that left the queue, and let the broker send as many; called with the lock held."""
        self._used += count
        connection = self._connection
        if self._used < self._threshold or connection is None:
            return
        permits, self._used = self._used, 0
        try:
            connection.send(self._flow(permits))
        except ScalableError as error:
            # The next connection starts with permits for the whole queue.
            _logger.debug("%s: %s", self._topic, error)

    def _redeliver_all(self, connection: Connection) -> None:
        with self._changed:
            self._nacked.clear()
            if self._type in _IN_ORDER:
                self._epoch += 1
            self._clear()
        self._request_redelivery(connection)

    def _clear(self) -> None:
        waiting = len(self._queue)
        self._queue.clear()
        self._use(waiting)

    def _flow(self, permits: int) -> Command:
        return api.CommandFlow(consumer_id=self._number, messagePermits=permits)

    def _request_redelivery(self, connection: Connection, entries: Sequence[MessageId] = ()) -> None:
        """Request redelivery of entries; of all unacknowledged ones if none is named."""
        in_order = self._type in _IN_ORDER and not entries
        connection.send(
            api.CommandRedeliverUnacknowledgedMessages(
                consumer_id=self._number,
                message_ids=[entry.entry_data() for entry in entries],
                consumer_epoch=self._epoch if in_order else None,
            )
        )

    def _ack(self, kind: api.CommandAck.AckType, position: MessageId) -> api.CommandAck:
        return api.CommandAck(consumer_id=self._number, ack_type=kind, message_id=[position.entry_data()])

    def _acknowledge(self, kind: api.CommandAck.AckType, position: MessageId) -> None:
        request = self._ack(kind, position)
        if self._options.ack_receipt_enabled:
            connection = self._attached("acknowledging")
            connection.ask(request, f"acknowledging in {self._topic}", api.CommandAckResponse)
            return
        self._send_ack(request)

    def _send_ack(self, command: api.CommandAck) -> None:
        """Acknowledge without waiting for an answer: now, or when the consumer is open again."""
        with self._changed:
            try:
                if self._connection is not None:
                    self._connection.send(command)
                    return
            except ScalableError as error:
                _logger.debug("%s: %s", self._topic, error)
            self._unsent.append(command)


def _id_of(message: Message | MessageId) -> MessageId:
    return message if isinstance(message, MessageId) else message.message_id()


def _shared_by(buckets: tuple[tuple[int, int], ...]) -> api.KeySharedMeta | None:
    if not buckets:
        return None
    ranges = [api.IntRange(start=first, end=last) for first, last in buckets]
    return api.KeySharedMeta(keySharedMode=api.KeySharedMeta.STICKY, hashRanges=ranges, entry_bucket_dispatch=True)


def _entry_of(message_id: MessageId) -> MessageId:
    return MessageId(message_id.ledger, message_id.entry)


class Batches:
    """Batches that are acknowledged partly; for one thread at a time."""

    def __init__(self) -> None:
        self._unacknowledged: dict[tuple[int, int], set[int]] = {}

    def add(self, entry: MessageId, size: int, ack_set: Sequence[int]) -> set[int]:
        """Add a batch that arrived; return the indices that the application has not acknowledged.

        Args:
            entry: id of the entry.
            size: number of messages.
            ack_set: bits of the messages that are unacknowledged at the broker, 64 in each word; empty for all.
        """
        indices = self._unacknowledged.get((entry.ledger, entry.entry))
        indices = set(range(size)) if indices is None else indices
        if ack_set:
            indices &= {index for index in range(size) if _bit(ack_set, index)}
        self._unacknowledged[entry.ledger, entry.entry] = indices
        return indices.copy()

    def acknowledge(self, message_id: MessageId) -> bool:
        """Acknowledge one message; return whether its entry is complete."""
        if message_id.index < 0:
            return True
        indices = self._unacknowledged.setdefault((message_id.ledger, message_id.entry), set(range(message_id.size)))
        indices.discard(message_id.index)
        if indices:
            return False
        del self._unacknowledged[message_id.ledger, message_id.entry]
        return True

    def acknowledge_up_to(self, message_id: MessageId) -> bool:
        """Acknowledge all messages up to one; return whether its entry is complete."""
        position = message_id.ledger, message_id.entry
        self._unacknowledged = {entry: indices for entry, indices in self._unacknowledged.items() if entry >= position}
        if message_id.index < 0:
            return True
        indices = self._unacknowledged.setdefault(position, set(range(message_id.size)))
        indices -= set(range(message_id.index + 1))
        if indices:
            return False
        del self._unacknowledged[position]
        return True


def _bit(words: Sequence[int], index: int) -> bool:
    word = index // _WORD
    return word < len(words) and bool(words[word] >> index % _WORD & 1)
