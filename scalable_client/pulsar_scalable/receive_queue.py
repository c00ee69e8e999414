"""Where the threads that receive from segments put messages, and where the application takes them."""

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
_FIRST_PATIENCE = 5.0


@dataclass(eq=False)
class Source:
    """One segment that a consumer is attached to.

    Attributes:
        segment: which one.
        topic: that holds it.
        incarnation: of the scalable topic; 0 where that is not known.
        buckets: all entry buckets of the segment, where several consumers share it; empty for its only consumer.
        receiver: while it is open.
        handed: messages that the application has and did not acknowledge, by position.
        waiting: messages that wait for the application, by position; others in the queue came again, and are dropped.
        heard: when something came last, by the monotonic clock.
        patience: how many seconds it may be silent, once it is sealed, before it is attached to again.
        left: it needed no consumer at the last check.
        released: nothing more of it is handed out; it is closed once `handed` is empty.
        stopped: it is closed at once.
        finished: it is sealed, and all of it is acknowledged.
        tried: its subscription exists, or `refusal` says why not.
        refusal: why it could not be attached to, at the last attempt.
    """

    segment: Segment
    topic: str
    incarnation: int = 0
    buckets: tuple[tuple[int, int], ...] = ()
    receiver: SegmentReceiver | None = None
    handed: dict[MessagePosition, MessageId] = field(default_factory=dict[MessagePosition, MessageId])
    waiting: dict[MessagePosition, Message] = field(default_factory=dict[MessagePosition, Message])
    heard: float = 0.0
    patience: float = field(default_factory=lambda: _FIRST_PATIENCE)
    left: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    tried: threading.Event = field(default_factory=threading.Event)
    refusal: ScalableError | None = None

    def stop(self) -> None:
        """Let it be closed at once."""
        self.stopped.set()
        self.released.set()


@dataclass(frozen=True, slots=True)
class End:
    """Stands behind the last message of a sealed segment."""

    source: object


Item = Message | End


class ReceiveQueue:
    """A bounded queue in the order of arrival; for any number of threads.

    Args:
        topic: for messages of errors.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._end: ScalableError | None = None

    def end(self, error: ScalableError | None) -> None:
        """Say why nothing more will come; None where something may."""
        with self._changed:
            self._end = error
            self._changed.notify_all()

    def put(self, item: Item, stopped: threading.Event) -> bool:
        """Add something as soon as there is room; return whether that was before `stopped` was set, or the end."""
        with self._changed:
            while len(self._items) >= _CAPACITY:
                if stopped.is_set() or self._closed:
                    return False
                self._changed.wait(0.2)
            self._items.append(item)
            self._changed.notify_all()
            return not self._closed

    def get(self, timeout_millis: int | None) -> Item:
        """Take what came first.

        Args:
            timeout_millis: to wait at most; None indefinitely.

        Raises:
            TimedOut: nothing came.
            AlreadyClosed: the consumer is closed, also while this waits.
            ScalableError: nothing more will come.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        with self._changed:
            while not self._items or self._closed:
                if self._closed:
                    raise AlreadyClosed(f"{self._topic}: the consumer is closed")
                if self._end is not None:
                    raise self._end
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimedOut(f"{self._topic}: no message within {timeout_millis} ms")
                self._changed.wait(left)
            found = self._items.popleft()
            self._changed.notify_all()
            return found

    def wait(self, timeout_millis: int) -> None:
        """Wait until `get` would not; nothing is taken."""
        with self._changed:
            self._changed.wait_for(
                lambda: bool(self._items) or self._closed or self._end is not None, timeout_millis / 1000
            )

    def close(self) -> None:
        """Let all who wait go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
