"""What consumers with subscriptions share: segments that they are attached to, each with a thread of its own."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType
from typing import Self

from pulsar_scalable.backends import Backend, SegmentReceiver
from pulsar_scalable.errors import (
    AlreadyClosed,
    ConsumerBusy,
    ScalableError,
    TimedOut,
    TopicNotFound,
    Unsupported,
)
from pulsar_scalable.inbox import End, Inbox, Source
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.messages import Message, MessageId, place_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.options import ConsumerOptions
from pulsar_scalable.wire.commands import InitialPosition

_logger = logging.getLogger("pulsar_scalable")
LOOK_AGAIN = 30.0
"""Seconds until a drained segment is looked at again, or any that was left and refuses to be attached to."""

_TICK_MS = 200
_LONGEST_PAUSE = 2.0


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
        self._inbox = Inbox(topic.path)
        self._lock = threading.RLock()
        self._sources: dict[int, Source] = {}
        self._threads: list[threading.Thread] = []
        self._layout: Layout | None = None
        self._first: set[int] = set()
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
            timeout_millis: to wait at most; None for ever.

        Raises:
            TimedOut: none came.
            TopicNotFound: the topic was deleted.
            AlreadyClosed: the consumer is closed, also while this waits.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            left = None if until is None else max(0, round((until - time.monotonic()) * 1000))
            found = self._inbox.get(left)
            if isinstance(found, End) or not isinstance(found.source, Source):
                continue
            with self._lock:
                found.source.waiting.pop(found.message_id().place, None)
            if not found.source.stopped.is_set():
                return found

    def wait_for_message(self, timeout_millis: int) -> None:
        """Wait until `receive` is likely to find something at once, or has an error to raise; nothing is taken.

        Args:
            timeout_millis: to wait at most.
        """
        self._inbox.wait(timeout_millis)

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
        """Say that a message is processed.

        Raises:
            AlreadyClosed: this consumer does not have its segment any more; who has it gets the message again.
            ScalableError: it cannot be acknowledged.
        """
        source, receiver, found = self._find(message)
        receiver.acknowledge(found.raw)
        with self._lock:
            source.unacknowledged.discard(found.place)

    def negative_acknowledge(self, message: Message) -> None:
        """Let a message be sent again after the redelivery delay, to this consumer or another one.

        Raises:
            AlreadyClosed: this consumer does not have its segment any more; who has it gets the message again.
        """
        source, receiver, found = self._find(message)
        receiver.negative_acknowledge(message.raw)
        due = time.monotonic() + self._options.negative_ack_redelivery_delay_ms / 1000
        with self._lock:
            source.unacknowledged.discard(found.place)
            # The segment is not silent before the message had its time to come.
            source.heard = max(source.heard, due)

    def close(self) -> None:
        """Close it; what is not acknowledged goes to others. Harmless when done twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._inbox.close()
        with self._lock:
            sources, threads = list(self._sources.values()), list(self._threads)
        for source in sources:
            source.stopped.set()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(10)
        # Behind them, so that who gets the segments finds them free.
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

    @abstractmethod
    def _may_open(self, source: Source) -> bool:
        """Whether a segment's turn has come."""

    @abstractmethod
    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Whether a segment from which nothing came lately needs no consumer any more."""

    @abstractmethod
    def _goes_on(self, source: Source) -> bool:
        """Whether a segment that needed no consumer is to get one again; may wait."""

    # For them -------------------------------------------------------------------------------------------------------

    def _take_layout(self, layout: Layout) -> None:
        with self._lock:
            before, self._layout = self._layout, layout
            gone = TopicNotFound(-1, "the topic was deleted", self._topic.path)
            self._inbox.end(gone if layout.is_deleted else None)
            if before is None:
                self._first = {*layout.by_id}
            elif before.incarnation != layout.incarnation or layout.is_deleted:
                self._first = set()
                for source in list(self._sources.values()):
                    if layout.is_deleted or source.incarnation != layout.incarnation:
                        self._stop(source)

    def _attach(self, segment: Segment, topic: str, incarnation: int) -> None:
        """Attach to a segment, in a thread of its own; called with the lock held."""
        if (known := self._sources.get(segment.id)) and known.incarnation != incarnation:
            self._stop(known)
        if segment.id in self._sources or self._closed.is_set():
            return
        source = self._sources[segment.id] = Source(segment, topic, incarnation)
        thread = threading.Thread(target=self._serve, args=(source,), name=f"receive from {topic}", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _stop(self, source: Source) -> None:
        source.stopped.set()
        if self._sources.get(source.segment.id) is source:
            del self._sources[source.segment.id]

    def _is_sealed(self, source: Source) -> bool:
        layout = self._layout
        found = layout.by_id.get(source.segment.id) if layout else None
        return found is not None and not found.active

    # One segment ----------------------------------------------------------------------------------------------------

    def _serve(self, source: Source) -> None:
        backoff = Backoff(_LONGEST_PAUSE)
        while not source.stopped.is_set():
            if not self._may_open(source):
                source.stopped.wait(_TICK_MS / 1000)
                continue
            try:
                receiver = self._open(source)
            except ConsumerBusy as error:
                _logger.debug("%s: waits for the one who has it: %s", source.topic, error)
                source.stopped.wait(backoff.next() / 4)
                continue
            except Unsupported as error:
                # Another attempt would end the same way; the application has to know.
                self._inbox.end(error)
                return
            except ScalableError as error:
                # One that is sealed and empty may refuse all.
                calm = source.left or isinstance(error, TopicNotFound | TimedOut)
                level = logging.INFO if calm else logging.WARNING
                _logger.log(level, "%s: %s; attached again", source.topic, error)
                source.stopped.wait(LOOK_AGAIN if source.left else backoff.next())
                continue
            backoff.reset()
            source.left = self._pump_and_close(source, receiver)
            if source.left and not self._goes_on(source):
                return

    def _open(self, source: Source) -> SegmentReceiver:
        options = self._options
        if source.segment.id not in self._first:
            options = replace(options, initial_position=InitialPosition.Earliest)
        return self._backend.open_receiver(source.topic, self._subscription, options)

    def _pump_and_close(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Receive until the segment is given up, cannot be received from, or is over; whether it is over."""
        source.receiver, source.heard = receiver, time.monotonic()
        try:
            while not source.stopped.is_set():
                if not self._pump_one(source, receiver) and self._is_over(source, receiver):
                    return True
        except ScalableError as error:
            _logger.info("%s: %s; attached again", source.topic, error)
            source.stopped.wait(_TICK_MS / 1000)
        finally:
            source.receiver = None
            with self._lock:
                # The broker sends again what is left.
                source.unacknowledged &= source.waiting.keys()
            receiver.close()
        return False

    def _pump_one(self, source: Source, receiver: SegmentReceiver) -> bool:
        try:
            raw = receiver.receive(_TICK_MS)
        except TimedOut:
            return False
        place = place_of(raw.message_id())
        with self._lock:
            source.heard = max(source.heard, time.monotonic())
            if waiting := source.waiting.get(place):
                # Brokers send all that is not acknowledged again when a connection is lost, a segment loaded anew, or
                # one message of a batch is wanted again.
                waiting.came_again(raw)
                return True
            message = source.waiting[place] = Message(source.segment.id, source.topic, raw, source)
            source.unacknowledged.add(place)
        self._inbox.put(message, source.stopped)
        source.last = place if source.last is None else max(source.last, place)
        return True

    def _find(self, message: Message | MessageId) -> tuple[Source, SegmentReceiver, MessageId]:
        if self._closed.is_set():
            raise AlreadyClosed(f"{self._topic.path}: the consumer is closed")
        found = message if isinstance(message, MessageId) else message.message_id()
        with self._lock:
            source = self._sources.get(found.segment)
        if isinstance(message, Message) and source is not message.source:
            source = None
        receiver = source.receiver if source is not None else None
        if source is None or receiver is None:
            raise AlreadyClosed(
                f"{self._topic.path}: segment {found.segment} is not this consumer's at present;"
                " what it did not acknowledge comes again"
            )
        return source, receiver, found
