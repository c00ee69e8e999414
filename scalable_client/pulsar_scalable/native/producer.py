"""A producer of one segment, or of any other topic."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Unpack

from pulsar_scalable.enums import Compression
from pulsar_scalable.errors import (
    AlreadyClosed,
    MessageTooBig,
    QueueFull,
    ScalableError,
    TimedOut,
    TopicTerminated,
    Unsupported,
    refused,
)
from pulsar_scalable.layout import bucket_hash, key_hash
from pulsar_scalable.native.broker_session import BrokerSession
from pulsar_scalable.native.message import MessageId
from pulsar_scalable.native.payload import framed
from pulsar_scalable.options import MessageOptions, ProducerOptions
from pulsar_scalable.outcome import wait_for_outcome
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.connection import Channel, Connection
from pulsar_wire.errors import ServerError
from pulsar_wire.frames import Command, encode
from pulsar_wire.pool import Pool
from pulsar_wire.values import key_values

OnSent = Callable[[ScalableError | None, MessageId | None], None]

_logger = logging.getLogger("pulsar_scalable")
# Errors of a single message: sent again, it would be rejected again.
_OF_ONE_MESSAGE = (ServerError.CHECKSUM, ServerError.NOT_ALLOWED)


class _Sent:
    """A message without a known outcome; `outcome` is set once, to an error or to its id.

    `turn` numbers the producer's messages; sequence ids may repeat.
    """

    __slots__ = ("callback", "deadline", "frame", "outcome", "sequence_id", "turn")

    def __init__(self, turn: int, sequence_id: int, frame: bytes, deadline: float, callback: OnSent) -> None:
        self.turn = turn
        self.sequence_id = sequence_id
        self.frame = frame
        self.deadline = deadline
        self.callback = callback
        self.outcome: ScalableError | MessageId | None = None


class SegmentProducer(BrokerSession):
    """Sends messages to one topic, in order; created by `NativeClient.create_producer`.

    When the connection breaks or the topic moves, unconfirmed messages are sent again with the same sequence ids: each
    message at least once, and exactly once if the topic's deduplication is on. Callbacks run in the order of the
    messages, in threads of this client, and must not block. When the topic is terminated, all messages that are not
    stored fail with `TopicTerminated`, in order; after that every `send` raises it.
    """

    def __init__(self, pool: Pool, topic: str, number: int, options: ProducerOptions) -> None:
        if options.compression_type not in (Compression.NONE, Compression.ZLIB):
            raise Unsupported(
                f"unsupported compression {options.compression_type.name}; this client supports NONE and ZLIB"
            )
        super().__init__(pool, topic, Channel.PRODUCER, number)
        self._options = options
        self._name = options.producer_name or ""
        self._epoch = 0
        first = options.initial_sequence_id
        self._next = None if first is None else first + 1
        self._last_stored = -1 if first is None else first
        self._largest = 0
        self._pending: deque[_Sent] = deque()
        self._turn = 0
        self._delivery = threading.Lock()
        self._deliverer = 0
        self._begin()

    @property
    def producer_name(self) -> str:
        """Name of the producer, also if the broker chose it."""
        return self._name

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that is stored; -1 for none."""
        return self._last_stored

    @property
    def pending_messages(self) -> int:
        """Number of messages that wait to be stored."""
        return len(self._pending)

    def send(self, content: bytes, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message and wait until it is stored.

        Raises:
            ScalableError: the message is not known to be stored.
        """
        if threading.get_ident() == self._deliverer:
            raise ScalableError(
                f"{self._topic}: send() was called in a callback, which must not wait; use send_async()"
            )
        return wait_for_outcome(lambda on_sent: self.send_async(content, on_sent, **options), self._topic)

    def send_async(self, content: bytes, callback: OnSent, **options: Unpack[MessageOptions]) -> None:
        """Send a message; the callback receives an error, or the message's id once it is stored.

        `MessageOptions` describes the options; without a sequence id, a message gets the one after the highest.

        Raises:
            TopicTerminated: the topic is known to be terminated.
            QueueFull: too many messages are pending.
            MessageTooBig: the message exceeds the broker's limit.
            AlreadyClosed: the producer is closed.
        """
        sequence_id = options.get("sequence_id")
        metadata, payload = self._metadata(content, options)
        with self._changed:
            self._wait_for_room()
            number = (self._next or 0) if sequence_id is None else sequence_id
            frame = self._frame(metadata, payload, number)
            timeout = self._options.send_timeout_millis
            deadline = time.monotonic() + timeout / 1000 if timeout else float("inf")
            self._turn += 1
            message = _Sent(self._turn, number, frame, deadline, callback)
            self._pending.append(message)
            self._next = max(self._next or 0, number + 1)
            if self._connection is not None:
                self._write(self._connection, message)

    def flush(self) -> None:
        """Wait until all messages sent so far are stored or have failed.

        Raises:
            TimedOut: it takes longer than both timeouts together.
        """
        allowed = self._options.send_timeout_millis / 1000 + self._pool.access.operation_timeout
        with self._changed:
            if not self._pending:
                return
            last = self._pending[-1].turn
            waited = self._changed.wait_for(lambda: not self._pending or self._pending[0].turn > last, timeout=allowed)
        if not waited:
            raise TimedOut(f"{self._topic}: messages are not stored after {allowed:g} s")

    def close(self) -> None:
        """Close it; messages that are not stored yet fail with `AlreadyClosed`. Closing twice is safe."""
        self._finish()
        self._fail_all(AlreadyClosed(f"{self._topic}: the producer was closed before this message was stored"))

    def tick(self, now: float) -> None:
        """Fail the messages whose deadline is over."""
        limit = self._options.send_timeout_millis
        with self._changed:
            expired = takewhile(lambda message: message.deadline <= now, self._pending)
            late = [message for message in expired if message.outcome is None]
            for message in late:
                message.outcome = TimedOut(
                    f"{self._topic}: message {message.sequence_id} is not stored after {limit} ms"
                )
        if late:
            self._deliver()

    # Sending --------------------------------------------------------------------------------------------------------

    def _metadata(self, content: bytes, options: MessageOptions) -> tuple[api.MessageMetadata, bytes]:
        """Return a message's metadata without producer name, sequence id and time, and its payload."""
        partition_key, ordering_key = options.get("partition_key"), options.get("ordering_key")
        metadata = api.MessageMetadata(
            partition_key=partition_key,
            event_time=options.get("event_timestamp"),
            properties=key_values(options.get("properties") or {}),
            ordering_key=None if ordering_key is None else ordering_key.encode(),
        )
        if partition_key is not None:
            # With it the broker need not hash the key again to find its entry bucket.
            metadata.entry_hash_min = metadata.entry_hash_max = bucket_hash(key_hash(partition_key))
        if self._options.compression_type is Compression.NONE:
            return metadata, content
        metadata.compression, metadata.uncompressed_size = Compression.ZLIB, len(content)
        return metadata, zlib.compress(content)

    def _wait_for_room(self) -> None:
        """Wait for room, or raise QueueFull; called with the lock held."""
        self._check_sending()
        while len(self._pending) >= self._options.max_pending_messages:
            if not self._options.block_if_queue_full or threading.get_ident() == self._deliverer:
                raise QueueFull(f"{self._topic}: {len(self._pending)} messages wait to be stored")
            # Each pending message ends by its own timeout at the latest.
            self._changed.wait()
            self._check_sending()

    def _check_sending(self) -> None:
        # While earlier messages fail in order, a message waits for its turn to fail.
        if not self._pending or not isinstance(self._failure, TopicTerminated):
            self._check()

    def _frame(self, metadata: api.MessageMetadata, payload: bytes, number: int) -> bytes:
        metadata.producer_name = self._name
        metadata.sequence_id = number
        metadata.publish_time = int(time.time() * 1000)
        body = framed(metadata, payload)
        if len(body) > self._largest:
            raise MessageTooBig(
                f"{self._topic}: a message of {len(body)} bytes is too large; the broker accepts {self._largest}"
            )
        command = api.CommandSend(producer_id=self._number, sequence_id=number, num_messages=1)
        return encode(command, body)

    def _write(self, connection: Connection, message: _Sent) -> None:
        try:
            connection.send_frames(message.frame)
        except ScalableError as error:
            # It stays pending, and is sent again.
            _logger.debug("%s: %s", self._topic, error)

    # At the owner ---------------------------------------------------------------------------------------------------

    def _open(self, connection: Connection) -> None:
        request = api.CommandProducer(
            topic=self._topic,
            producer_id=self._number,
            producer_name=self._name or None,
            metadata=key_values(self._options.properties or {}),
            epoch=self._epoch,
            user_provided_producer_name=self._options.producer_name is not None,
        )
        self._epoch += 1
        answer = connection.ask(request, f"opening a producer of {self._topic}", api.CommandProducerSuccess)
        with self._changed:
            self._name = answer.producer_name
            self._largest = connection.largest_message
            if self._next is None:
                self._last_stored, self._next = answer.last_sequence_id, answer.last_sequence_id + 1

    def _opened(self, connection: Connection) -> None:
        for message in self._pending:
            if message.outcome is None:
                connection.send_frames(message.frame)

    def _closing(self, request_id: int) -> Command:
        return api.CommandCloseProducer(producer_id=self._number, request_id=request_id)

    def _failed(self, error: ScalableError) -> None:
        self._fail_all(error)

    def pushed(self, connection: Connection, command: Command, body: bytes) -> None:
        """Handle a receipt, an error, or a close by the broker."""
        del body
        if isinstance(command, api.CommandSendReceipt):
            # Deduplicated messages have no id, or one of -1.
            stored = MessageId.of(command.message_id) if command.HasField("message_id") else MessageId(-1, -1)
            self._set_outcome(command.sequence_id, stored)
        elif isinstance(command, api.CommandSendError):
            error = refused(command.error, command.message, f"storing message {command.sequence_id} of {self._topic}")
            if command.error in (ServerError.TERMINATED, *_OF_ONE_MESSAGE):
                self._set_outcome(command.sequence_id, error)
            if command.error not in _OF_ONE_MESSAGE:
                # Close first: the broker answers that after all accepted messages are stored or rejected.
                self.detached(connection, error, leave=True)
        elif isinstance(command, api.CommandCloseProducer):
            self.detached(connection, "the broker closed it")

    # Outcomes -------------------------------------------------------------------------------------------------------

    def _set_outcome(self, sequence_id: int, outcome: ScalableError | MessageId) -> None:
        with self._changed:
            # The answer may be for a message that timed out, or one that was sent twice. Answers come in order, so it
            # is for the first pending message with this sequence id.
            waiting = (sent for sent in self._pending if sent.sequence_id == sequence_id and sent.outcome is None)
            message = next(waiting, None)
            if message is None:
                return
            message.outcome = outcome
        self._deliver()

    def _fail_all(self, error: ScalableError) -> None:
        while True:
            with self._changed:
                waiting = [message for message in self._pending if message.outcome is None]
                for message in waiting:
                    message.outcome = error
            self._deliver()
            if not waiting:
                return

    def _deliver(self) -> None:
        """Call back for the first messages whose outcome is known; one thread at a time."""
        if self._deliverer == threading.get_ident():
            return
        with self._delivery:
            self._deliverer = threading.get_ident()
            try:
                while (message := self._first_with_outcome()) is not None:
                    self._call_back(message)
                    with self._changed:
                        self._pending.popleft()
                        self._changed.notify_all()
            finally:
                self._deliverer = 0

    def _first_with_outcome(self) -> _Sent | None:
        with self._changed:
            return self._pending[0] if self._pending and self._pending[0].outcome is not None else None

    def _call_back(self, message: _Sent) -> None:
        outcome = message.outcome
        stored = outcome if isinstance(outcome, MessageId) else None
        if stored is not None:
            self._last_stored = max(self._last_stored, message.sequence_id)
        try:
            message.callback(outcome if isinstance(outcome, ScalableError) else None, stored)
        except Exception:
            # The callbacks of other messages must still be called.
            _logger.exception("%s: the callback of message %d failed", self._topic, message.sequence_id)
