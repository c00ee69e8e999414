"""What consumers with subscriptions share: segments that they are attached to, each with a thread of its own."""

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
LOOK_AGAIN = 30.0
"""Seconds until a segment is attached to again that was left, or that refuses that after it was left."""

RELEASE_LIMIT = 60.0
"""Seconds without an acknowledgement after which a segment is released that is to go to another consumer."""

_OTHERS_FIRST = 5.0
_TICK_MS = 200
_DRAIN_TICK = 0.02
_BUSY_WARNING = 10.0
_BUSY_AGAIN = 60.0
_LONGEST_PAUSE = 2.0
_TRIED_TICK = 0.05
# Another attempt would end the same way; applications must know.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, Unsupported)


class SegmentsConsumer(ABC):
    """Attached to segments of a topic under one subscription; the base of the consumers that applications use.

    Args:
        backend: opens consumers of segments.
        topic: the scalable topic.
        subscription: its name.
        options: of each segment's consumer.
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
        self._others_first: dict[int, float] = {}
        self._turn = 0
        self._closed = threading.Event()

    # What applications use ------------------------------------------------------------------------------------------

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
        """Whether it is closed."""
        return self._closed.is_set()

    @property
    def segments(self) -> list[int]:
        """Ids of the segments that it is attached to, or about to be."""
        with self._lock:
            return sorted(self._sources)

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message.

        Args:
            timeout_millis: to wait at most; None indefinitely.

        Raises:
            TimedOut: none came.
            TopicNotFound: the topic was deleted.
            AlreadyClosed: the consumer is closed, also while this waits.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            left = None if until is None else max(0, round((until - time.monotonic()) * 1000))
            message = self._queue.get(left)
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
        """Wait until `receive` is likely to find something at once, or has an error to raise; nothing is taken.

        Args:
            timeout_millis: to wait at most.
        """
        self._queue.wait(timeout_millis)

    def batch_receive(self, max_num_messages: int = 100, timeout_millis: int = 100) -> list[Message]:
        """Some messages: as many as come in time, none perhaps.

        Args:
            max_num_messages: at most.
            timeout_millis: to wait at most.
        """
        until = time.monotonic() + timeout_millis / 1000
        found: list[Message] = []
        while len(found) < max_num_messages:
            try:
                found.append(self.receive(max(0, round((until - time.monotonic()) * 1000))))
            except TimedOut:
                break
        return found

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message.

        A message whose segment this consumer does not have any more comes again, here or to another consumer; that is
        no error.

        Raises:
            AlreadyClosed: the consumer is closed.
            ScalableError: it cannot be acknowledged.
        """
        source, message_id = self._find(message)
        if source is not None:
            self._acknowledge(source, [message_id])

    def negative_acknowledge(self, message: Message) -> None:
        """Let a message be sent again after the redelivery delay, to this consumer or another one.

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
            _logger.info("%s: %s comes again without it: %s", source.topic, message_id, error)
            return
        due = time.monotonic() + self._options.negative_ack_redelivery_delay_ms / 1000
        with self._lock:
            source.handed.pop(message_id.position, None)
            # The segment is not silent before the message had its time to come.
            source.heard = max(source.heard, due)

    def close(self) -> None:
        """Close it; what is not acknowledged goes to others. Harmless when done twice."""
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
        # After that, so that the consumer that gets the segments finds them free.
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What they do differently ---------------------------------------------------------------------------------------

    @abstractmethod
    def _leave(self) -> None:
        """End what tells of segments."""

    def _is_ordered(self, source: Source) -> bool:
        """Return whether brokers send the messages of a segment to this consumer alone, and so in their order."""
        del source
        return False

    def _may_open(self, source: Source) -> bool:
        """Return whether a segment may be attached to now."""
        del source
        return True

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Return whether a segment from which nothing came lately needs no consumer any more."""
        del source, receiver
        return False

    def _goes_on(self, source: Source) -> bool:
        """Return whether a segment that needed no consumer is to get one again; may wait.

        Where it does not wait, it clears `left`: a refusal is no reason to wait for long then.
        """
        return not source.stopped.wait(LOOK_AGAIN)

    def _sharing(self, source: Source) -> Sharing:
        """Return how a segment's subscription is shared."""
        del source
        return Sharing(ConsumerType.Shared)

    def _on_released(self) -> None:
        """Attach to what is to be attached to, after a segment was released; called with the lock held."""
        return

    # For them -------------------------------------------------------------------------------------------------------

    def _await_subscribed(self, limit: float) -> bool:
        """Wait until the subscription exists on every segment that is there now; return whether that came in time.

        Args:
            limit: seconds to wait at most.

        Raises:
            ScalableError: a broker refuses the consumer, and would do so again; the consumer is closed.
        """
        until = time.monotonic() + limit
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            while not (source.tried.wait(_TRIED_TICK) or source.stopped.is_set()):
                if self._is_sealed(source) and isinstance(source.refusal, Refused):
                    # One that has no message left may refuse all, and nothing that is sent from now on comes to it.
                    break
                if time.monotonic() > until:
                    return False
            refusal = source.refusal
            if isinstance(refusal, _FINAL):
                # Its thread may change it while this closes.
                self.close()
                raise refusal
        return True

    def _not_subscribed(self) -> ScalableError:
        """Return why the subscription does not exist on some segment."""
        with self._lock:
            missing = [source for source in self._sources.values() if not source.tried.is_set()]
        reasons = "; ".join(f"{source.topic}: {source.refusal or 'no answer'}" for source in missing)
        return TimedOut(f"{self._topic.path}: {self._subscription} is not subscribed everywhere: {reasons}")

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
        """Attach to a segment, in a thread of its own; called with the lock held."""
        if (known := self._sources.get(segment.id)) and known.incarnation != incarnation:
            self._stop(known)
        if segment.id in self._sources or self._closed.is_set():
            return
        source = self._sources[segment.id] = Source(segment, topic, incarnation, buckets)
        thread = threading.Thread(target=self._serve, args=(source,), name=f"receive from {topic}", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _stop(self, source: Source) -> None:
        source.stop()
        if self._sources.get(source.segment.id) is source:
            del self._sources[source.segment.id]

    def _is_sealed(self, source: Source) -> bool:
        layout = self._layout
        found = layout.by_id.get(source.segment.id) if layout else None
        return found is not None and not found.active

    # One segment ----------------------------------------------------------------------------------------------------

    def _serve(self, source: Source) -> None:
        backoff, busy = Backoff(_LONGEST_PAUSE), _Busy(source)
        while not source.released.is_set():
            if not self._may_open(source) or time.monotonic() < self._others_first.get(source.segment.id, 0.0):
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
                # Another attempt would end the same way; the application must know.
                source.refusal = error
                source.tried.set()
                self._queue.end(error)
                return
            except ScalableError as error:
                source.refusal = error
                if isinstance(error, _FINAL):
                    source.tried.set()
                # One that is sealed and empty may refuse all.
                calm = source.left or isinstance(error, TopicNotFound | TimedOut)
                level = logging.INFO if calm else logging.WARNING
                _logger.log(level, "%s: %s; attached again", source.topic, error)
                source.released.wait(LOOK_AGAIN if source.left else backoff.next())
                continue
            source.refusal = None
            source.tried.set()
            backoff.reset()
            busy.reset()
            source.left = self._pump_and_close(source, receiver)
            if source.left and not self._goes_on(source):
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
        """Receive until the segment is released, cannot be received from, or is over; return whether it is over."""
        source.receiver, source.heard = receiver, time.monotonic()
        try:
            while not source.released.is_set():
                if not self._pump_one(source, receiver) and self._is_over(source, receiver):
                    return True
            self._await_acknowledgements(source)
        except ScalableError as error:
            _logger.info("%s: %s; attached again", source.topic, error)
            source.released.wait(_TICK_MS / 1000)
        finally:
            source.receiver = None
            with self._lock:
                # The broker sends them again.
                source.handed.clear()
            receiver.close()
        return False

    def _await_acknowledgements(self, source: Source) -> None:
        """Wait until the application has acknowledged what it has of a segment, so that no other consumer gets it.

        A segment is not kept from others longer than RELEASE_LIMIT after the last acknowledgement.
        """
        last, since, warned = len(source.handed), time.monotonic(), False
        while (left := len(source.handed)) and not source.stopped.wait(_DRAIN_TICK):
            if left != last:
                last, since = left, time.monotonic()
            silent = time.monotonic() - since
            if silent > RELEASE_LIMIT:
                _logger.warning(
                    "%s: released with %d messages that are not acknowledged; they come again", source.topic, left
                )
                # Those who wait for it try again within seconds, and come first.
                self._others_first[source.segment.id] = time.monotonic() + _OTHERS_FIRST
                return
            if silent > _BUSY_WARNING and not warned:
                warned = True
                _logger.warning(
                    "%s goes to another consumer once %d messages that %s has received are acknowledged",
                    source.topic,
                    left,
                    self._name,
                )

    def _pump_one(self, source: Source, receiver: SegmentReceiver) -> bool:
        try:
            raw = receiver.receive(_TICK_MS)
        except TimedOut:
            return False
        position = position_of(raw.message_id())
        with self._lock:
            source.heard = max(source.heard, time.monotonic())
            waiting = source.waiting.get(position)
            # Of an ordered one the later delivery counts, which has the broker's order.
            if waiting and not self._is_ordered(source):  # mutant: scalable-client/what-comes-again-comes-last
                # Brokers send all that is not acknowledged again when a connection is lost, a segment loaded again, or
                # one message of a batch is wanted again.
                waiting.came_again(raw)
                return True
            message = source.waiting[position] = Message(source.segment.id, source.topic, raw, source)
        self._queue.put(message, source.released)
        return True

    def _find(self, message: Message | MessageId) -> tuple[Source | None, MessageId]:
        """Return the segment of a message, as far as this consumer has it, and the id.

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
            _logger.info("%s: %s is acknowledged late; it comes again", self._topic.path, message_id)
        return source, message_id

    def _acknowledge(self, source: Source, ids: Iterable[MessageId], *, cumulatively: bool = False) -> None:
        """Acknowledge messages of a segment, one by one, or all up to each."""
        receiver = source.receiver
        if receiver is None:
            # The broker sends them again to the next receiver.
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
            _logger.info("%s: acknowledged late; it comes again: %s", source.topic, error)


class _Busy:
    """Reports that a segment cannot be attached to because another consumer has it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reset()

    def reset(self) -> None:
        """Note that it was attached to."""
        self._since: float | None = None
        self._warn_at = 0.0

    def report(self, error: ConsumerBusy) -> None:
        """Log a refusal: the first one, and from 10 s on one each minute as a warning."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._warn_at = now, now + _BUSY_WARNING
            _logger.info("%s: waits for the consumer that has it: %s", self._source.topic, error)
        elif now >= self._warn_at:
            self._warn_at = now + _BUSY_AGAIN
            _logger.warning(
                "%s: another consumer has had it for %.0f s: %s; it is tried again",
                self._source.topic,
                now - self._since,
                error,
            )
