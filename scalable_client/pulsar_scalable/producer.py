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
from pulsar_scalable.pending_message import OnOutcome, PendingMessage, stored_of
from pulsar_scalable.ports import Backend, Content, OnStored, SegmentSender, Start
from pulsar_scalable.send_queue import SegmentSendQueue, SendQueue

_logger = logging.getLogger("pulsar_scalable")
_TICK = 0.1
_FLUSH_SPARE = 5.0
# Another attempt would end the same way; applications must know.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, ProducerBusy, Unsupported)
# mutant: scalable-client/a-defect-is-tried-again
_DEFECTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
_LONGEST_PAUSE = 2.0
_READ_LIMIT_MS = 5000
# Seconds. All later messages wait for a segment that was just loaded anew, which loses answers; slow brokers need more.
_FIRST_ANSWER, _LONGEST_ANSWER = 2, 32
_LOOK = 0.05
_END_LIMIT = 10.0
# A broker that lost a connection without an end holds the name of its producer until it misses an answer.
_BUSY_LIMIT = 60.0
# Clocks of producers differ, and brokers find a time among messages of all of them.
_CLOCKS_MS = 60_000


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
        """Whether it is closed."""
        return self._closed.is_set()

    @property
    def pending_messages(self) -> int:
        """Messages whose outcome is not known yet."""
        return self._queue.pending_messages

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that this producer has stored; -1 for none."""
        return self._queue.last_sequence_id

    def send(self, content: bytes, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message, and wait until it is stored; options are described at `MessageOptions`.

        Raises:
            TimedOut: it is not known to be stored after `send_timeout_millis`; it may be stored later.
            QueueFull: too many messages wait to be stored.
            TopicNotFound: the topic is deleted.
            ScalableError: it is not stored.
        """
        if threading.current_thread() is self._caller:
            raise ScalableError(f"{self._topic.path}: a callback cannot wait for a message; use send_async in it")
        return wait_for_outcome(lambda on_outcome: self.send_async(content, on_outcome, **options), self._topic.path)

    def send_async(self, content: bytes, callback: OnOutcome, **options: Unpack[MessageOptions]) -> None:
        """Send a message; the callback gets an error and None, or None and the message's id once it is stored.

        Raises:
            QueueFull: too many messages wait to be stored, and `block_if_queue_full` is not set.
            TopicNotFound: the topic is deleted.
            AlreadyClosed: the producer is closed.
            TypeError: something is of another type.
            ValueError: a number is out of range, or a text cannot be encoded.
        """
        may_wait = threading.current_thread() is not self._caller
        self._queue.add(Content.of(content, **options), callback, may_wait=may_wait)

    def flush(self) -> None:
        """Wait until what was sent so far is stored, or has failed, and the callbacks that say so have returned.

        In a callback it does not wait for others.

        Raises:
            TimedOut: it takes longer than `send_timeout_millis` and some seconds.
        """
        limit = self._options.send_timeout_millis
        timeout = limit / 1000 + _FLUSH_SPARE if limit else float("inf")
        until = time.monotonic() + timeout
        if not self._queue.flush(timeout if limit else None):
            raise TimedOut(f"{self._topic.path}: messages are not stored after {limit} ms")
        if not self._are_told(until):
            raise TimedOut(f"{self._topic.path}: a callback does not return")

    def close(self) -> None:
        """Close it; what is not stored by then fails with `AlreadyClosed`. Harmless when done twice."""
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
        """Close it; without an error, what was sent is stored first."""
        try:
            if kind is None and not self._closed.is_set():
                self.flush()
        finally:
            self.close()

    def _start(self, queue: SegmentSendQueue) -> None:
        self._threads.start(self._queue, queue)

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
            self._queue.expire(time.monotonic())


