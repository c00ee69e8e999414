"""The messages that a producer of a scalable topic holds for one segment."""

from __future__ import annotations

import threading
from collections import deque
from itertools import takewhile
from typing import cast

from pulsar_scalable.backends import SegmentSender
from pulsar_scalable.layout import HASHES, Layout, Segment
from pulsar_scalable.messages import RawId, place_of
from pulsar_scalable.outgoing import Outgoing

_MOST_WITHOUT_PLACE = 100
"""Stored messages without a place that are kept; a repeated send of a long history would fill the memory."""


class Lane:
    """The messages of one segment; all of it is guarded by the outbox's lock.

    Attributes:
        segment: where they go.
        topic: that holds it.
        incarnation: of the scalable topic.
        hashes: first and last hash.
        waiting: not sent, by number.
        sent: since the last one whose place is known; also those that are stored at a place that nobody told.
        ended: the segment takes no messages any more.
        lost: its sender has closed itself, and another one is needed.
        done: nothing is left in it, and its worker ends.
        sender: of the segment, once it is open.
        last: serialised id of the last message that is known to be stored.
        dropped_ms: of messages behind `last` those sent before that time, in milliseconds since 1970, are dropped from
            `sent`; 0 where none are.
        next_sequence_id: of the next message that has none.
        wake: notified when its worker has something to do.
    """

    def __init__(self, segment: Segment, topic: str, layout: Layout, lock: threading.RLock) -> None:
        self.segment = segment
        self.topic = topic
        self.incarnation = layout.incarnation
        # Partitions take keys by another rule than ranges.
        self.hashes = (0, HASHES - 1) if layout.synthetic else (segment.start, segment.end)
        self.waiting: deque[Outgoing] = deque()
        self.sent: deque[Outgoing] = deque()
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
        return any(one.outcome is None for one in self.sent)

    @property
    def begun_ms(self) -> int:
        """Return since when the segment may hold messages that were sent behind `last`; 0 for whenever."""
        # Where none is known, an earlier producer of this name may have stored the same. A batch has the time of its
        # first message, so the others cannot be told by theirs.
        return self.dropped_ms or (0 if self.last is not None else self.sent[0].sent_ms)

    def forget_stored(self) -> None:
        """Drop what was sent up to the last message of those from the first one on that are all stored."""
        # Nothing is said later of what nothing holds; if it is stored, then before what was sent after it.
        stored = list(takewhile(lambda one: one.raw_id is not None or one.is_given_up, self.sent))
        known = stored[:]
        while known and not _has_place(known[-1].raw_id):
            known.pop()
        if known:
            self.last, self.dropped_ms = cast("RawId", known[-1].raw_id).serialize(), 0
        elif len(stored) >= _MOST_WITHOUT_PLACE:
            # Their copies in the segment are told from those of later messages by their time.
            known, self.dropped_ms = stored, stored[-1].sent_ms + 1
        for _ in known:
            self.sent.popleft()

    def overlaps(self, other: Lane) -> bool:
        """Whether both may have messages of one key."""
        return self.hashes[0] <= other.hashes[1] and other.hashes[0] <= self.hashes[1]


def _has_place(raw: object) -> bool:
    # Where deduplication drops a message, brokers tell no place.
    return raw is not None and place_of(cast("RawId", raw))[:2] >= (0, 0)
