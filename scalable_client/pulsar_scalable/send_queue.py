"""Messages that a producer of a scalable topic holds: one queue for each segment.

Order per key: messages of a key go through one queue, in the order of their numbers. When a segment is sealed, its
queue has ended: its unstored messages move to the queues of the replacing segments, sorted by number, so before later
messages. Until then a queue whose hashes overlap with those of an ended queue sends nothing. So a message is never sent
while an earlier one of its key is in flight elsewhere, through any number of splits and merges.

Nothing here connects to a broker.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import cast

from pulsar_scalable.errors import (
    AlreadyClosed,
    LayoutError,
    QueueFull,
    ScalableError,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
)
from pulsar_scalable.layout import HASHES, Layout, RoundRobin, Segment, key_hash
from pulsar_scalable.messages import MessageId, RawId, RawMessage, position_of
from pulsar_scalable.options import ProducerOptions
from pulsar_scalable.pending_message import OnOutcome, PendingMessage, Stage
from pulsar_scalable.ports import Content, SegmentSender

_MOST_WITHOUT_POSITION = 100
"""Limit of stored messages without a position; resending a long history would otherwise fill the memory."""
_BATCH = 100


class SegmentSendQueue:
    """Messages of one segment; all attributes are guarded by the send queue's lock.

    Attributes:
        segment: segment that they go to.
        topic: topic of the segment.
        incarnation: incarnation of the scalable topic.
        hashes: first and last hash.
        waiting: messages that are not sent yet, by number.
        sent: messages sent since the last one with a known position, including stored ones without a position.
        ended: the segment accepts no messages any more.
        lost: its sender has closed itself, so a new one is needed.
        done: it is empty for good, and its thread ends.
        sender: sender of the segment, once open.
        last: serialised id of the last message that is known to be stored.
        dropped_ms: messages after `last` that were sent before this time are not in `sent` any more, in milliseconds
            since 1970; 0 if there are none.
        next_sequence_id: sequence id for the next message without one.
        wake: notified when its thread has something to do.
    """

    def __init__(self, segment: Segment, topic: str, layout: Layout, lock: threading.RLock) -> None:
        self.segment = segment
        self.topic = topic
        self.incarnation = layout.incarnation
        # Partitions take keys by another rule than ranges.
        self.hashes = (0, HASHES - 1) if layout.synthetic else (segment.start, segment.end)
        self.waiting: deque[PendingMessage] = deque()
        self.sent: deque[PendingMessage] = deque()
        self.ended = False
        self.lost = False
        self.done = False
        self.sender: SegmentSender | None = None
        self.last: bytes | None = None
        self.dropped_ms = 0
        self.next_sequence_id = 0
        self.wake = threading.Condition(lock)

    @property
    def is_open(self) -> bool:
        """True if its sender can send."""
        return not (self.done or self.ended or self.lost)

    @property
    def has_unresolved(self) -> bool:
        """True if it has sent messages without an outcome."""
        return any(message.outcome is None for message in self.sent)

    @property
    def unresolved_since_ms(self) -> int:
        """Time since when the segment may contain messages sent after `last`; 0 for any time."""
        # Without a known position, an earlier producer of this name may have stored the same. A batch has the time of
        # its first message, so times do not separate the messages in it.
        return self.dropped_ms or (0 if self.last is not None else self.sent[0].sent_ms)

    def forget_stored(self) -> None:
        """Drop the stored messages at the head of `sent`, if a position is known."""
        # A given-up message is not reported any more; if it is stored, then before all messages sent after it.
        stored = list(takewhile(lambda message: message.raw_id is not None or message.is_given_up, self.sent))
        resolved = stored[:]
        while resolved and not _has_position(resolved[-1].raw_id):
            resolved.pop()
        if resolved:
            self.last, self.dropped_ms = cast("RawId", resolved[-1].raw_id).serialize(), 0
        elif len(stored) >= _MOST_WITHOUT_POSITION:  # mutant: scalable-client/what-deduplication-drops-is-kept
            # Their copies in the segment are distinguished from later messages by time.
            resolved, self.dropped_ms = stored, stored[-1].sent_ms + 1
        for _ in resolved:
            self.sent.popleft()

    def overlaps(self, other: SegmentSendQueue) -> bool:
        """Return whether both queues may have messages of the same key."""
        return self.hashes[0] <= other.hashes[1] and other.hashes[0] <= self.hashes[1]


def _has_position(raw: object) -> bool:
    # Where deduplication drops a message, brokers report no position.
    return raw is not None and position_of(cast("RawId", raw))[:2] >= (0, 0)


class SendQueue:
    """Queues of a producer, one for each segment.

    Args:
        topic: name of the topic, for errors.
        options: options of the producer.
        start: starts a thread that sends the messages of a queue.
        deliver: receives each message once, when its outcome is known.
    """

    def __init__(
        self,
        topic: str,
        options: ProducerOptions,
        start: Callable[[SegmentSendQueue], None],
        deliver: Callable[[PendingMessage], None],
    ) -> None:
        self._topic = topic
        self._options = options
        self._start = start
        self._deliver = deliver
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._layout: Layout | None = None
        self._turns = RoundRobin()
        self._queues: dict[tuple[int, int], SegmentSendQueue] = {}
        self._ended: list[SegmentSendQueue] = []
        self._pending: dict[int, PendingMessage] = {}
        self._number = 0
        self._held = 0
        self._last_sequence_id = -1
        self._closed = False

    @property
    def pending_messages(self) -> int:
        """Number of messages without an outcome."""
        return len(self._pending)

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id of the stored messages; -1 for none."""
        return self._last_sequence_id

    def add(self, content: Content, on_outcome: OnOutcome, *, may_wait: bool = True) -> None:
        """Add a message.

        Raises:
            QueueFull: the queue is full, and the caller does not wait.
            TopicNotFound: the topic is deleted.
            LayoutError: no segment covers its hash.
            AlreadyClosed: the producer is closed.
        """
        timeout = self._options.send_timeout_millis
        deadline = time.monotonic() + timeout / 1000 if timeout else float("inf")
        with self._lock:
            layout = self._require_room(may_wait=may_wait)
            hash_ = self._hash(layout, content)
            queue = self._queue_for(layout, layout.segment_for(hash_))
            message = PendingMessage(
                self._number,
                content,
                hash_,
                deadline=deadline,
                on_outcome=on_outcome,
            )
            self._number += 1
            self._held += 1
            self._pending[message.number] = message
            message.queue = queue
            queue.waiting.append(message)
            queue.wake.notify()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all messages added so far have an outcome; return False after the timeout in seconds."""
        with self._lock:
            last = self._number
            return self._room.wait_for(lambda: not self._pending or next(iter(self._pending)) >= last, timeout)

    def close(self, error: ScalableError) -> None:
        """Fail all messages that are not stored, and accept no more."""
        with self._lock:
            self._closed = True
            for message in list(self._pending.values()):
                self._complete(message, error)
            for queue in self._queues.values():
                queue.done = True
                queue.wake.notify_all()
            self._queues.clear()
            self._ended.clear()
            self._room.notify_all()

    def expire(self, now: float) -> None:
        """Fail the messages whose deadline is over, by the monotonic clock."""
        with self._lock:
            for message in list(islice(self._pending.values(), _BATCH * 10)):
                if message.deadline > now:
                    break
                where = message.queue.topic if isinstance(message.queue, SegmentSendQueue) else self._topic
                limit = self._options.send_timeout_millis
                self._complete(message, TimedOut(f"{where}: a message is not stored after {limit} ms"))
                queue = message.queue
                if not isinstance(queue, SegmentSendQueue):
                    continue
                if message.stage is Stage.WAITING:
                    queue.waiting.remove(message)
                    self._free(message)
                    continue
                # mutant: scalable-client/what-timed-out-is-stored-later
                if queue.is_open and queue.sender is not None and not queue.sender.is_connected:
                    # It would still store the failed message when it connects again.
                    queue.lost = True
                    queue.wake.notify_all()
                if queue.lost:
                    # It stays in `sent`: the segment may have stored it.
                    self._free(message)

    def take_layout(self, layout: Layout) -> None:
        """Apply a newer layout."""
        with self._lock:
            self._layout = layout
            active = {segment.id for segment in layout.active}
            for queue in list(self._queues.values()):
                if layout.is_deleted or queue.incarnation != layout.incarnation:
                    self._abandon(queue)
                elif queue.segment.id not in active:
                    self._end(queue)
                queue.wake.notify_all()
            self._room.notify_all()

    def _abandon(self, queue: SegmentSendQueue) -> None:
        error = TopicNotFound(-1, "the topic was deleted", self._topic)
        for message in (*queue.sent, *queue.waiting):
            self._complete(message, error)
            self._free(message)
        self._finish(queue)

    def opened(self, queue: SegmentSendQueue, sender: SegmentSender) -> bool:
        """Record the sender of a queue; return whether it is still needed."""
        with self._lock:
            if queue.done:
                return False
            if queue.lost:
                self._send_again(queue)
            queue.sender = sender
            # Messages of an earlier sender may still be stored, and deduplication would drop another message with the
            # same id; a message that is sent again keeps its id.
            queue.next_sequence_id = max(1, queue.next_sequence_id, sender.last_sequence_id() + 1)
            return True

    def is_wanted(self, queue: SegmentSendQueue) -> bool:
        """Wait until a queue has messages or is done; return whether it needs a sender."""
        with self._lock:
            queue.wake.wait_for(lambda: queue.done or queue.ended or queue.lost or bool(queue.waiting))
            return not queue.done and not queue.ended

    def pause(self, queue: SegmentSendQueue, seconds: float) -> None:
        """Wait for some seconds, or until a queue is done or has ended."""
        with self._lock:
            queue.wake.wait_for(lambda: queue.done or queue.ended, seconds)

    def refused(self, queue: SegmentSendQueue, error: ScalableError) -> None:
        """Handle a rejection: end the queue if the segment is sealed, else fail its waiting messages."""
        with self._lock:
            if isinstance(error, TopicTerminated):
                self._end(queue)
                return
            if queue.lost:
                self._send_again(queue)
            waiting, queue.waiting = queue.waiting, deque()
            for message in waiting:
                self._complete(message, error)
                self._free(message)

    def next(self, queue: SegmentSendQueue) -> list[tuple[PendingMessage, int]]:
        """Return the next messages to send with their sequence ids; empty once the sender cannot send any more."""
        with self._lock:
            queue.wake.wait_for(lambda: not queue.is_open or (queue.waiting and not self._is_blocked(queue)))
            if not queue.is_open:
                return []
            batch = [queue.waiting.popleft() for _ in range(min(_BATCH, len(queue.waiting)))]
            now = int(time.time() * 1000)
            for message in batch:
                message.stage, message.sent_ms = Stage.SENT, now
            queue.sent.extend(batch)
            return [(message, self._sequence_id(queue, message)) for message in batch]

    def stored(
        self, queue: SegmentSendQueue, message: PendingMessage, error: ScalableError | None, raw: object
    ) -> None:
        """Handle the outcome of a sent message; ignore it if the message moved to another queue."""
        with self._lock:
            if message.queue is not queue or message.stage is not Stage.SENT:
                return
            if isinstance(error, TopicTerminated):
                self._end(queue)
                return
            if isinstance(error, AlreadyClosed):
                # A sender that reconnects to a sealed segment closes itself, and reports that only for pending
                # messages.
                queue.lost = True
                queue.wake.notify()
                return
            if error is None:
                self._last_sequence_id = max(self._last_sequence_id, message.sequence_id)
            self._complete(message, error or MessageId.of(queue.segment.id, raw))
            self._free(message)
            if error is not None:
                queue.sent.remove(message)
            else:
                message.raw_id = raw
                queue.forget_stored()

    def needs_sender(self, queue: SegmentSendQueue) -> bool:
        """Return whether a queue needs another sender.

        Until it has one, unanswered messages of the lost sender count as sent: a segment that turns out to be sealed
        may have stored them.
        """
        with self._lock:
            return not queue.done and not queue.ended

    def is_retired(self, queue: SegmentSendQueue) -> bool:
        """Return whether the layout says that the queue's segment accepts no messages any more."""
        with self._lock:
            return not self._is_active(queue)

    def sent(self, queue: SegmentSendQueue) -> list[PendingMessage]:
        """Return the messages that an ended queue may have stored, in order.

        Given-up messages are left out: no sender sends them again, so they need not come before the others.
        """
        with self._lock:
            # mutant: scalable-client/what-was-given-up-is-searched
            return [message for message in queue.sent if not message.is_given_up] if queue.has_unresolved else []

    def fail(self, sent: Sequence[PendingMessage], error: ScalableError) -> None:
        """Fail messages whose outcome will never be known."""
        with self._lock:
            for message in sent:
                self._complete(message, error)

    def resolve(self, queue: SegmentSendQueue, sent: Sequence[PendingMessage], stored: Sequence[RawMessage]) -> None:
        """Report the first messages as stored, and move the others once their new segments are known."""
        with self._lock:
            for message, raw in zip(sent, stored, strict=False):
                self._last_sequence_id = max(self._last_sequence_id, message.sequence_id)
                self._complete(message, MessageId.of(queue.segment.id, raw.message_id()))
                self._free(message)
            remaining = [message for message in (*queue.sent, *queue.waiting) if message.outcome is None]
            finished = [message for message in queue.sent if message.outcome is not None and message.queue is queue]
            for message in finished:
                self._free(message)
            queue.sent.clear()
            queue.waiting = deque(remaining)
            for message in remaining:
                message.stage = Stage.WAITING
            queue.wake.wait_for(lambda: queue.done or not self._is_active(queue))
            if not queue.done:
                self._move(queue)

    def _send_again(self, queue: SegmentSendQueue) -> None:
        """Move the unanswered messages of a lost sender back to `waiting`."""
        queue.lost = False
        unanswered = [message for message in queue.sent if message.outcome is None]
        for message in unanswered:
            message.stage = Stage.WAITING
        queue.sent = deque(message for message in queue.sent if message.outcome is not None)
        queue.waiting.extendleft(reversed(unanswered))

    def _require_room(self, *, may_wait: bool) -> Layout:
        limit = self._options.max_pending_messages
        while True:
            if self._closed:
                raise AlreadyClosed(f"{self._topic}: the producer is closed")
            if self._layout is None or self._layout.is_deleted:
                raise TopicNotFound(-1, "the topic was deleted", self._topic)
            if self._held < limit:
                return self._layout
            if not self._options.block_if_queue_full or not may_wait:
                raise QueueFull(
                    f"{self._topic}: {self._held} messages wait to be stored; the limit is max_pending_messages"
                )
            self._room.wait()

    def _hash(self, layout: Layout, content: Content) -> int:
        if content.partition_key is not None:
            return key_hash(content.partition_key)
        # A message without a key keeps a hash of its segment: as a later message of another segment it could have a
        # lower sequence id than one stored there, and deduplication would drop it.
        segment = self._turns.segment(layout)
        if layout.synthetic:
            # The highest bit does not choose the partition; it spreads messages over all replacing segments.
            count = len(layout.active)
            return random.randrange((1 << 31) // count) * count + segment.id | random.getrandbits(1) << 31
        return random.randint(segment.start, segment.end) << 16 | random.getrandbits(16)

    def _queue_for(self, layout: Layout, segment: Segment) -> SegmentSendQueue:
        key = (layout.incarnation, segment.id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SegmentSendQueue(segment, layout.topic_of(segment), layout, self._lock)
            self._start(queue)
        return queue

    def _is_blocked(self, queue: SegmentSendQueue) -> bool:
        return any(other is not queue and other.overlaps(queue) for other in self._ended)

    def _is_active(self, queue: SegmentSendQueue) -> bool:
        layout = self._layout
        if layout is None or layout.incarnation != queue.incarnation:
            return False
        segment = layout.by_id.get(queue.segment.id)
        return segment is not None and segment.active

    def _sequence_id(self, queue: SegmentSendQueue, message: PendingMessage) -> int:
        if message.sequence_id < 0:  # mutant: scalable-client/what-is-sent-again-has-another-id
            wanted = message.content.sequence_id
            message.sequence_id = queue.next_sequence_id if wanted is None else wanted
            queue.next_sequence_id = max(queue.next_sequence_id, message.sequence_id + 1)
        return message.sequence_id

    def _end(self, queue: SegmentSendQueue) -> None:
        if queue.ended or queue.done:
            return
        queue.ended = True
        self._ended.append(queue)
        # A queue that never sent needs no search: its thread may hang while it opens the sender.
        if not queue.has_unresolved and not self._is_active(queue):
            self._move(queue)
        queue.wake.notify_all()

    def _move(self, queue: SegmentSendQueue) -> None:
        """Move the waiting messages of a queue to the queues of the replacing segments."""
        layout = self._layout
        waiting, queue.waiting = queue.waiting, deque()
        touched: dict[int, SegmentSendQueue] = {}
        for message in waiting:
            try:
                if layout is None or layout.is_deleted:
                    raise TopicNotFound(-1, "the topic was deleted", self._topic)
                following = self._queue_for(layout, layout.segment_for(message.hash))
            except (LayoutError, TopicNotFound) as error:
                self._complete(message, error)
                self._free(message)
                continue
            # Sequence ids are per segment.
            message.queue, message.sequence_id = following, -1
            following.waiting.append(message)
            touched[id(following)] = following
        for following in touched.values():
            following.waiting = deque(sorted(following.waiting, key=lambda message: message.number))
        self._finish(queue)

    def _finish(self, queue: SegmentSendQueue) -> None:
        queue.done = True
        self._queues.pop((queue.incarnation, queue.segment.id), None)
        self._ended = [ended for ended in self._ended if ended is not queue]
        for other in (queue, *self._queues.values()):
            other.wake.notify_all()
        self._room.notify_all()

    def _complete(self, message: PendingMessage, outcome: ScalableError | MessageId) -> None:
        if message.outcome is not None:
            return
        message.outcome = outcome
        del self._pending[message.number]
        self._deliver(message)
        self._room.notify_all()

    def _free(self, message: PendingMessage) -> None:
        """Release the room of a message that no queue holds any more."""
        if message.queue is not None:
            self._held -= 1
            message.queue = None
            self._room.notify_all()
