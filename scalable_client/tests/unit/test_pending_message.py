"""Stored messages of a sealed segment are recognised by its content."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st
from scalable_client.tests.support.fake_topics import FakeWorld, Stored

from pulsar_scalable.native import MessageId
from pulsar_scalable.pending_message import PendingMessage, match_stored
from pulsar_scalable.ports import Content
from pulsar_scalable.send_queue import SegmentSendQueue


def pending(number: int, data: bytes) -> PendingMessage:
    """Return a message that was sent at second 1."""
    message = PendingMessage(number, Content(data), 0, deadline=0, on_outcome=lambda _, __: None)
    message.sent_ms = 1000
    return message


def stored(data: bytes, entry: int, published: int = 1000) -> Stored:
    """Return a message in the segment."""
    return Stored(Content(data), "me", entry, MessageId(1, entry), published)


runs = st.lists(st.integers(0, 8), max_size=4)


@given(sent=st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=8), lengths=runs)
def test_never_more_than_is_stored(sent: list[bytes], lengths: list[int]) -> None:
    """However equal messages are, none is taken for stored that is not: it would be lost."""
    lengths = [min(length, len(sent)) for length in lengths]
    tail = [stored(data, entry) for entry, data in enumerate(data for length in lengths for data in sent[:length])]
    copies = match_stored([pending(number, data) for number, data in enumerate(sent)], tail)
    assert len(copies) <= max(lengths, default=0)
    assert [message.data() for message in copies] == sent[: len(copies)]


@given(count=st.integers(0, 8), lengths=runs)
def test_all_that_is_stored(count: int, lengths: list[int]) -> None:
    """If no two messages are equal, all stored ones are recognised, however often they were sent again."""
    sent = [str(number).encode() for number in range(count)]
    lengths = [min(length, len(sent)) for length in lengths]
    tail = [stored(data, entry) for entry, data in enumerate(data for length in lengths for data in sent[:length])]
    copies = match_stored([pending(number, data) for number, data in enumerate(sent)], tail)
    assert len(copies) == max(lengths, default=0)


def test_many_equal_messages() -> None:
    """A thousand heartbeats without an answer leave as many readings as they are, and the shortest one counts."""
    sent = [pending(number, b"beat") for number in range(1000)]
    assert len(match_stored(sent, [stored(b"beat", entry) for entry in range(1000)])) == 1


def test_duplicates_are_not_kept() -> None:
    """Resending a long history keeps few messages in memory, and later messages are distinguished from it by time."""
    layout = FakeWorld(1).layout
    queue = SegmentSendQueue(layout.segments[0], "t", layout, threading.RLock())
    queue.last = b"before"
    most = 0
    for number in range(1000):
        message = pending(number, b"again")
        message.sent_ms, message.raw_id = number, MessageId(-1, -1)
        queue.sent.append(message)
        queue.forget_stored()
        most = max(most, len(queue.sent))
    assert (most < 100, queue.last, queue.dropped_ms) == (True, b"before", 1000)
    message = pending(1000, b"new")
    message.raw_id = MessageId(3, 7)
    queue.sent.append(message)
    queue.forget_stored()
    assert (len(queue.sent), queue.last, queue.dropped_ms) == (0, MessageId(3, 7).serialize(), 0)
