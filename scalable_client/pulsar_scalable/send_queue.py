"""The messages that a producer of a scalable topic holds: a queue for each segment.

How order per key is kept: messages of a key go through one queue, in the order of their numbers. When a segment is
sealed, its queue has ended: what it did not store is put into the queues of the segments that took over, by number
before whatever came later, and until then no queue sends whose hashes overlap with those of a queue that has ended. So
a message is never sent while an earlier one of its key is on its way elsewhere, however many splits and merges follow
each other.

Nothing here talks to a broker.
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
"""Stored messages without a position that are kept; a repeated send of a long history would fill the memory."""
_AT_ONCE = 100


class SegmentSendQueue:
    """The messages of one segment; all of it is guarded by the send queue's lock.

    Attributes:
        segment: where they go.
        topic: that holds it.
        incarnation: of the scalable topic.
        hashes: first and last hash.
        waiting: not sent, by number.
        sent: since the last one whose position is known; also those that are stored at an unknown position.
        ended: the segment takes no messages any more.
        lost: its sender has closed itself, and another one is needed.
        done: nothing is left in it, and its thread ends.
        sender: of the segment, once it is open.
        last: serialised id of the last message that is known to be stored.
        dropped_ms: of messages after `last` those sent before that time, in milliseconds since 1970, are dropped from
            `sent`; 0 where none are.
        next_sequence_id: of the next message that has none.
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
        """Whether its sender can send."""
        return not (self.done or self.ended or self.lost)

    @property
    def undone(self) -> bool:
        """Whether messages are sent of which nobody knows what became of them."""
        return any(message.outcome is None for message in self.sent)

    @property
    def begun_ms(self) -> int:
        """Return since when the segment may hold messages that were sent after `last`; 0 for whenever."""
        # Where none is known, an earlier producer of this name may have stored the same. A batch has the time of its
        # first message, so the others cannot be told by theirs.
        return self.dropped_ms or (0 if self.last is not None else self.sent[0].sent_ms)

    def forget_stored(self) -> None:
        """Drop what was sent up to the last message of those from the first one on that are all stored."""
        # Nothing is said later of what nothing holds; if it is stored, then before what was sent after it.
        stored = list(takewhile(lambda message: message.raw_id is not None or message.is_given_up, self.sent))
        known = stored[:]
        while known and not _has_position(known[-1].raw_id):
            known.pop()
        if known:
            self.last, self.dropped_ms = cast("RawId", known[-1].raw_id).serialize(), 0
        elif len(stored) >= _MOST_WITHOUT_POSITION:  # mutant: scalable-client/what-deduplication-drops-is-kept
            # Their copies in the segment are told from those of later messages by their time.
            known, self.dropped_ms = stored, stored[-1].sent_ms + 1
        for _ in known:
            self.sent.popleft()

    def overlaps(self, other: SegmentSendQueue) -> bool:
        """Whether both may have messages of one key."""
        return self.hashes[0] <= other.hashes[1] and other.hashes[0] <= self.hashes[1]


def _has_position(raw: object) -> bool:
    # Where deduplication drops a message, brokers report no position.
    return raw is not None and position_of(cast("RawId", raw))[:2] >= (0, 0)