class SendThreads:
    """Works on queues.

    Args:
        backend: opens producers and readers of segments.
        options: of the producer.
    """

    def __init__(self, backend: Backend, options: ProducerOptions) -> None:
        self._backend = backend
        self._options = options
        self._threads: list[threading.Thread] = []

    def start(self, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        """Begin to work on a queue."""
        made = threading.Thread(target=self._run, args=(send_queue, queue), name=f"send to {queue.topic}", daemon=True)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        made.start()
        self._threads.append(made)

    def join(self) -> None:
        """Wait until the producers of segments are closed, for some seconds at most."""
        until = time.monotonic() + _END_LIMIT
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        last: SegmentSender | None = None
        # mutant: scalable-client/what-replaces-a-sender-has-another-name
        while (sender := self._open(send_queue, queue, last.producer_name if last else None)) is not None:
            last = sender
            try:
                while found := send_queue.next(queue):
                    for one, sequence_id in found:
                        _send(sender, one.content, sequence_id, partial(send_queue.stored, queue, one))
            finally:
                sender.close()
            if not send_queue.opens_again(queue):
                break
        if not queue.done:
            self._resolve(send_queue, queue, last)

    def _open(self, send_queue: SendQueue, queue: SegmentSendQueue, replaced: str | None) -> SegmentSender | None:
        """Return the sender of a queue; None once the queue has ended or is done.

        One that replaces another takes its name: deduplication knows by it what is stored.
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
                _logger.info("%s: %s; opened again", queue.topic, error)
                send_queue.pause(queue, backoff.next())
            else:
                if send_queue.opened(queue, sender):
                    return sender
                sender.close()
        return None

    def _resolve(self, send_queue: SendQueue, queue: SegmentSendQueue, sender: SegmentSender | None) -> None:
        """Find out what a sealed segment has stored of what it did not acknowledge.

        It is sealed, so what it holds is all that it will ever hold.
        """
        sent = send_queue.sent(queue)
        stored: list[RawMessage] = []
        if sent and sender is not None:
            search = _Search(queue, partial(self._tail, queue, queue.begun_ms, sender.producer_name))
            self._await(search, send_queue, queue)
            if search.failure is not None:
                send_queue.fail(sent, search.failure)
            stored = stored_of(sent, search.found or [])
            search.given_up.set()
        send_queue.resolve(queue, sent, stored)

    def _await(self, search: _Search, send_queue: SendQueue, queue: SegmentSendQueue) -> None:
        """Wait for what a search finds, as long as a message that it may find waits for its outcome."""
        while not search.done.wait(_LOOK) and send_queue.sent(queue):
            if send_queue.has_left(queue):
                search.read_beside()

    def _tail(self, queue: SegmentSendQueue, begun: int, producer_name: str, answer_limit: int) -> list[RawMessage]:
        """What a segment holds of this producer behind the last message that is known to be stored."""
        since = begun - _CLOCKS_MS if begun else None
        reader = self._backend.open_reader(queue.topic, Start(queue.last, since, answer_limit))
        found: list[RawMessage] = []
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_LIMIT_MS)
                if message.producer_name() == producer_name and message.publish_timestamp() >= begun:
                    found.append(message)
        except TimedOut as cause:
            raise ScalableError(f"a message that is there does not come: {cause}") from cause
        finally:
            reader.close()
        return found


def _send(sender: SegmentSender, content: Content, sequence_id: int, on_stored: OnStored) -> None:
    try:
        sender.send(content, sequence_id, on_stored)
    except Exception as cause:
        # Without this thread all later messages of the segment would only time out.
        _logger.exception("message %d cannot be sent", sequence_id)
        on_stored(ScalableError(f"the library does not take this message: {cause!r}"), None)


class _Search:
    """Reads a segment in threads of its own, again and again until that succeeds.

    Attributes:
        found: what it holds; None as long as that is not known.
        failure: why that will never be known; a defect, of this package or of pulsar-client.
        done: set once it is, or will never be.
        given_up: nobody waits any more.
    """

    def __init__(self, queue: SegmentSendQueue, read: Callable[[int], list[RawMessage]]) -> None:
        self.found: list[RawMessage] | None = None
        self.failure: ScalableError | None = None
        self.done = threading.Event()
        self.given_up = threading.Event()
        self._queue = queue
        self._read = read
        self._beside = False
        self._begin()

    def read_beside(self) -> None:
        """Read again beside what is under way; only the first call counts.

        A controller of ours has a sealed segment loaded again before it publishes the layout: what began before that
        may be refused, and in a pause, or wait for an answer that went with its connection.
        """
        if not self._beside:
            self._beside = True
            self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._run, name=f"look into {self._queue.topic}", daemon=True).start()

    def _run(self) -> None:
        backoff, limit = Backoff(_LONGEST_PAUSE), _FIRST_ANSWER
        while not self.given_up.is_set() and not self._queue.done and not self.done.is_set():
            try:
                self.found = self._read(limit)
                break
            except (TopicNotFound, *_FINAL) as error:
                _logger.warning("%s: %s: what it did not acknowledge is sent again", self._queue.topic, error)
                break
            except _DEFECTS as error:
                # Another attempt would end the same way, and all later messages of these keys wait for this one.
                _logger.exception("%s: it is not known what the segment stored", self._queue.topic)
                self.failure = ScalableError(f"{self._queue.topic}: a message may be stored or not: {error!r}")
                break
            except Exception as error:  # noqa: BLE001 - the messages wait for this thread alone
                _logger.info("%s: %r; read again", self._queue.topic, error)
                self.given_up.wait(backoff.next())
                limit = min(2 * limit, _LONGEST_ANSWER)
        self.done.set()
