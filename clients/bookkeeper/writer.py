"""Write entries under the ids that their bodies carry, to every bookie that must hold them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import BookieConnection
from clients.bookkeeper.digests import master_key, read_header
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pending_adds import RefusedAdd
from clients.bookkeeper.pool import Bookies
from clients.errors import (
    BookieNotWritable,
    LedgerIdRefused,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
)

# Small frames are joined, since a buffer of its own costs more than the copy; large ones go out as they are.
_JOINED_BELOW = 16 << 10
_BYTES_IN_FLIGHT = 16 << 20
# A bookie refuses adds when 10,000 wait for one of its threads, those of all clients together.
_ENTRIES_AT_ONCE = 512
_SENT_AT_ONCE = 128 << 10
# The head of a request depends only on the size of the body and the ledger's key, and most sizes occur again.
_HEADS_KEPT = 10_000
_FEW = 64
_PAUSE = 0.05


class LargestEntry(NamedTuple):
    """An entry that was sent.

    Attributes:
        size: bytes of its body.
        ledger_id: its ledger.
        entry_id: its id.
    """

    size: int
    ledger_id: int
    entry_id: int


class LedgerWriter:
    """Adds bodies to ledgers, many adds and many ledgers in flight at once; one writer at a time for its `Bookies`.

    An entry is sent as a recovery add, which a fenced ledger takes too, and adding it again does no harm. Bookies do
    not check digests: bodies must be verified before. What a bookie refuses because it has too much to do is sent
    again when it has less. After an error, make another one.

    Args:
        bookies: the bookies.
        leave_out: replicas that get nothing.
        recovering: what is written was there before: bookies that are read-only for want of space take it too.

    Attributes:
        failed: the bookie that the error raised last is about, None before.
        largest: the largest entry that was added, None before.
    """

    def __init__(self, bookies: Bookies, *, leave_out: Collection[str] = (), recovering: bool = False) -> None:
        self.failed: str | None = None
        self.largest: LargestEntry | None = None
        self._bookies = bookies
        self._leave_out = frozenset(leave_out)
        self._recovering = recovering
        self._unsent = 0
        self._used: dict[str, BookieConnection] = {}
        self._heads: dict[bytes, dict[int, bytes]] = {}
        self._again: dict[str, deque[tuple[bytes, bytes]]] = {}
        self._keys: dict[int, bytes] = {}
        self._progress: dict[str, tuple[int, float]] = {}

    def add(self, ledger_id: int, metadata: LedgerMetadata, first_entry: int, bodies: Sequence[bytes]) -> None:
        """Send consecutive entries to their replicas; what came of them is known after `flush`.

        Args:
            ledger_id: the ledger.
            metadata: its metadata at the cluster written to; segments, write quorum and password are used.
            first_entry: id of the first body.
            bodies: header, digest and data of each.

        Raises:
            BookieNotWritable: a bookie does not take an entry; it is not among `Bookies.writable` for some seconds.
            StoreUnreachable: a bookie is down, or does not answer in time.
            StoreDenied: a bookie holds the ledger under another password.
            LedgerIdRefused: a bookie has deleted a ledger of this id, and has not been restarted since.
            ValueError: the bodies are other entries than that.
        """
        # A recovery add goes where the body says, and no bookie would object to a wrong place.
        _check_ids(ledger_id, first_entry, bodies)
        self._keys[ledger_id] = master_key(metadata.password)
        self._note_largest(ledger_id, first_entry, bodies)
        for start in range(0, len(bodies), _ENTRIES_AT_ONCE):
            self._add(metadata, first_entry + start, bodies[start : start + _ENTRIES_AT_ONCE], self._keys[ledger_id])
            self._judge()
            # A caller that adds entries waits here, so that memory stays bounded by the slowest bookie.
            while any(
                connection.bytes_in_flight > _BYTES_IN_FLIGHT or connection.unanswered_adds > _ENTRIES_AT_ONCE
                for connection in self._used.values()
            ):
                self._bookies.loop.poll()
                self._judge()

    def flush(self) -> None:
        """Wait until every bookie has answered for everything that was added; raises as `add` does."""
        self._judge()
        while any(self._again.values()) or any(connection.unanswered_adds for connection in self._used.values()):
            self._bookies.loop.poll()
            self._judge()
        # One that is lost while entries are sent to it again has nothing unanswered.
        for bookie_id, connection in self._used.items():
            self._require_alive(bookie_id, connection)
        self._keys.clear()

    def _note_largest(self, ledger_id: int, first_entry: int, bodies: Sequence[bytes]) -> None:
        sizes = [len(body) for body in bodies]
        size = max(sizes, default=0)
        if bodies and (self.largest is None or size > self.largest.size):
            self.largest = LargestEntry(size, ledger_id, first_entry + sizes.index(size))

    def _add(self, metadata: LedgerMetadata, first_entry: int, bodies: Sequence[bytes], key: bytes) -> None:
        while bodies:
            ensemble = metadata.segment_of(first_entry).ensemble
            later = [other.first_entry for other in metadata.segments if other.first_entry > first_entry]
            here = bodies[: later[0] - first_entry] if later else bodies
            size = len(ensemble)
            if metadata.write_quorum == size:
                self._queue(ensemble, here, key)
            else:
                for place, bookie_id in enumerate(ensemble):
                    first = place - first_entry
                    own = [body for index, body in enumerate(here) if (first - index) % size < metadata.write_quorum]
                    if own:
                        self._queue([bookie_id], own, key)
            first_entry += len(here)
            bodies = bodies[len(here) :]

    def _queue(self, bookie_ids: Sequence[str], bodies: Sequence[bytes], key: bytes) -> None:
        """Send the same bodies to bookies."""
        frames = self._frames(bodies, key)
        size = sum(map(len, frames))
        if size < len(bodies) * _JOINED_BELOW:
            frames = [b"".join(frames)]
        for bookie_id in bookie_ids:
            if bookie_id not in self._leave_out:
                self._connection(bookie_id).add(frames, bodies, size)
        self._unsent += size
        if self._unsent >= _SENT_AT_ONCE:
            self._unsent = 0
            self._bookies.loop.send()

    def _frames(self, bodies: Sequence[bytes], key: bytes) -> list[bytes]:
        """Return the head of each request and its body, alternating."""
        heads, frames = self._heads.setdefault(key, {}), list[bytes]()
        if len(heads) > _HEADS_KEPT:
            heads.clear()
        for body in bodies:
            size = len(body)
            head = heads.get(size)
            if head is None:
                head = heads[size] = wire_v2.add_head(size, key, high_priority=self._recovering)
            frames += (head, body)
        return frames

    def _connection(self, bookie_id: str) -> BookieConnection:
        connection = self._used.get(bookie_id)
        if connection is None:
            try:
                connection = self._used[bookie_id] = self._bookies.connection(bookie_id)
            except StoreUnreachable as cause:
                self.failed = bookie_id
                raise StoreUnreachable(f"bookie {bookie_id} {cause}", server=bookie_id) from cause
        return connection

    def _require_alive(self, bookie_id: str, connection: BookieConnection) -> None:
        if connection.lost:
            self.failed = bookie_id
            text = f"bookie {bookie_id} {connection.lost}; entries for it may not be written"
            raise StoreUnreachable(text, server=bookie_id)

    def _judge(self) -> None:
        for bookie_id, connection in self._used.items():
            self._require_alive(bookie_id, connection)
            if connection.refused_adds:
                refused, connection.refused_adds = connection.refused_adds, []
                for entry in refused:
                    self._postpone(bookie_id, entry)
            if self._again.get(bookie_id):
                self._send_again(bookie_id, connection)

    def _postpone(self, bookie_id: str, refused: RefusedAdd) -> None:
        key = self._keys.get(refused.ledger_id)
        if key is None:
            return  # An earlier writer's, which has failed already.
        if refused.code != wire_v2.TOO_MANY or not refused.body:
            self._bookies.refuse_writes(bookie_id)
            self.failed = bookie_id
            raise _refusal(bookie_id, refused)
        self._again.setdefault(bookie_id, deque()).append((key, refused.body))

    def _send_again(self, bookie_id: str, connection: BookieConnection) -> None:
        if connection.unanswered_adds > _FEW:
            return
        now = time.monotonic()
        accepted, since = self._progress.get(bookie_id, (-1, now))
        if accepted != connection.accepted_adds:
            since = now
        elif now - since > self._bookies.add_timeout:
            self._bookies.refuse_writes(bookie_id)
            self.failed = bookie_id
            text = f"bookie {bookie_id} has had too much to do for {now - since:.0f} s"
            raise BookieNotWritable(text, server=bookie_id)
        self._progress[bookie_id] = connection.accepted_adds, since
        if not connection.unanswered_adds:
            time.sleep(_PAUSE)  # The bookie's queue is full of what others send.
        again = self._again[bookie_id]
        for _ in range(min(_FEW, len(again))):
            key, body = again.popleft()
            self._queue([bookie_id], [body], key)


def _check_ids(ledger_id: int, first_entry: int, bodies: Sequence[bytes]) -> None:
    for index in (0, len(bodies) - 1) if bodies else ():
        header = read_header(bodies[index])
        if (header.ledger_id, header.entry_id) != (ledger_id, first_entry + index):
            raise ValueError(
                f"entry {header.entry_id} of ledger {header.ledger_id} cannot be written "
                f"as entry {first_entry + index} of ledger {ledger_id}"
            )


def _refusal(bookie_id: str, refused: RefusedAdd) -> StoreError:
    what = f"bookie {bookie_id} did not take entry {refused.entry_id} of ledger {refused.ledger_id}: "
    text = what + f"it {wire_v2.meaning(refused.code)}"
    kind: type[StoreError] = StoreProtocolError
    if refused.code in (wire_v2.READ_ONLY, wire_v2.IO_ERROR, wire_v2.TOO_MANY):
        kind = BookieNotWritable
    elif refused.code == wire_v2.FENCED:
        # A fenced ledger takes recovery adds. BookKeeper 4.18 answers so for an id that its garbage collection has
        # deleted: it keeps those in memory until seven days after the last request for them.
        kind, text = LedgerIdRefused, f"{what}it has deleted a ledger of this id, and refuses it until its restart"
    elif refused.code == wire_v2.DENIED:
        kind, text = StoreDenied, f"{text}; it may hold the ledger under another password"
    return kind(text, server=bookie_id, ledger_id=refused.ledger_id, entry_id=refused.entry_id)
