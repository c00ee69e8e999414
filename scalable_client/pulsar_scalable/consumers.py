"""Base of the consumers with subscriptions: each attached segment has a receiving thread."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

from pulsar_scalable.enums import ConsumerType, InitialPosition
from pulsar_scalable.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConsumerBusy,
    IncompatibleSchema,
    NotAuthorized,
    Refused,
    ScalableError,
    TimedOut,
    TopicNotFound,
    Unsupported,
)
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.messages import Message, MessageId, position_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.options import ConsumerOptions
from pulsar_scalable.ports import Backend, SegmentReceiver, Sharing
from pulsar_scalable.receive_queue import End, ReceiveQueue, Source

_logger = logging.getLogger("pulsar_scalable")
REATTACH_DELAY = 30.0
"""Seconds until a segment that was detached as idle is attached again, also if attaching fails."""

RELEASE_LIMIT = 60.0
"""Seconds without an acknowledgement after which a reassigned segment is released anyway."""

_YIELD_SECONDS = 5.0
_TICK_MS = 200
_DRAIN_TICK = 0.02
_BUSY_WARNING = 10.0
_BUSY_AGAIN = 60.0
_LONGEST_PAUSE = 2.0
_TRIED_TICK = 0.05
# Errors that another attempt would not change, so the application gets them.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, Unsupported)


class SegmentsConsumer(ABC):
    """Attached to segments of a topic under one subscription; base of the consumers that applications use.

    Args:
        backend: opens receivers of segments.
        topic: the scalable topic.
        subscription: name of the subscription.
        options: options of each segment's receiver.
    """

    def __init__(self, backend: Backend, topic: TopicName, subscription: str, options: ConsumerOptions) -> None:
        self._backend = backend
        self._topic = topic
        self._subscription = subscription
        self._name = options.consumer_name or f"{subscription}-{secrets.token_hex(5)}"
        self._options = replace(options, consumer_name=self._name)
        self._queue = ReceiveQueue(topic.path)
        self._lock = threading.RLock()
        self._sources: dict[int, Source] = {}
        self._threads: list[threading.Thread] = []
        self._layout: Layout | None = None
        self._first: set[int] = set()
        self._yield_until: dict[int, float] = {}
        self._turn = 0
        self._closed = threading.Event()

    @property
    def topic(self) -> str:
        """The scalable topic, `tenant/namespace/topic`."""
        return self._topic.path

    @property
    def subscription_name(self) -> str:
        """The subscription's name."""
        return self._subscription

    @property
    def consumer_name(self) -> str:
        """The consumer's name."""
        return self._name

    @property
    def is_closed(self) -> bool:
        """True if it is closed."""
        return self._closed.is_set()

    @property
    def segments(self) -> list[int]:
        """Ids of the segments that it is attached to, or is attaching to."""
        with self._lock:
            return sorted(self._sources)

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Args:
            timeout_millis: longest time to wait; None to wait indefinitely.

        Raises:
            TimedOut: no message arrived in time.
            TopicNotFound: the topic was deleted.
            AlreadyClosed: the consumer is closed, also during this call.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            remaining = None if until is None else max(0, round((until - time.monotonic()) * 1000))
            message = self._queue.get(remaining)
            if isinstance(message, End) or not isinstance(message.source, Source):
                continue
            source = message.source
            with self._lock:
                position = message.message_id().position
                if source.waiting.get(position) is not message:
                    continue
                del source.waiting[position]
                if not source.released.is_set():
                    self._turn += 1
                    message.turn = self._turn
                    source.handed[position] = message.message_id()
                    return message

    def wait_for_message(self, timeout_millis: int) -> None:
        """Wait until `receive` can probably return or raise without waiting; takes no message.

        Args:
            timeout_millis: longest time to wait.
        """
        self._queue.wait(timeout_millis)

    def batch_receive(self, max_num_messages: int = 100, timeout_millis: int = 100) -> list[Message]:
        """Return the messages that arrive in time, possibly none.

        Args:
            max_num_messages: largest number of messages.
            timeout_millis: longest time to wait.
        """
        until = time.monotonic() + timeout_millis / 1000
        messages: list[Message] = []
        while len(messages) < max_num_messages:
            try:
                messages.append(self.receive(max(0, round((until - time.monotonic()) * 1000))))
            except TimedOut:
                break
        return messages

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message.

        A message whose segment moved to another consumer is delivered again; that is not an error.

        Raises:
            AlreadyClosed: the consumer is closed.
            ScalableError: the acknowledgement failed.
        """
        source, message_id = self._find(message)
        if source is not None:
            self._acknowledge(source, [message_id])

    def negative_acknowledge(self, message: Message) -> None:
        """Request redelivery of a message, to any consumer, after the redelivery delay.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        source, message_id = self._find(message)
        receiver = source.receiver if source is not None else None
        if source is None or receiver is None:
            return
        try:
            receiver.negative_acknowledge(message.raw)
        except AlreadyClosed as error:
            _logger.info("%s: %s is redelivered anyway: %s", source.topic, message_id, error)
            return
        due = time.monotonic() + self._options.negative_ack_redelivery_delay_ms / 1000
        with self._lock:
            source.handed.pop(message_id.position, None)
            # The segment does not count as idle before the message had time to arrive.
            source.last_activity = max(source.last_activity, due)

    def close(self) -> None:
        """Close it; unacknowledged messages go to other consumers. Closing twice is safe."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._queue.close()
        with self._lock:
            sources, threads = list(self._sources.values()), list(self._threads)
        for source in sources:
            source.stop()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(10)
        # Last, so that the consumer that gets the segments can attach to them.
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _leave(self) -> None:
        """Stop following the layout and the assignment."""

    def _is_ordered(self, source: Source) -> bool:
        """Return whether brokers send all messages of a segment to this consumer, and so in order."""
        del source
        return False

    def _may_open(self, source: Source) -> bool:
        """Return whether a segment may be attached now."""
        del source
        return True

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Return whether an idle segment needs no receiver any more."""
        del source, receiver
        return False

    def _should_reattach(self, source: Source) -> bool:
        """Return whether a segment that needed no receiver should get one again; may wait.

        An implementation that does not wait clears `was_idle`, so that a failure to attach causes no long pause.
        """
        return not source.stopped.wait(REATTACH_DELAY)

    def _sharing(self, source: Source) -> Sharing:
        """Return how the subscription of a segment is shared."""
        del source
        return Sharing(ConsumerType.Shared)

    def _on_released(self) -> None:
        """Attach to waiting segments after a segment was released; called with the lock held."""
        return

    def _wait_until_subscribed(self, limit: float) -> bool:
        """Wait until the subscription exists on all current segments; return False after the limit.

        Args:
            limit: most seconds to wait.

        Raises:
            ScalableError: a broker rejects the consumer for good; the consumer is closed.
        """
        until = time.monotonic() + limit
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            while not (source.tried.wait(_TRIED_TICK) or source.stopped.is_set()):
                if self._is_sealed(source) and isinstance(source.refusal, Refused):
                    # A sealed segment without messages may reject everything, and no new messages arrive in it.
                    break
                if time.monotonic() > until:
                    return False
            refusal = source.refusal
            if isinstance(refusal, _FINAL):
                # Read before: the segment's thread may change it while this closes.
                self.close()
                raise refusal
        return True

    def _not_subscribed(self) -> ScalableError:
        """Return an error that names the segments without the subscription."""
        with self._lock:
            missing = [source for source in self._sources.values() if not source.tried.is_set()]
        reasons = "; ".join(f"{source.topic}: {source.refusal or 'no answer'}" for source in missing)
        return TimedOut(f"{self._topic.path}: {self._subscription} is not subscribed on all segments: {reasons}")

    def _take_layout(self, layout: Layout) -> None:
        with self._lock:
            before, self._layout = self._layout, layout
            gone = TopicNotFound(-1, "the topic was deleted", self._topic.path)
            self._queue.end(gone if layout.is_deleted else None)
            if before is None:
                self._first = {*layout.by_id}
            elif before.incarnation != layout.incarnation or layout.is_deleted:
                self._first = set()
                for source in list(self._sources.values()):
                    if layout.is_deleted or source.incarnation not in (0, layout.incarnation):
                        self._stop(source)

    def _attach(
        self, segment: Segment, topic: str, incarnation: int, buckets: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Start to receive from a segment, in a new thread; called with the lock held."""
        current = self._sources.get(segment.id)
        if current is not None and current.incarnation != incarnation:
            self._stop(current)
        if segment.id in self._sources or self._closed.is_set():
            return
        source = self._sources[segment.id] = Source(segment, topic, incarnation, buckets)
        thread = threading.Thread(target=self._serve, args=(source,), name=f"receive from {topic}", daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        thread.start()

    def _stop(self, source: Source) -> None:
        source.stop()
        if self._sources.get(source.segment.id) is source:
            del self._sources[source.segment.id]

    def _is_sealed(self, source: Source) -> bool:
        layout = self._layout
        current = layout.by_id.get(source.segment.id) if layout else None
        return current is not None and not current.active

    def _serve(self, source: Source) -> None:
        backoff, busy = Backoff(_LONGEST_PAUSE), _Busy(source)
        while not source.released.is_set():
            if not self._may_open(source) or time.monotonic() < self._yield_until.get(source.segment.id, 0.0):
                source.released.wait(_TICK_MS / 1000)
                continue
            try:
                receiver = self._open(source)
            except ConsumerBusy as error:
                source.tried.set()
                busy.report(error)
                source.released.wait(backoff.next() / 4)
                continue
            except Unsupported as error:
                # Another attempt would not change it, so the application gets the error.
                source.refusal = error
                source.tried.set()
                self._queue.end(error)
                return
            except ScalableError as error:
                source.refusal = error
                if isinstance(error, _FINAL):
                    source.tried.set()
                # A sealed and empty segment may reject everything.
                calm = source.was_idle or isinstance(error, TopicNotFound | TimedOut)
                level = logging.INFO if calm else logging.WARNING
                _logger.log(level, "%s: %s; attaching again", source.topic, error)
                source.released.wait(REATTACH_DELAY if source.was_idle else backoff.next())
                continue
            source.refusal = None
            source.tried.set()
            backoff.reset()
            busy.reset()
            source.was_idle = self._pump_and_close(source, receiver)
            if source.was_idle and not self._should_reattach(source):
                return
        with self._lock:
            given_up = source.stopped.is_set()
            self._stop(source)
            if not given_up:
                self._on_released()

    def _open(self, source: Source) -> SegmentReceiver:
        options = self._options
        if source.segment.id not in self._first:
            options = replace(options, initial_position=InitialPosition.Earliest)
        return self._backend.open_receiver(source.topic, self._subscription, options, self._sharing(source))

    def _pump_and_close(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Receive until the segment is released, fails, or needs no receiver; return whether it needs none."""
        source.receiver, source.last_activity = receiver, time.monotonic()
        try:
            while not source.released.is_set():
                if not self._receive_one(source, receiver) and self._is_over(source, receiver):
                    return True
            self._wait_for_acknowledgements(source)
        except ScalableError as error:
            _logger.info("%s: %s; attaching again", source.topic, error)
            source.released.wait(_TICK_MS / 1000)
        finally:
            source.receiver = None
            with self._lock:
                # The broker sends them again to the next receiver.
                source.handed.clear()
            receiver.close()
        return False

    def _wait_for_acknowledgements(self, source: Source) -> None:
        """Wait until the application has acknowledged its messages of a segment, so that no other consumer gets them.

        The segment is released at the latest RELEASE_LIMIT seconds after the last acknowledgement.
        """
        last, since, warned = len(source.handed), time.monotonic(), False
        while (count := len(source.handed)) and not source.stopped.wait(_DRAIN_TICK):
            if count != last:
                last, since = count, time.monotonic()
            silent = time.monotonic() - since
            if silent > RELEASE_LIMIT:
                _logger.warning(
                    "%s: released with %d unacknowledged messages, which are redelivered", source.topic, count
                )
                # Waiting consumers retry within seconds, and get it first.
                self._yield_until[source.segment.id] = time.monotonic() + _YIELD_SECONDS
                return
            if silent > _BUSY_WARNING and not warned:
                warned = True
                _logger.warning(
                    "%s goes to another consumer after %d received messages of %s are acknowledged",
                    source.topic,
                    count,
                    self._name,
                )

    def _receive_one(self, source: Source, receiver: SegmentReceiver) -> bool:
        try:
            raw = receiver.receive(_TICK_MS)
        except TimedOut:
            return False
        position = position_of(raw.message_id())
        with self._lock:
            source.last_activity = max(source.last_activity, time.monotonic())
            if self._is_ordered(source):  # mutant: scalable-client/what-comes-again-comes-last
                # A broker that sends a message again also sends all later ones again, in order. So none of those that
                # were queued before may come ahead of it.
                # mutant: scalable-client/what-was-queued-before-comes-first
                while source.waiting and next(reversed(source.waiting)) >= position:
                    source.waiting.popitem()
            elif waiting := source.waiting.get(position):
                # Brokers redeliver unacknowledged messages after a lost connection, after a segment was loaded again,
                # and when one message of a batch is redelivered.
                waiting.replace_delivery(raw)
                return True
            message = source.waiting[position] = Message(source.segment.id, source.topic, raw, source)
        self._queue.put(message, source.released)
        return True

    def _find(self, message: Message | MessageId) -> tuple[Source | None, MessageId]:
        """Return the segment of a message, None if this consumer does not have it, and the message's id.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        if self._closed.is_set():
            raise AlreadyClosed(f"{self._topic.path}: the consumer is closed")
        message_id = message if isinstance(message, MessageId) else message.message_id()
        with self._lock:
            source = self._sources.get(message_id.segment)
        if isinstance(message, Message) and source is not message.source:
            source = None
        if source is None:
            _logger.info("%s: %s is acknowledged too late, and is redelivered", self._topic.path, message_id)
        return source, message_id

    def _acknowledge(self, source: Source, ids: Iterable[MessageId], *, cumulatively: bool = False) -> None:
        """Acknowledge messages of a segment: each one, or all messages up to each."""
        receiver = source.receiver
        if receiver is None:
            # The broker redelivers them to the next receiver.
            return
        try:
            for message_id in ids:
                if cumulatively:
                    receiver.acknowledge_cumulative(message_id.raw)
                else:
                    receiver.acknowledge(message_id.raw)
                with self._lock:
                    source.handed.pop(message_id.position, None)
                    if cumulatively:
                        for position in [position for position in source.handed if position < message_id.position]:
                            del source.handed[position]
        except AlreadyClosed as error:
            _logger.info("%s: acknowledged too late, and redelivered: %s", source.topic, error)


class _Busy:
    """Logs that a segment cannot be attached because another consumer has it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reset()

    def reset(self) -> None:
        """Reset it: the segment was attached."""
        self._since: float | None = None
        self._warn_at = 0.0

    def report(self, error: ConsumerBusy) -> None:
        """Log a rejection: the first one as info, after 10 s a warning each minute."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._warn_at = now, now + _BUSY_WARNING
            _logger.info("%s: waiting for the consumer that has it: %s", self._source.topic, error)
        elif now >= self._warn_at:
            self._warn_at = now + _BUSY_AGAIN
            _logger.warning(
                "%s: another consumer has had it for %.0f s: %s; retrying",
                self._source.topic,
                now - self._since,
                error,
            )
