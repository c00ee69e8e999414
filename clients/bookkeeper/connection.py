"""One connection to a bookie that speaks version 2, with many requests in flight.

A bookie answers out of order between ledgers, so each answer finds its request by what it carries: ledger and entry,
or the number of a batch. Answers to adds are only counted, and those that refuse are kept.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from clients.bookkeeper import wire_v2
from clients.bookkeeper.pending_adds import PendingAdds, RefusedAdd
from clients.bookkeeper.transport import EventLoop, receive_some, send_some
from clients.errors import StoreProtocolError

# How many read timeouts a single request may take while others are answered: one that a bookie has lost would hold up
# its ledger indefinitely, and nothing but time tells it from a slow one.
_TIMEOUT_FACTOR = 4
_BUFFER_BYTES = 1 << 20
# Entries have 5 MB unless bookies are configured otherwise. Four bytes of a forged length must not reserve more.
_LONGEST_FRAME = 128 << 20


class Refused(NamedTuple):
    """Reason why a bookie returned no entry.

    Attributes:
        code: a code of `wire_v2`, or `wire_v2.LOST`.
        reason: the end of a sentence that begins with the bookie.
    """

    code: int
    reason: str


OnAnswer = Callable[[list[bytes] | Refused], None]


class BookieConnection:
    """Queues requests and passes answers to their callers; everything happens in `EventLoop.poll`.

    Args:
        bookie_id: for messages.
        connected: a connected socket, TLS begun; it is this connection's from now on.
        loop: what waits for it.
        read_timeout: seconds of waiting without a byte while an entry is due, after which the connection is given up. A
            request that is not answered within four times as long ends it too.
        add_timeout: the same while only answers to adds are awaited, which wait for the bookie's disk; without one of
            them for four times as long, the connection is given up whatever else arrives.
        on_lost: called once when the connection is lost or given up, with the reason and whether an answer was due.

    Attributes:
        lost: why the connection is lost; empty while it is open.
        unanswered_adds: entries that were queued or sent, and that the bookie has not answered.
        accepted_adds: entries that it has taken so far.
        refused_adds: entries that the bookie did not take; the writer takes them off.
    """

    def __init__(
        self,
        bookie_id: str,
        connected: socket.socket,
        loop: EventLoop,
        *,
        read_timeout: float,
        add_timeout: float,
        on_lost: Callable[[str, bool], None],
    ) -> None:
        # From here on the loop alone waits; a send or receive that blocked would stop all other bookies' entries too.
        connected.settimeout(0)
        self.bookie_id = bookie_id
        self.socket = connected
        self.lost = ""
        self.unanswered_adds = self.accepted_adds = 0
        self.refused_adds: list[RefusedAdd] = []
        self._loop = loop
        self._read_timeout, self._add_timeout = read_timeout, add_timeout
        self._on_lost = on_lost
        self._queue: deque[bytes | memoryview] = deque()
        self._pending_adds = PendingAdds()
        self._reads: dict[tuple[int, int], deque[tuple[float, OnAnswer]]] = {}
        self._batches: dict[int, tuple[float, OnAnswer]] = {}
        self._number = 0
        self._heard = self._add_answered = self._loop.waited
        self._frames = FrameBuffer()
        loop.add(self)

    def read(self, ledger_id: int, entry_id: int, on_answer: OnAnswer, *, fence_key: bytes = b"") -> None:
        """Queue a request for one entry; `fence_key` is the ledger's master key, to fence it first."""
        self._await_read()
        # The answer names ledger and entry, but no request: of two for the same entry the older one is answered first.
        waiting = self._reads.setdefault((ledger_id, entry_id), deque())
        waiting.append((self._loop.waited, on_answer))
        self._queue.append(wire_v2.read_request(ledger_id, entry_id, fence_key))
        self._loop.queued(self)

    def read_batch(self, ledger_id: int, first_entry: int, count: int, size: int, on_answer: OnAnswer) -> None:
        """Queue a request for at most `count` consecutive entries and about `size` bytes."""
        self._await_read()
        self._number += 1
        self._batches[self._number] = self._loop.waited, on_answer
        self._queue.append(wire_v2.batch_request(ledger_id, first_entry, self._number, count, size))
        self._loop.queued(self)

    def add(self, frames: Iterable[bytes], bodies: Sequence[bytes], size: int) -> None:
        """Queue the frames of bodies, `size` bytes together."""
        # As for reads: what was silent because nothing was asked is not late.
        if not self.awaiting:
            self._heard = self._loop.waited
        if not self.unanswered_adds:
            self._add_answered = self._loop.waited
        self._queue.extend(frames)
        self._pending_adds.append(bodies, size)
        self.unanswered_adds += len(bodies)
        self._loop.queued(self)

    @property
    def bytes_in_flight(self) -> int:
        """Size of what was added and not answered, roughly."""
        return self._pending_adds.size

    @property
    def awaiting(self) -> bool:
        """Whether an answer is due."""
        return bool(self._reads or self._batches or self.unanswered_adds)

    @property
    def deadline(self) -> float | None:
        """Until when, by the loop's clock, something must arrive; None if nothing is due."""
        # While both are due the shorter limit holds: a bookie answers reads whether or not its journal's disk is slow.
        if self._reads or self._batches:
            return self._heard + self._read_timeout
        return self._heard + self._add_timeout if self.unanswered_adds else None

    def send_queued(self) -> None:
        """Send what the socket takes."""
        queue = self._queue
        try:
            while queue:
                sent = send_some(self.socket, queue)
                if not sent:
                    break
                self._take_off(sent)
        except OSError as cause:
            self.lose(f"broke the connection: {cause}")
            return
        self._loop.want_write(self, wanted=bool(queue))

    def receive(self) -> None:
        """Take in what has arrived and hand out the answers that are complete."""
        try:
            while True:
                size = receive_some(self.socket, self._frames.room())
                if size < 0:
                    return
                if size == 0:
                    self.lose("closed the connection")
                    return
                self._heard = self._loop.waited
                self._frames.end += size
                self._hand_out()
                # TLS may hold decrypted bytes of which the selector, which sees the socket, knows nothing.
                if self.lost or not getattr(self.socket, "pending", int)():
                    break
            self._judge_oldest()
        except OSError as cause:
            self.lose(f"broke the connection: {cause}")
        except StoreProtocolError as cause:
            self.lose(f"sent what the protocol does not allow: {cause}")

    def overdue(self) -> None:
        """Give the connection up: nothing arrived until the deadline."""
        limit = self._read_timeout if self._reads or self._batches else self._add_timeout
        self.lose(f"did not answer within {limit:g} s")

    def lose(self, reason: str) -> None:
        """Give the connection up, and tell everybody who waits for an answer."""
        if self.lost:
            return
        self.lost = reason
        self._loop.remove(self)
        self.socket.close()
        self._queue.clear()
        awaiting = self.awaiting
        waiting = [entry for entries in self._reads.values() for entry in entries] + list(self._batches.values())
        self._reads.clear()
        self._batches.clear()
        self.unanswered_adds = 0
        # Before the answers: their callers ask another replica at once, and must find this bookie in quarantine.
        self._on_lost(reason, awaiting)
        for _, on_answer in waiting:
            on_answer(Refused(wire_v2.LOST, reason))

    def _await_read(self) -> None:
        # Time counts from the first request on: before it, silence means nothing.
        if not (self._reads or self._batches):
            self._heard = self._loop.waited

    def _judge_oldest(self) -> None:
        """Give up where other answers flow, but not the one that is due for long."""
        begun = [next(iter(self._batches.values()))[0]] if self._batches else []
        begun += [next(iter(self._reads.values()))[0][0]] if self._reads else []
        if begun and self._heard - min(begun) > _TIMEOUT_FACTOR * self._read_timeout:
            self.lose(f"left a request unanswered for {_TIMEOUT_FACTOR * self._read_timeout:g} s")
        elif self.unanswered_adds and self._heard - self._add_answered > _TIMEOUT_FACTOR * self._add_timeout:
            self.lose(f"answered no add for {_TIMEOUT_FACTOR * self._add_timeout:g} s")

    def _take_off(self, sent: int) -> None:
        queue = self._queue
        while sent:
            head = queue.popleft()
            if len(head) > sent:
                queue.appendleft(memoryview(head)[sent:])
                return
            sent -= len(head)

    def _hand_out(self) -> None:
        frames = self._frames
        while not self.lost and frames.held >= wire_v2.ADD_ANSWER_SIZE + wire_v2.LENGTH:
            start = frames.start + wire_v2.LENGTH
            header, code, ledger_id, entry_id = wire_v2.ANSWER.unpack_from(frames.view, start)
            operation = wire_v2.operation(header)
            if operation == wire_v2.ADD:
                # Answers to adds are all alike and come by the thousand; they are unpacked in one call.
                self._count_adds()
                continue
            frame = frames.take()
            if frame is None:
                return
            if operation == wire_v2.READ:
                self._answer_read(ledger_id, entry_id, code, frame[wire_v2.ANSWER.size :])
            elif operation == wire_v2.BATCH_READ:
                self._answer_batch(code, frame)
            else:
                raise StoreProtocolError(f"an answer to operation {operation}, which was not asked for")

    def _count_adds(self) -> None:
        frames = self._frames
        whole = frames.held // wire_v2.ADD_ANSWER.size * wire_v2.ADD_ANSWER.size
        counted = 0
        refused: list[tuple[int, int, int]] = []
        for size, header, code, ledger_id, entry_id in wire_v2.ADD_ANSWER.iter_unpack(
            frames.view[frames.start : frames.start + whole]
        ):
            # Another kind of answer begins here; the loop in `_hand_out` continues with it.
            if header != wire_v2.ADD_ANSWER_HEADER or size != wire_v2.ADD_ANSWER_SIZE:
                break
            counted += 1
            if code:
                refused.append((ledger_id, entry_id, code))
        if not 0 < counted <= self.unanswered_adds:
            raise StoreProtocolError("an answer to an add that was not sent")
        frames.start += counted * wire_v2.ADD_ANSWER.size
        self._add_answered = self._heard
        self.unanswered_adds -= counted
        # A bookie with too much to do refuses before it takes what came later: the refused are still known.
        self.refused_adds += [RefusedAdd(*add, self._pending_adds.take(*add[:2])) for add in refused]
        self.accepted_adds += counted - len(refused)
        self._pending_adds.accept(counted - len(refused))

    def _answer_read(self, ledger_id: int, entry_id: int, code: int, body: memoryview) -> None:
        waiting = self._reads.get((ledger_id, entry_id))
        if waiting is None:
            raise StoreProtocolError(f"entry {entry_id} of ledger {ledger_id}, which was not asked for")
        _, on_answer = waiting.popleft()
        if not waiting:
            del self._reads[ledger_id, entry_id]
        on_answer(Refused(code, wire_v2.meaning(code)) if code else [bytes(body)])

    def _answer_batch(self, code: int, frame: memoryview) -> None:
        if len(frame) < wire_v2.BATCH_ANSWER.size:
            raise StoreProtocolError("an answer to a batch without its number")
        number = wire_v2.BATCH_ANSWER.unpack_from(frame)[-1]
        if number not in self._batches:
            raise StoreProtocolError(f"batch {number}, which was not asked for")
        answer = (
            Refused(code, wire_v2.meaning(code)) if code else wire_v2.split_bodies(frame, wire_v2.BATCH_ANSWER.size)
        )
        _, on_answer = self._batches.pop(number)
        on_answer(answer)


