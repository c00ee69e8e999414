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


class SegmentConsumer(BrokerSession):
    """Receives messages of one topic; `NativeClient.subscribe` makes it.

    When the connection breaks or the topic moves, it subscribes again, and gets again what was not acknowledged.
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
        # Drops what a broker sent before it knew that all is to be sent again.
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
        """Whether the topic is terminated and all of it was sent to this subscription."""
        return self._ended

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message.

        Args:
            timeout_millis: to wait at most; None indefinitely.

        Raises:
            TimedOut: none came.
            UnreadableMessage: the next one cannot be read; the one behind it comes with the next call.
            AlreadyClosed: the consumer is closed, also while this waits.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        with self._changed:
            while not self._queue:
                self._check()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimedOut(f"{self._topic}: no message within {timeout_millis} ms")
                self._changed.wait(left)
            self._check()
            found = self._queue.popleft()
            if self._start is not None:
                self._start = found.message_id() if isinstance(found, Message) else found.message_id
            self._use(1)
        if isinstance(found, UnreadableMessage):
            raise found
        return found

    def acknowledge(self, message: Message | MessageId) -> None:
        """Say that a message is processed.

        The broker learns of a batch once all of its messages are acknowledged; before that, all come again elsewhere.

        Raises:
            ScalableError: with `ack_receipt_enabled`, the broker did not take it.
        """
        found = _id_of(message)
        with self._changed:
            self._check()
            self._nacked.pop(_entry_of(found), None)
            complete = self._batches.acknowledge(found)
        if complete:
            self._acknowledge(api.CommandAck.Individual, _entry_of(found))

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Say that all messages up to this one are processed.

        Raises:
            Unsupported: the subscription is shared by key or by all.
            ScalableError: with `ack_receipt_enabled`, the broker did not take it.
        """
        if self._type not in _IN_ORDER:
            raise Unsupported(f"{self._topic}: a subscription of type {self._type.name} acknowledges one by one")
        found = _id_of(message)
        with self._changed:
            self._check()
            complete = self._batches.acknowledge_up_to(found)
        # What comes before the first message of a batch is the entry before it, also where that is -1.
        last = MessageId(found.ledger, found.entry if complete else found.entry - 1)
        with self._changed:
            self._nacked = {one: when for one, when in self._nacked.items() if one > last}
        self._acknowledge(api.CommandAck.Cumulative, last)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Let a message be sent again after the redelivery delay; in order, all that come behind it as well."""
        delay = self._options.negative_ack_redelivery_delay_ms / 1000
        with self._changed:
            self._check()
            self._nacked.setdefault(_entry_of(_id_of(message)), time.monotonic() + delay)

    def redeliver_unacknowledged_messages(self) -> None:
        """Let all that is not acknowledged be sent again.

        Raises:
            ScalableError: there is no connection to the topic's owner within the operation timeout.
        """
        self._redeliver_all(self._attached("redelivering"))

    def seek(self, position: MessageId | int) -> None:
        """Move the subscription; returns when it is there.

        Args:
            position: the message that comes next, or a time in milliseconds since 1970.

        Raises:
            ScalableError: the broker refuses, or is not there in time.
        """
        connection = self._attached("seeking")
        request = api.CommandSeek(
            consumer_id=self._number,
            message_id=position.entry_data() if isinstance(position, MessageId) else None,
            message_publish_time=position if isinstance(position, int) else None,
        )
        with self._changed:
            self._seeking, before = True, self._openings
            # What was acknowledged is to come again.
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
            # The broker closes the consumer for it, and says so before it answers; one that does not just continues.
            if self._connection is connection and self._openings == before:
                self._seeking = False
                self._clear()
        self._attached("seeking")

    def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message; its entry is -1 where the topic is empty."""
        connection = self._attached("asking for the last message")
        request = api.CommandGetLastMessageId(consumer_id=self._number)
        what = f"asking for the last message of {self._topic}"
        answer = connection.ask(request, what, api.CommandGetLastMessageIdResponse)
        return MessageId.of(answer.last_message_id)

    def unsubscribe(self) -> None:
        """Remove the subscription, and close this consumer.

        Raises:
            ScalableError: the broker refuses; others may still be subscribed.
        """
        connection = self._attached("unsubscribing")
        request = api.CommandUnsubscribe(consumer_id=self._number)
        connection.ask(request, f"unsubscribing from {self._topic}", api.CommandSuccess)
        self.close()

    def close(self) -> None:
        """Close it; what was received and not acknowledged goes to others. Harmless when done twice."""
        self._finish()

    def tick(self, now: float) -> None:
        """Ask for messages again whose redelivery is due."""
        with self._changed:
            due = [one for one, when in self._nacked.items() if when <= now]
            connection = self._connection
            if not due or connection is None:
                return
            for one in due:
                del self._nacked[one]
        if self._type in _IN_ORDER:
            # Brokers send all again, to keep the order: what waits here would come twice.
            self._redeliver_all(connection)
            return
        self._ask_again(connection, due)

    # At the owner ---------------------------------------------------------------------------------------------------

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
        # The broker sends again what waited here, and what was to be sent again later.
        self._queue.clear()
        self._nacked.clear()
        self._used = 0
        self._seeking = False
        self._openings += 1
        for one in self._unsent:
            connection.send(one)
        self._unsent.clear()
        connection.send(self._flow(self._options.receiver_queue_size))

    def _closing(self, request_id: int) -> Command:
        return api.CommandCloseConsumer(consumer_id=self._number, request_id=request_id)

    def _failed(self, error: ScalableError) -> None:
        _logger.warning("%s: the consumer ends: %s", self._topic, error)

    def pushed(self, connection: Connection, command: Command, body: bytes) -> None:
        """A message, the topic's end, or that the broker closed the consumer."""
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
        found: list[Message | UnreadableMessage]
        count = 1
        with self._changed:
            if connection is not self._connection and connection is not self._opening:
                return
            try:
                entry = Entry(body)
                count = entry.count
                stale = command.HasField("consumer_epoch") and command.consumer_epoch < self._epoch
                found = [] if stale or self._seeking or entry.is_marker else self._messages(entry, position, command)
            except (Unsupported, ProtocolViolation) as error:
                # Given up for it, the connection would bring the same message again, and again.
                found = [UnreadableMessage(f"{self._topic}, {position}: {error}", position)]
            self._queue.extend(found)
            self._use(count - len(found))
            self._changed.notify_all()

    def _messages(
        self, entry: Entry, position: MessageId, command: api.CommandMessage
    ) -> list[Message | UnreadableMessage]:
        """What the application is to get of an entry."""
        contents = entry.contents()
        size = entry.count if entry.is_batch else 0
        wanted = self._batches.begin(position, size, command.ack_set) if entry.is_batch else {-1}
        if not wanted:
            # What the application and the broker have noted is the whole batch, which neither knew.
            self._tell(self._ack(api.CommandAck.Individual, position))
        return [
            Message(
                self._topic,
                entry,
                content,
                MessageId(position.ledger, position.entry, content.index, size, position.part),
                command.redelivery_count,
            )
            for content in contents
            if content.index in wanted
        ]

    # Inside ---------------------------------------------------------------------------------------------------------

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
            # The new connection begins with the whole queue.
            _logger.debug("%s: %s", self._topic, error)

    def _redeliver_all(self, connection: Connection) -> None:
        with self._changed:
            self._nacked.clear()
            if self._type in _IN_ORDER:
                self._epoch += 1
            self._clear()
        self._ask_again(connection)

    def _clear(self) -> None:
        waiting = len(self._queue)
        self._queue.clear()
        self._use(waiting)

    def _flow(self, permits: int) -> Command:
        return api.CommandFlow(consumer_id=self._number, messagePermits=permits)

    def _ask_again(self, connection: Connection, entries: Sequence[MessageId] = ()) -> None:
        """Ask for entries again; for all that is not acknowledged where none is named."""
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
        self._tell(request)

    def _tell(self, command: api.CommandAck) -> None:
        """Acknowledge without an answer: now, or once the consumer is open again."""
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


