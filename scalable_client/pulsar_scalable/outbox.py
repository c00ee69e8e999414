"""What a producer of a scalable topic holds: messages in lanes, one lane for each segment.

How order per key is kept: messages of a key go through one lane, in the order of their numbers. When a segment is
sealed, its lane has ended: what it did not store is put into the lanes of the segments that took over, by number before
whatever came later, and until then no lane sends whose hashes overlap with those of a lane that has ended. So a message
is never sent while an earlier one of its key is on its way elsewhere, however many splits and merges follow each other.

Nothing here talks to a broker.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pulsar_scalable.backends import Content, SegmentSender
from pulsar_scalable.errors import (
    AlreadyClosed,
    LayoutError,
    QueueFull,
    ScalableError,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
)
from pulsar_scalable.lane import Lane
from pulsar_scalable.layout import Layout, RoundRobin, Segment, key_hash
from pulsar_scalable.messages import MessageId, RawMessage
from pulsar_scalable.options import ProducerOptions
from pulsar_scalable.outgoing import OnOutcome, Outgoing, Stage

_AT_ONCE = 100


class Outbox:
    """All that a producer holds.

    Args:
        topic: for messages of errors.
        options: of the producer.
        start: begins to work on a lane, in a thread of its own.
        deliver: takes each message whose outcome is known, once.
    """

    def __init__(
        self,
        topic: str,
        options: ProducerOptions,
        start: Callable[[Lane], None],
        deliver: Callable[[Outgoing], None],
    ) -> None:
        self._topic = topic
        self._options = options
        self._start = start
        self._deliver = deliver
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._layout: Layout | None = None
        self._turns = RoundRobin()
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._ended: list[Lane] = []
        self._pending: dict[int, Outgoing] = {}
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

    def add(self, content: Content, sequence_id: int | None, on_outcome: OnOutcome, *, may_wait: bool = True) -> None:
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
            lane = self._lane(layout, layout.segment_for(hash_))
            one = Outgoing(
                self._number,
                content,
                hash_,
                wanted_sequence_id=sequence_id,
                deadline=deadline,
                on_outcome=on_outcome,
            )
            self._number += 1
            self._held += 1
            self._pending[one.number] = one
            one.lane = lane
            lane.waiting.append(one)
            lane.wake.notify()

    def flush(self, timeout: float | None) -> bool:
        """Wait until what was taken so far is stored, or has failed; whether that came within some seconds."""
        with self._lock:
            last = self._number
            return self._room.wait_for(lambda: not self._pending or next(iter(self._pending)) >= last, timeout)

    def close(self, error: ScalableError) -> None:
        """Let all fail that is not stored, and take no more."""
        with self._lock:
            self._closed = True
            for one in list(self._pending.values()):
                self._settle(one, error)
            for lane in self._lanes.values():
                lane.done = True
                lane.wake.notify_all()
            self._lanes.clear()
            self._ended.clear()
            self._room.notify_all()

    def expire(self, now: float) -> None:
        """Let messages fail whose time is over, by the monotonic clock."""
        with self._lock:
            for one in list(islice(self._pending.values(), _AT_ONCE * 10)):
                if one.deadline > now:
                    break
                where = one.lane.topic if isinstance(one.lane, Lane) else self._topic
                limit = self._options.send_timeout_millis
                self._settle(one, TimedOut(f"{where}: a message is not stored after {limit} ms"))
                lane = one.lane
                if not isinstance(lane, Lane):
                    continue
                if one.stage is Stage.WAITING:
                    lane.waiting.remove(one)
                    self._free(one)
                    continue
                if lane.is_open and lane.sender is not None and not lane.sender.is_connected:
                    # It would store what has failed, whenever it is connected again.
                    lane.lost = True
                    lane.wake.notify_all()
                if lane.lost:
                    # It stays among what is sent: the segment may have stored it.
                    self._free(one)

    # The layout -----------------------------------------------------------------------------------------------------

    def take_layout(self, layout: Layout) -> None:
        """Follow a newer layout."""
        with self._lock:
            self._layout = layout
            active = {one.id for one in layout.active}
            for lane in list(self._lanes.values()):
                if layout.is_deleted or lane.incarnation != layout.incarnation:
                    self._abandon(lane)
                elif lane.segment.id not in active:
                    self._end(lane)
                lane.wake.notify_all()
            self._room.notify_all()

    def _abandon(self, lane: Lane) -> None:
        error = TopicNotFound(-1, "the topic was deleted", self._topic)
        for one in (*lane.sent, *lane.waiting):
            self._settle(one, error)
            self._free(one)
        self._finish(lane)

    # Workers of lanes -----------------------------------------------------------------------------------------------

    def opened(self, lane: Lane, sender: SegmentSender) -> bool:
        """Note the sender of a lane; whether there is still use for it."""
        with self._lock:
            if lane.done:
                return False
            if lane.lost:
                self._send_again(lane)
            lane.sender = sender
            # What an earlier sender had under way may still be stored, and deduplication would drop another message of
            # its id; what is sent again keeps the id that it had.
            lane.next_sequence_id = max(1, lane.next_sequence_id, sender.last_sequence_id() + 1)
            return True

    def is_wanted(self, lane: Lane) -> bool:
        """Whether a sender is to be opened for a lane: waits until it has messages, or is done."""
        with self._lock:
            lane.wake.wait_for(lambda: lane.done or lane.ended or lane.lost or bool(lane.waiting))
            return not lane.done and not lane.ended

    def pause(self, lane: Lane, seconds: float) -> None:
        """Wait for some seconds, or until a lane is done or has ended."""
        with self._lock:
            lane.wake.wait_for(lambda: lane.done or lane.ended, seconds)

    def refused(self, lane: Lane, error: ScalableError) -> None:
        """The segment cannot be sent to: it is sealed, or what waits for it fails."""
        with self._lock:
            if isinstance(error, TopicTerminated):
                self._end(lane)
                return
            if lane.lost:
                self._send_again(lane)
            waiting, lane.waiting = lane.waiting, deque()
            for one in waiting:
                self._settle(one, error)
                self._free(one)

    def next(self, lane: Lane) -> list[tuple[Outgoing, int]]:
        """The next messages to send, with their sequence ids; empty once nothing can be sent through its sender."""
        with self._lock:
            lane.wake.wait_for(lambda: not lane.is_open or (lane.waiting and not self._is_blocked(lane)))
            if not lane.is_open:
                return []
            found = [lane.waiting.popleft() for _ in range(min(_AT_ONCE, len(lane.waiting)))]
            now = int(time.time() * 1000)
            for one in found:
                one.stage, one.sent_ms = Stage.SENT, now
            lane.sent.extend(found)
            return [(one, self._sequence_id(lane, one)) for one in found]

    def stored(self, lane: Lane, one: Outgoing, error: ScalableError | None, raw: object) -> None:
        """Take what is told of a message that was sent; late news of one that is elsewhere by now are none."""
        with self._lock:
            if one.lane is not lane or one.stage is not Stage.SENT:
                return
            if isinstance(error, TopicTerminated):
                self._end(lane)
                return
            if isinstance(error, AlreadyClosed):
                # A sender that connects again to a sealed segment closes itself, and tells nobody who has nothing sent.
                lane.lost = True
                lane.wake.notify()
                return
            if error is None:
                self._last_sequence_id = max(self._last_sequence_id, one.sequence_id)
            self._settle(one, error or MessageId.of(lane.segment.id, raw))
            self._free(one)
            if error is not None:
                lane.sent.remove(one)
            else:
                one.raw_id = raw
                lane.forget_stored()

    def opens_again(self, lane: Lane) -> bool:
        """Whether a lane needs another sender.

        Until there is one, what the lost one did not answer counts as sent: a segment that turns out to be sealed may
        have stored it.
        """
        with self._lock:
            return not lane.done and not lane.ended

    def has_left(self, lane: Lane) -> bool:
        """Whether the layout says that a lane's segment takes no messages any more."""
        with self._lock:
            return not self._is_active(lane)

    def sent(self, lane: Lane) -> list[Outgoing]:
        """Return messages of a lane that has ended of which it is not known whether they are stored, and those between.

        Those that were given up are left out: no sender sends them again, so they need not come before the others.
        """
        with self._lock:
            return [one for one in lane.sent if not one.is_given_up] if lane.undone else []

    def fail(self, sent: Sequence[Outgoing], error: ScalableError) -> None:
        """Let messages fail of which it will never be known whether they are stored."""
        with self._lock:
            for one in sent:
                self._settle(one, error)

    def resolve(self, lane: Lane, sent: Sequence[Outgoing], stored: Sequence[RawMessage]) -> None:
        """Settle what a lane has stored, the first so many that it sent; move all else once it is known where to."""
        with self._lock:
            for one, raw in zip(sent, stored, strict=False):
                self._last_sequence_id = max(self._last_sequence_id, one.sequence_id)
                self._settle(one, MessageId.of(lane.segment.id, raw.message_id()))
                self._free(one)
            left = [one for one in (*lane.sent, *lane.waiting) if one.outcome is None]
            gone = [one for one in lane.sent if one.outcome is not None and one.lane is lane]
            for one in gone:
                self._free(one)
            lane.sent.clear()
            lane.waiting = deque(left)
            for one in left:
                one.stage = Stage.WAITING
            lane.wake.wait_for(lambda: lane.done or not self._is_active(lane))
            if not lane.done:
                self._move(lane)

    # With the lock held ---------------------------------------------------------------------------------------------

    def _send_again(self, lane: Lane) -> None:
        """Let what a lost sender did not answer wait for another one."""
        lane.lost = False
        left = [one for one in lane.sent if one.outcome is None]
        for one in left:
            one.stage = Stage.WAITING
        lane.sent = deque(one for one in lane.sent if one.outcome is not None)
        lane.waiting.extendleft(reversed(left))

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

    def _lane(self, layout: Layout, segment: Segment) -> Lane:
        key = (layout.incarnation, segment.id)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(segment, layout.topic_of(segment), layout, self._lock)
            self._start(lane)
        return lane

    def _is_blocked(self, lane: Lane) -> bool:
        return any(other is not lane and other.overlaps(lane) for other in self._ended)

    def _is_active(self, lane: Lane) -> bool:
        layout = self._layout
        if layout is None or layout.incarnation != lane.incarnation:
            return False
        segment = layout.by_id.get(lane.segment.id)
        return segment is not None and segment.active

    def _sequence_id(self, lane: Lane, one: Outgoing) -> int:
        if one.sequence_id < 0:
            wanted = one.wanted_sequence_id
            one.sequence_id = lane.next_sequence_id if wanted is None else wanted
            lane.next_sequence_id = max(lane.next_sequence_id, one.sequence_id + 1)
        return one.sequence_id

    def _end(self, lane: Lane) -> None:
        if lane.ended or lane.done:
            return
        lane.ended = True
        self._ended.append(lane)
        # Nothing has to be found out about one that never sent: its worker may hang in opening its sender.
        if not lane.undone and not self._is_active(lane):
            self._move(lane)
        lane.wake.notify_all()

    def _move(self, lane: Lane) -> None:
        """Put what is left of a lane into those that took over, and let these go on."""
        layout = self._layout
        left, lane.waiting = lane.waiting, deque()
        touched: dict[int, Lane] = {}
        for one in left:
            try:
                if layout is None or layout.is_deleted:
                    raise TopicNotFound(-1, "the topic was deleted", self._topic)
                following = self._lane(layout, layout.segment_for(one.hash))
            except (LayoutError, TopicNotFound) as error:
                self._settle(one, error)
                self._free(one)
                continue
            # Another segment counts by itself.
            one.lane, one.sequence_id = following, -1
            following.waiting.append(one)
            touched[id(following)] = following
        for following in touched.values():
            following.waiting = deque(sorted(following.waiting, key=lambda one: one.number))
        self._finish(lane)

    def _finish(self, lane: Lane) -> None:
        lane.done = True
        self._lanes.pop((lane.incarnation, lane.segment.id), None)
        self._ended = [one for one in self._ended if one is not lane]
        for one in (lane, *self._lanes.values()):
            one.wake.notify_all()
        self._room.notify_all()

    def _settle(self, one: Outgoing, outcome: ScalableError | MessageId) -> None:
        if one.outcome is not None:
            return
        one.outcome = outcome
        del self._pending[one.number]
        self._deliver(one)
        self._room.notify_all()

    def _free(self, one: Outgoing) -> None:
        """Give back the room of a message that nothing holds any more; each has one."""
        if one.lane is not None:
            self._held -= 1
            one.lane = None
            self._room.notify_all()