class FrameBuffer:
    """A buffer that grows with the largest frame.

    Attributes:
        view: the buffer.
        start: where the first frame that was not taken begins.
        end: end of the received bytes; the code that receives into `room` moves it.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_BUFFER_BYTES))
        self.start = self.end = 0

    @property
    def held(self) -> int:
        """Bytes that were not taken."""
        return self.end - self.start

    def room(self) -> memoryview:
        """Return the buffer to receive into, with space for at least the rest of the current frame."""
        held = self.held
        if not held:
            self.start = self.end = 0
        wanted = wire_v2.LENGTH + (self._size() if held >= wire_v2.LENGTH else 0)
        if self.start + wanted > len(self.view) or self.end == len(self.view):
            rest = bytes(self.view[self.start : self.end])
            if wanted >= len(self.view):
                self.view = memoryview(bytearray(wanted + _BUFFER_BYTES))
            self.view[:held] = rest
            self.start, self.end = 0, held
        return self.view[self.end :]

    def take(self) -> memoryview | None:
        """Return the next frame without its length, good until the next `room`; None if it is not whole yet.

        Raises:
            StoreProtocolError: it is longer than any answer.
        """
        start = self.start + wire_v2.LENGTH
        end = start + self._size()
        if end > self.end:
            return None
        self.start = end
        return self.view[start:end]

    def _size(self) -> int:
        size = int.from_bytes(self.view[self.start : self.start + wire_v2.LENGTH])
        if size > _LONGEST_FRAME:
            raise StoreProtocolError(f"a frame of {size} bytes")
        return size
