"""A producer of a scalable topic."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self, Unpack

from pulsar_scalable.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    IncompatibleSchema,
    NotAuthorized,
    ProducerBusy,
    ScalableError,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
    Unsupported,
)
from pulsar_scalable.messages import MessageId, RawMessage
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.options import MessageOptions, ProducerOptions
from pulsar_scalable.outcome import wait_for_outcome
from pulsar_scalable.pending_message import OnOutcome, PendingMessage, match_stored
from pulsar_scalable.ports import Backend, Content, OnStored, SegmentSender, Start
from pulsar_scalable.send_queue import SegmentSendQueue, SendQueue

_logger = logging.getLogger("pulsar_scalable")
_TICK = 0.1
_FLUSH_SPARE = 5.0
# Errors that another attempt would not change, so the application gets them.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, ProducerBusy, Unsupported)
# mutant: scalable-client/a-defect-is-tried-again
_DEFECTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
_LONGEST_PAUSE = 2.0
_READ_LIMIT_MS = 5000
# Seconds. All later messages wait for a segment that was just loaded again, which loses answers; slow brokers need
# more.
_FIRST_ANSWER, _LONGEST_ANSWER = 2, 32
_RESOLVE_TICK = 0.05
_END_LIMIT = 10.0
# After an unclean disconnect a broker keeps the producer's name until a keep-alive fails.
_BUSY_LIMIT = 60.0
# Clocks of producers differ, and brokers search by time in the messages of all producers.
_CLOCKS_MS = 60_000


class ScalableProducer:
    """Sends messages to a scalable topic; created by `ScalableClient.create_producer`.

    A message goes to the segment that covers the hash of its partition key, as with the Java client; an empty key is a
    key. Messages without a key go to the segments in turn. When a segment is split or merged, rejected messages go to
    the segments that replace it.

    Guarantees:

    - The outcome of each message is reported once. A message that is reported as stored is stored.
    - Messages of a key are stored in the order of sending, through splits and merges: a later message waits until the
      outcome of the earlier ones is known. A failed message is left out of that order.
    - A split or merge alone stores nothing twice. Unacknowledged messages of a sealed segment are searched there, after
      the last acknowledged one, before they are sent elsewhere: a sealed segment does not change. Only if equal
      messages (content, key, properties, millisecond) make the result ambiguous, a stored message may be sent again.
    - A broken connection or a dead broker may cause duplicates in a segment, as with any producer of Pulsar, unless the
      namespace has deduplication on. A sealed segment of a controlled topic breaks the connection that sends to it
      (pulsar-client 3.13), so each segment's producer has its own.

    Callbacks run in one thread of this producer: per key in the order of sending, otherwise in any order. They must not
    block: `send` raises in a callback, and `send_async` does not wait for room.
    """

    def __init__(self, backend: Backend, topic: TopicName, options: ProducerOptions) -> None:
        self._topic = topic
        self._options = options
        self._outcomes: SimpleQueue[PendingMessage | threading.Event | None] = SimpleQueue()
        self._closed = threading.Event()
        self._threads = SendThreads(backend, options)
        self._queue = SendQueue(topic.path, options, start=self._start, deliver=self._outcomes.put)
        self._watch = backend.watch(topic, self._queue.take_layout)
        self._caller = threading.Thread(target=self._call_back, name=f"outcomes of {topic.path}", daemon=True)
        self._caller.start()
        threading.Thread(target=self._tick, name=f"timeouts of {topic.path}", daemon=True).start()

    @property
    def topic(self) -> str:
        """The scalable topic, `tenant/namespace/topic`."""
        return self._topic.path

    @property
    def is_closed(self) -> bool:
        """True if it is closed."""
        return self._closed.is_set()

    @property
    def pending_messages(self) -> int:
        """Number of messages without an outcome."""
        return self._queue.pending_messages

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that this producer has stored; -1 for none."""
        return self._queue.last_sequence_id

    def send(self, content: bytes, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message and wait until it is stored; `MessageOptions` describes the options.

        Raises:
            TimedOut: no outcome within `send_timeout_millis`; it may be stored later.
            QueueFull: too many messages are pending.
            TopicNotFound: the topic is deleted.
            ScalableError: the message is not stored.
        """
        if threading.current_thread() is self._caller:
            raise ScalableError(
                f"{self._topic.path}: send() was called in a callback, which must not wait; use send_async()"
            )
        return wait_for_outcome(lambda on_outcome: self.send_async(content, on_outcome, **options), self._topic.path)

    def send_async(self, content: bytes, callback: OnOutcome, **options: Unpack[MessageOptions]) -> None:
        """Send a message; the callback receives (error, None) or (None, id).

        Raises:
            QueueFull: too many messages are pending, and `block_if_queue_full` is not set.
            TopicNotFound: the topic is deleted.
            AlreadyClosed: the producer is closed.
            TypeError: a value has the wrong type.
            ValueError: a number is out of range, or a text cannot be encoded.
        """
        may_wait = threading.current_thread() is not self._caller
        self._queue.add(Content.of(content, **options), callback, may_wait=may_wait)

    def flush(self) -> None:
        """Wait until all messages sent so far have an outcome and their callbacks have returned.

        In a callback it does not wait for other callbacks.

        Raises:
            TimedOut: it takes longer than `send_timeout_millis` and some seconds.
        """
        limit = self._options.send_timeout_millis
        timeout = limit / 1000 + _FLUSH_SPARE if limit else float("inf")
        until = time.monotonic() + timeout
        if not self._queue.flush(timeout if limit else None):
            raise TimedOut(f"{self._topic.path}: messages are not stored after {limit} ms")
        if not self._wait_for_callbacks(until):
            raise TimedOut(f"{self._topic.path}: a callback has not returned in time")

    def close(self) -> None:
        """Close it; messages that are not stored yet fail with `AlreadyClosed`. Closing twice is safe."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watch.close()
        self._queue.close(AlreadyClosed(f"{self._topic.path}: closed before this message was stored"))
        self._threads.join()
        self._outcomes.put(None)
        if threading.current_thread() is not self._caller:
            self._caller.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; without an error, wait first until all sent messages are stored."""
        try:
            if kind is None and not self._closed.is_set():
                self.flush()
        finally:
            self.close()

    def _start(self, queue: SegmentSendQueue) -> None:
        self._threads.start(self._queue, queue)

    def _wait_for_callbacks(self, until: float) -> bool:
        """Wait until the callbacks of all known outcomes have returned; return False if that takes too long."""
        if threading.current_thread() is self._caller:
            return True
        returned = threading.Event()
        self._outcomes.put(returned)
        while self._caller.is_alive() and not returned.wait(_TICK):
            if time.monotonic() > until:
                return False
        return True

    def _call_back(self) -> None:
        while (item := self._outcomes.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            outcome = item.outcome
            try:
                if isinstance(outcome, MessageId):
                    item.on_outcome(None, outcome)
                else:
                    item.on_outcome(outcome, None)
            except Exception:
                # The callbacks of other messages must still be called.
                _logger.exception("%s: a callback failed", self._topic.path)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK):
            self._queue.expire(time.monotonic())


class SendThreads:
    """Threads that send the messages of segment queues.

    Args:
        backend: opens senders and readers of segments.
        options: of the producer.
    """

    def __init__(self, backend: Backend, options: ProducerOptions) -> None:
        self._backend = backend
        self._options = options
        self._threads: list[threading.Thread] = []

    def start(self, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        """Start a thread for a queue."""
        made = threading.Thread(target=self._run, args=(send_queue, queue), name=f"send to {queue.topic}", daemon=True)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        made.start()
        self._threads.append(made)

    def join(self) -> None:
        """Wait until the producers of segments are closed, at most some seconds."""
        until = time.monotonic() + _END_LIMIT
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        last: SegmentSender | None = None
        # mutant: scalable-client/what-replaces-a-sender-has-another-name
        while (sender := self._open(send_queue, queue, last.producer_name if last else None)) is not None:
            last = sender
            try:
                while batch := send_queue.next(queue):
                    for message, sequence_id in batch:
                        _send(sender, message.content, sequence_id, partial(send_queue.stored, queue, message))
            finally:
                sender.close()
            if not send_queue.needs_sender(queue):
                break
        if not queue.done:
            self._resolve(send_queue, queue, last)

    def _open(self, send_queue: SendQueue, queue: SegmentSendQueue, replaced: str | None) -> SegmentSender | None:
        """Return the sender of a queue; None once the queue has ended or is done.

        A sender that replaces another one takes its name, by which deduplication recognises stored messages.
        """
        backoff = Backoff(_LONGEST_PAUSE)
        busy_until = time.monotonic() + _BUSY_LIMIT if replaced else 0.0
        while send_queue.is_wanted(queue):
            try:
                sender = self._backend.open_sender(queue.topic, self._options, replaced)
            except (TopicTerminated, *_FINAL) as error:
                if isinstance(error, ProducerBusy) and time.monotonic() < busy_until:
                    send_queue.pause(queue, backoff.next())
                else:
                    send_queue.refused(queue, error)
            except ScalableError as error:
                _logger.info("%s: %s; retrying", queue.topic, error)
                send_queue.pause(queue, backoff.next())
            else:
                if send_queue.opened(queue, sender):
                    return sender
                sender.close()
        return None

    def _resolve(self, send_queue: SendQueue, queue: SegmentSendQueue, sender: SegmentSender | None) -> None:
        """Find out which unacknowledged messages a sealed segment has stored.

        A sealed segment does not change, so the answer is final.
        """
        sent = send_queue.sent(queue)
        stored: list[RawMessage] = []
        if sent and sender is not None:
            search = _Search(queue, partial(self._tail, queue, queue.unresolved_since_ms, sender.producer_name))
            self._wait_for_search(search, send_queue, queue)
            if search.failure is not None:
                send_queue.fail(sent, search.failure)
            stored = match_stored(sent, search.messages or [])
            search.given_up.set()
        send_queue.resolve(queue, sent, stored)

    def _wait_for_search(self, search: _Search, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        """Wait for the result of a search, as long as a message needs it."""
        while not search.done.wait(_RESOLVE_TICK) and send_queue.sent(queue):
            if send_queue.is_retired(queue):
                search.start_second_reader()

    def _tail(self, queue: SegmentSendQueue, since_ms: int, producer_name: str, answer_limit: int) -> list[RawMessage]:
        """Return this producer's messages in a segment after the last one that is known to be stored."""
        start_ms = since_ms - _CLOCKS_MS if since_ms else None
        reader = self._backend.open_reader(queue.topic, Start(queue.last, start_ms, answer_limit))
        messages: list[RawMessage] = []
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_LIMIT_MS)
                if message.producer_name() == producer_name and message.publish_timestamp() >= since_ms:
                    messages.append(message)
        except TimedOut as cause:
            raise ScalableError(f"a stored message does not arrive: {cause}") from cause
        finally:
            reader.close()
        return messages