class SendQueue:
    """All that a producer holds.

    Args:
        topic: for messages of errors.
        options: of the producer.
        start: begins to work on a queue, in a thread of its own.
        deliver: takes each message whose outcome is known, once.
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

    # The application ------------------------------------------------------------------------------------------------

    @property
    def pending_messages(self) -> int:
        """Messages whose outcome is not known."""
        return len(self._pending)

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id of the messages that are stored; -1 for none."""
        return self._last_sequence_id

    def add(self, content: Content, on_outcome: OnOutcome, *, may_wait: bool = True) -> None:
        """Take a message.

        Raises:
            QueueFull: there is no room, and nobody waits for it.
            TopicNotFound: the topic is deleted.
            LayoutError: no segment takes it.
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
        """Wait until what was taken so far is stored, or has failed; whether that came within some seconds."""
        with self._lock:
            last = self._number
            return self._room.wait_for(lambda: not self._pending or next(iter(self._pending)) >= last, timeout)

    def close(self, error: ScalableError) -> None:
        """Let all fail that is not stored, and take no more."""
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
        """Let messages fail whose time is over, by the monotonic clock."""
        with self._lock:
            for message in list(islice(self._pending.values(), _AT_ONCE * 10)):
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
                    # It would store what has failed, whenever it is connected again.
                    queue.lost = True
                    queue.wake.notify_all()
                if queue.lost:
                    # It stays among what is sent: the segment may have stored it.
                    self._free(message)

    # The layout -----------------------------------------------------------------------------------------------------

    def take_layout(self, layout: Layout) -> None:
        """Follow a newer layout."""
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

    # Threads that send ----------------------------------------------------------------------------------------------

    def opened(self, queue: SegmentSendQueue, sender: SegmentSender) -> bool:
        """Note the sender of a queue; whether there is still use for it."""
        with self._lock:
            if queue.done:
                return False
            if queue.lost:
                self._send_again(queue)
            queue.sender = sender
            # What an earlier sender had under way may still be stored, and deduplication would drop another message of
            # its id; what is sent again keeps the id that it had.
            queue.next_sequence_id = max(1, queue.next_sequence_id, sender.last_sequence_id() + 1)
            return True

    def is_wanted(self, queue: SegmentSendQueue) -> bool:
        """Whether a sender is to be opened for a queue: waits until it has messages, or is done."""
        with self._lock:
            queue.wake.wait_for(lambda: queue.done or queue.ended or queue.lost or bool(queue.waiting))
            return not queue.done and not queue.ended

    def pause(self, queue: SegmentSendQueue, seconds: float) -> None:
        """Wait for some seconds, or until a queue is done or has ended."""
        with self._lock:
            queue.wake.wait_for(lambda: queue.done or queue.ended, seconds)

    def refused(self, queue: SegmentSendQueue, error: ScalableError) -> None:
        """The segment cannot be sent to: it is sealed, or what waits for it fails."""
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
        """The next messages to send, with their sequence ids; empty once nothing can be sent through its sender."""
        with self._lock:
            queue.wake.wait_for(lambda: not queue.is_open or (queue.waiting and not self._is_blocked(queue)))
            if not queue.is_open:
                return []
            found = [queue.waiting.popleft() for _ in range(min(_AT_ONCE, len(queue.waiting)))]
            now = int(time.time() * 1000)
            for message in found:
                message.stage, message.sent_ms = Stage.SENT, now
            queue.sent.extend(found)
            return [(message, self._sequence_id(queue, message)) for message in found]

    def stored(
        self, queue: SegmentSendQueue, message: PendingMessage, error: ScalableError | None, raw: object
    ) -> None:
        """Take what is told of a message that was sent; late news of one that is elsewhere by now are none."""
        with self._lock:
            if message.queue is not queue or message.stage is not Stage.SENT:
                return
            if isinstance(error, TopicTerminated):
                self._end(queue)
                return
            if isinstance(error, AlreadyClosed):
                # A sender that connects again to a sealed segment closes itself, and tells nobody who has nothing sent.
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

    def opens_again(self, queue: SegmentSendQueue) -> bool:
        """Whether a queue needs another sender.

        Until there is one, what the lost one did not answer counts as sent: a segment that turns out to be sealed may
        have stored it.
        """
        with self._lock:
            return not queue.done and not queue.ended

    def has_left(self, queue: SegmentSendQueue) -> bool:
        """Whether the layout says that a queue's segment takes no messages any more."""
        with self._lock:
            return not self._is_active(queue)

    def sent(self, queue: SegmentSendQueue) -> list[PendingMessage]:
        """Return the messages that an ended queue may have stored, and those between them.

        Those that were given up are left out: no sender sends them again, so they need not come before the others.
        """
        with self._lock:
            # mutant: scalable-client/what-was-given-up-is-searched
            return [message for message in queue.sent if not message.is_given_up] if queue.undone else []

    def fail(self, sent: Sequence[PendingMessage], error: ScalableError) -> None:
        """Let messages fail of which it will never be known whether they are stored."""
        with self._lock:
            for message in sent:
                self._complete(message, error)

    def resolve(self, queue: SegmentSendQueue, sent: Sequence[PendingMessage], stored: Sequence[RawMessage]) -> None:
        """Report what a queue has stored, the first so many that it sent; move all else once it is known where to."""
        with self._lock:
            for message, raw in zip(sent, stored, strict=False):
                self._last_sequence_id = max(self._last_sequence_id, message.sequence_id)
                self._complete(message, MessageId.of(queue.segment.id, raw.message_id()))
                self._free(message)
            left = [message for message in (*queue.sent, *queue.waiting) if message.outcome is None]
            gone = [message for message in queue.sent if message.outcome is not None and message.queue is queue]
            for message in gone:
                self._free(message)
            queue.sent.clear()
            queue.waiting = deque(left)
            for message in left:
                message.stage = Stage.WAITING
            queue.wake.wait_for(lambda: queue.done or not self._is_active(queue))
            if not queue.done:
                self._move(queue)

    # With the lock held ---------------------------------------------------------------------------------------------

    def _send_again(self, queue: SegmentSendQueue) -> None:
        """Let what a lost sender did not answer wait for another one."""
        queue.lost = False
        left = [message for message in queue.sent if message.outcome is None]
        for message in left:
            message.stage = Stage.WAITING
        queue.sent = deque(message for message in queue.sent if message.outcome is not None)
        queue.waiting.extendleft(reversed(left))

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
                raise QueueFull(f"{self._topic}: {self._held} messages wait to be stored")
            self._room.wait()

    def _hash(self, layout: Layout, content: Content) -> int:
        if content.partition_key is not None:
            return key_hash(content.partition_key)
        # One without a key stays with the hashes of its segment: as a later message of another one it might have a
        # lower sequence id than what that has stored, and deduplication would drop it.
        segment = self._turns.segment(layout)
        if layout.synthetic:
            # The highest bit does not choose the partition; it spreads messages over all segments that take over.
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
        # Nothing must be found out about one that never sent: its thread may hang in opening its sender.
        if not queue.undone and not self._is_active(queue):
            self._move(queue)
        queue.wake.notify_all()

    def _move(self, queue: SegmentSendQueue) -> None:
        """Put what is left of a queue into those that took over, and let these continue."""
        layout = self._layout
        left, queue.waiting = queue.waiting, deque()
        touched: dict[int, SegmentSendQueue] = {}
        for message in left:
            try:
                if layout is None or layout.is_deleted:
                    raise TopicNotFound(-1, "the topic was deleted", self._topic)
                following = self._queue_for(layout, layout.segment_for(message.hash))
            except (LayoutError, TopicNotFound) as error:
                self._complete(message, error)
                self._free(message)
                continue
            # Another segment counts by itself.
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
        """Give back the room of a message that nothing holds any more; each has one."""
        if message.queue is not None:
            self._held -= 1
            message.queue = None
            self._room.notify_all()