def _entry_of(found: MessageId) -> MessageId:
    return MessageId(found.ledger, found.entry)


class Batches:
    """Batches of which not all messages are acknowledged; for one thread at a time."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, int], set[int]] = {}

    def begin(self, entry: MessageId, size: int, ack_set: Sequence[int]) -> set[int]:
        """A batch arrived; the indices that the application has not acknowledged.

        Args:
            entry: where it is stored.
            size: messages of it.
            ack_set: what the broker knows: bits of messages that are not acknowledged, 64 in each; empty for all.
        """
        known = self._left.get((entry.ledger, entry.entry))
        left = set(range(size)) if known is None else known
        if ack_set:
            left &= {index for index in range(size) if _bit(ack_set, index)}
        self._left[entry.ledger, entry.entry] = left
        return left.copy()

    def acknowledge(self, found: MessageId) -> bool:
        """Note one message; whether its entry is complete."""
        if found.index < 0:
            return True
        left = self._left.setdefault((found.ledger, found.entry), set(range(found.size)))
        left.discard(found.index)
        if left:
            return False
        del self._left[found.ledger, found.entry]
        return True

    def acknowledge_up_to(self, found: MessageId) -> bool:
        """Note all up to a message; whether its own entry is complete."""
        position = found.ledger, found.entry
        self._left = {one: left for one, left in self._left.items() if one >= position}
        if found.index < 0:
            return True
        left = self._left.setdefault(position, set(range(found.size)))
        left -= set(range(found.index + 1))
        if left:
            return False
        del self._left[position]
        return True


def _bit(words: Sequence[int], index: int) -> bool:
    word = index // _WORD
    return word < len(words) and bool(words[word] >> index % _WORD & 1)