def _send(sender: SegmentSender, content: Content, sequence_id: int, on_stored: OnStored) -> None:
    try:
        sender.send(content, sequence_id, on_stored)
    except Exception as cause:
        # Without this thread all later messages of the segment would time out.
        _logger.exception("message %d cannot be sent", sequence_id)
        on_stored(ScalableError(f"pulsar-client rejects this message: {cause!r}"), None)


class _Search:
    """Reads a segment in own threads, and retries until it succeeds.

    Attributes:
        messages: messages of the segment; None until known.
        failure: error that makes the search fail for good: a defect in this package or in pulsar-client.
        done: set once `messages` or `failure` is known, or the search ended.
        given_up: the result is not needed any more.
    """

    def __init__(self, queue: SegmentSendQueue, read: Callable[[int], list[RawMessage]]) -> None:
        self.messages: list[RawMessage] | None = None
        self.failure: ScalableError | None = None
        self.done = threading.Event()
        self.given_up = threading.Event()
        self._queue = queue
        self._read = read
        self._has_second_reader = False
        self._begin()

    def start_second_reader(self) -> None:
        """Start a second reader in parallel; only the first call has an effect.

        The workflow has a sealed segment loaded again before it publishes the layout. A reader from before that may be
        rejected and in a pause, or wait for an answer that was lost with its connection.
        """
        if not self._has_second_reader:
            self._has_second_reader = True
            self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._run, name=f"search {self._queue.topic}", daemon=True).start()

    def _run(self) -> None:
        backoff, limit = Backoff(_LONGEST_PAUSE), _FIRST_ANSWER
        while not self.given_up.is_set() and not self._queue.done and not self.done.is_set():
            try:
                self.messages = self._read(limit)
                break
            except (TopicNotFound, *_FINAL) as error:
                _logger.warning("%s: %s: its unacknowledged messages are sent again", self._queue.topic, error)
                break
            except _DEFECTS as error:
                # Another attempt would fail the same way, and all later messages of these keys wait for this one.
                _logger.exception("%s: cannot find out which messages the segment stored", self._queue.topic)
                self.failure = ScalableError(f"{self._queue.topic}: delivery outcome unknown: {error!r}")
                break
            except Exception as error:  # noqa: BLE001 - the messages depend on this thread
                _logger.info("%s: %r; retrying", self._queue.topic, error)
                self.given_up.wait(backoff.next())
                limit = min(2 * limit, _LONGEST_ANSWER)
        self.done.set()
