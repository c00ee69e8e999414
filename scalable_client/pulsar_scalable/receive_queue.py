"""Queue between the threads that receive from segments and the application."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut
from pulsar_scalable.layout import Segment
from pulsar_scalable.messages import Message, MessageId, MessagePosition
from pulsar_scalable.ports import SegmentReceiver

_CAPACITY = 200
_FIRST_IDLE_TIMEOUT = 5.0


@dataclass(eq=False)
class Source:
    """A segment that a consumer is attached to.

    Attributes:
        segment: the segment.
        topic: topic of the segment.
        incarnation: incarnation of the scalable topic; 0 if unknown.
        buckets: all entry buckets of the segment if consumers share it; empty for a single consumer.
        receiver: the open receiver, or None.
        handed: messages that the application has not acknowledged yet, by position.
        waiting: messages that wait for the application, by position, in the order of the queue; others in the queue
            are repeated deliveries.
        last_activity: monotonic time of the last message.
        idle_timeout: seconds of silence after which a sealed segment is attached again.
        was_idle: it needed no receiver at the last check.
        released: its messages are not returned any more; it is closed once `handed` is empty.
        stopped: it is closed immediately.
        finished: it is sealed, and all its messages are acknowledged.
        tried: its subscription exists, or `refusal` has the reason why not.
        refusal: error of the last attempt to attach.
    """

    segment: Segment
    topic: str
    incarnation: int = 0
    buckets: tuple[tuple[int, int], ...] = ()
    receiver: SegmentReceiver | None = None
    handed: dict[MessagePosition, MessageId] = field(default_factory=dict[MessagePosition, MessageId])
    waiting: dict[MessagePosition, Message] = field(default_factory=dict[MessagePosition, Message])
    last_activity: float = 0.0
    idle_timeout: float = field(default_factory=lambda: _FIRST_IDLE_TIMEOUT)
    was_idle: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    tried: threading.Event = field(default_factory=threading.Event)
    refusal: ScalableError | None = None

    def stop(self) -> None:
        """Close it immediately."""
        self.stopped.set()
        self.released.set()


@dataclass(frozen=True, slots=True)
class End:
    """Marker after the last message of a sealed segment."""

    source: object


Item = Message | End


class ReceiveQueue:
    """A bounded queue in the order of arrival; thread-safe.

    Args:
        topic: name of the topic, for errors.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._end: ScalableError | None = None

    def end(self, error: ScalableError | None) -> None:
        """Set the error that ends the queue; None if more messages may arrive."""
        with self._changed:
            self._end = error
            self._changed.notify_all()

    def put(self, item: Item, stopped: threading.Event) -> bool:
        """Add an item once there is room; return False if `stopped` was set or the queue closed before."""
        with self._changed:
            while len(self._items) >= _CAPACITY:
                if stopped.is_set() or self._closed:
                    return False
                self._changed.wait(0.2)
            self._items.append(item)
            self._changed.notify_all()
            return not self._closed

    def get(self, timeout_millis: int | None) -> Item:
        """Take the oldest item.

        Args:
            timeout_millis: longest time to wait; None to wait indefinitely.

        Raises:
            TimedOut: nothing arrived in time.
            AlreadyClosed: the consumer is closed, also during this call.
            ScalableError: nothing more will arrive.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        with self._changed:
            while not self._items or self._closed:
                if self._closed:
                    raise AlreadyClosed(f"{self._topic}: the consumer is closed")
                if self._end is not None:
                    raise self._end
                remaining = None if until is None else until - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimedOut(f"{self._topic}: no message within {timeout_millis} ms")
                self._changed.wait(remaining)
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def wait(self, timeout_millis: int) -> None:
        """Wait until `get` would return or raise immediately; takes nothing."""
        with self._changed:
            self._changed.wait_for(
                lambda: bool(self._items) or self._closed or self._end is not None, timeout_millis / 1000
            )

    def close(self) -> None:
        """Close it; all waiting calls raise."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
