"""A producer of a scalable topic."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from pulsar_scalable.backends import Backend, Content, require_number
from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut
from pulsar_scalable.lane import Lane
from pulsar_scalable.messages import MessageId
from pulsar_scalable.names import TopicName
from pulsar_scalable.options import ProducerOptions
from pulsar_scalable.outbox import Outbox
from pulsar_scalable.outgoing import OnOutcome, Outgoing
from pulsar_scalable.worker import Worker

_logger = logging.getLogger("pulsar_scalable")
_TICK = 0.1
_FLUSH_SPARE = 5.0


class ScalableProducer:
    """Sends messages to a scalable topic; `ScalableClient.create_producer` makes it.

    A message goes to the segment that takes the hash of its partition key, as with the Java client; an empty key is a
    key. Messages without a key go to the segments in turn. When a segment is split or merged, what it refused goes to
    the segments that took over.

    What is guaranteed:

    - Each message's outcome is told once. One that is told to be stored is stored.
    - Messages of a key are stored in the order in which they were sent, through splits and merges: a later one waits
      until it is known of the earlier ones what became of them. One that failed is left out of that order.
    - A split or a merge by itself stores nothing twice. What a sealed segment did not acknowledge is looked for in it,
      behind the last message that it did, before it is sent elsewhere: a sealed segment changes no more. Only where
      equal messages (content, key, properties, millisecond) leave open how many of them are stored are messages sent
      again that may be stored.
    - A connection that breaks, or a broker that dies, may store messages twice in a segment, as with any producer of
      Pulsar; not where the namespace has deduplication on. A sealed segment of a controlled topic breaks the connection
      that sends to it (pulsar-client 3.13), so each segment's producer has its own.

    Callbacks come from one thread of this producer, not in the order of sending, but in that of sending for each key.
    They must not wait: `send` raises in them, and `send_async` does not wait for room.
    """

    def __init__(self, backend: Backend, topic: TopicName, options: ProducerOptions) -> None:
        self._topic = topic
        self._options = options
        self._outcomes: SimpleQueue[Outgoing | threading.Event | None] = SimpleQueue()
        self._closed = threading.Event()
        self._worker = Worker(backend, options)
        self._outbox = Outbox(topic.path, options, start=self._start, deliver=self._outcomes.put)
        self._watch = backend.watch(topic, self._outbox.take_layout)
        self._caller = threading.Thread(target=self._call_back, name=f"outcomes of {topic.path}", daemon=True)
        self._caller.start()
        threading.Thread(target=self._tick, name=f"timeouts of {topic.path}", daemon=True).start()

    @property
    def topic(self) -> str:
        """The scalable topic, `tenant/namespace/topic`."""
        return self._topic.path

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._closed.is_set()

    @property
    def pending_messages(self) -> int:
        """Messages whose outcome is not known yet."""
        return self._outbox.pending_messages

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that this producer has stored; -1 for none."""
        return self._outbox.last_sequence_id

    def send(
        self,
        content: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> MessageId:
        """Send a message, and wait until it is stored.

        Args:
            content: what to send.
            properties: of the message.
            partition_key: its key, which chooses the segment and orders messages; None for none.
            ordering_key: the key for Key_Shared subscriptions alone.
            sequence_id: for deduplication; None for the next of the segment. A message that is sent again with its key
                and its sequence id is stored once where the namespace has deduplication on, and its segment was neither
                split nor merged meanwhile.
            event_timestamp: milliseconds since 1970.

        Raises:
            TimedOut: it is not known to be stored after `send_timeout_millis`; it may be stored later.
            QueueFull: too many messages wait to be stored.
            TopicNotFound: the topic is deleted.
            ScalableError: it is not stored.
        """
        if threading.current_thread() is self._caller:
            raise ScalableError(f"{self._topic.path}: a callback cannot wait for a message; use send_async in it")
        done = threading.Event()
        found: list[ScalableError | MessageId | None] = []

        def on_outcome(error: ScalableError | None, message_id: MessageId | None) -> None:
            found.append(error or message_id)
            done.set()

        self.send_async(
            content,
            on_outcome,
            properties=properties,
            partition_key=partition_key,
            ordering_key=ordering_key,
            sequence_id=sequence_id,
            event_timestamp=event_timestamp,
        )
        done.wait()
        if isinstance(found[0], MessageId):
            return found[0]
        raise found[0] or ScalableError(f"{self._topic.path}: a message came to no end")

    def send_async(
        self,
        content: bytes,
        callback: OnOutcome,
        *,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> None:
        """Send a message; the callback gets an error and None, or None and the message's id once it is stored.

        Args are those of `send`.

        Raises:
            QueueFull: too many messages wait to be stored, and `block_if_queue_full` is not set.
            TopicNotFound: the topic is deleted.
            AlreadyClosed: the producer is closed.
            TypeError: something is of another type.
            ValueError: a number is out of range, or a text cannot be encoded.
        """
        said = Content(
            content,
            dict(properties) if properties else None,
            partition_key,
            ordering_key or None,
            event_timestamp or None,
        )
        if sequence_id is not None:
            require_number("sequence_id", sequence_id)
        may_wait = threading.current_thread() is not self._caller
        self._outbox.add(said, sequence_id, callback, may_wait=may_wait)

    def flush(self) -> None:
        """Wait until what was sent so far is stored, or has failed, and the callbacks that say so have returned.

        In a callback it does not wait for others.

        Raises:
            TimedOut: it takes longer than `send_timeout_millis` and some seconds.
        """
        limit = self._options.send_timeout_millis
        timeout = limit / 1000 + _FLUSH_SPARE if limit else float("inf")
        until = time.monotonic() + timeout
        if not self._outbox.flush(timeout if limit else None):
            raise TimedOut(f"{self._topic.path}: messages are not stored after {limit} ms")
        if not self._are_told(until):
            raise TimedOut(f"{self._topic.path}: a callback does not return")

    def close(self) -> None:
        """Close it; what is not stored by then fails with `AlreadyClosed`. Harmless when done twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watch.close()
        self._outbox.close(AlreadyClosed(f"{self._topic.path}: closed before this message was stored"))
        self._worker.join()
        self._outcomes.put(None)
        if threading.current_thread() is not self._caller:
            self._caller.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; without an error, what was sent is stored first."""
        try:
            if kind is None and not self._closed.is_set():
                self.flush()
        finally:
            self.close()

    def _start(self, lane: Lane) -> None:
        self._worker.start(self._outbox, lane)

    def _are_told(self, until: float) -> bool:
        """Wait until the callbacks of all outcomes that are known have returned; whether that came in time."""
        if threading.current_thread() is self._caller:
            return True
        told = threading.Event()
        self._outcomes.put(told)
        while self._caller.is_alive() and not told.wait(_TICK):
            if time.monotonic() > until:
                return False
        return True

    def _call_back(self) -> None:
        while (one := self._outcomes.get()) is not None:
            if isinstance(one, threading.Event):
                one.set()
                continue
            outcome = one.outcome
            try:
                if isinstance(outcome, MessageId):
                    one.on_outcome(None, outcome)
                else:
                    one.on_outcome(outcome, None)
            except Exception:
                # Those of other messages must be called nevertheless.
                _logger.exception("%s: a callback failed", self._topic.path)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK):
            self._outbox.expire(time.monotonic())
