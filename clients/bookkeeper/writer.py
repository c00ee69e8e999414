"""Write entries under the ids that their bodies carry, to every bookie that shall hold them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import BookieConnection, RefusedAdd
from clients.bookkeeper.digests import master_key, read_header
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.errors import BookieNotWritable, StoreDenied, StoreError, StoreProtocolError, StoreUnreachable

_JOINED_BELOW = 16 << 10
_WINDOW = 16 << 20
_HEADS_KEPT = 10_000


class LedgerWriter:
    """Adds bodies to ledgers, many adds and many ledgers in flight at once; one writer at a time for its `Bookies`.

    An entry is sent as a recovery add, which a fenced ledger takes too, and adding it again does no harm. Bookies do
    not check digests: bodies have to be verified before.

    Args:
        bookies: the bookies.
        window: bytes in flight to one bookie beyond which `add` waits for answers.
        leave_out: replicas that get nothing.

    Attributes:
        failed: the bookie that the error raised last is about, None before.
    """

    def __init__(self, bookies: Bookies, *, window: int = _WINDOW, leave_out: Collection[str] = ()) -> None:
        self.failed: str | None = None
        self._bookies = bookies
        self._window = window
        self._leave_out = frozenset(leave_out)
        self._used: dict[str, BookieConnection] = {}
        self._heads: dict[bytes, dict[int, bytes]] = {}

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
            ValueError: the bodies are other entries than that.
        """
        _check_ids(ledger_id, first_entry, bodies)
        while bodies:
            segment = metadata.segment_of(first_entry)
            later = [other.first_entry for other in metadata.segments if other.first_entry > first_entry]
            here = bodies[: later[0] - first_entry] if later else bodies
            self._add_in_segment(metadata, segment.ensemble, first_entry, here)
            first_entry += len(here)
            bodies = bodies[len(here) :]
        self._judge()
        while any(connection.bytes_in_flight > self._window for connection in self._used.values()):
            self._bookies.loop.turn()
            self._judge()

    def flush(self) -> None:
        """Wait until every bookie has answered for everything that was added; raises as `add` does."""
        self._judge()
        while any(connection.unanswered_adds for connection in self._used.values()):
            self._bookies.loop.turn()
            self._judge()

    def _add_in_segment(
        self, metadata: LedgerMetadata, ensemble: Sequence[str], first_entry: int, bodies: Sequence[bytes]
    ) -> None:
        size = len(ensemble)
        frames = self._frames(bodies, master_key(metadata.password))
        if metadata.write_quorum == size:
            count, total = len(bodies), sum(map(len, frames))
            if total < count * _JOINED_BELOW:
                frames = [b"".join(frames)]
            for bookie_id in ensemble:
                if bookie_id not in self._leave_out:
                    self._queue(bookie_id, frames, count, total)
        else:
            for place, bookie_id in enumerate(ensemble):
                own: list[bytes] = []
                for index in range(len(bodies)):
                    if (place - first_entry - index) % size < metadata.write_quorum:
                        own += frames[2 * index : 2 * index + 2]
                if own and bookie_id not in self._leave_out:
                    self._queue(bookie_id, [b"".join(own)], len(own) // 2, sum(map(len, own)))
        self._bookies.send(ensemble)

    def _frames(self, bodies: Sequence[bytes], key: bytes) -> list[bytes]:
        """What stands before a body, and the body, one after the other."""
        heads, frames = self._heads.setdefault(key, {}), list[bytes]()
        if len(heads) > _HEADS_KEPT:
            heads.clear()
        for body in bodies:
            size = len(body)
            head = heads.get(size)
            if head is None:
                head = heads[size] = wire_v2.add_head(size, key)
            frames += (head, body)
        return frames

    def _queue(self, bookie_id: str, frames: Sequence[bytes], count: int, size: int) -> None:
        connection = self._used.get(bookie_id)
        if connection is None:
            try:
                connection = self._used[bookie_id] = self._bookies.connection(bookie_id)
            except StoreUnreachable as cause:
                self.failed = bookie_id
                raise StoreUnreachable(f"bookie {bookie_id} {cause}") from cause
        connection.add(frames, count, size)

    def _judge(self) -> None:
        for bookie_id, connection in self._used.items():
            if connection.lost:
                self.failed = bookie_id
                raise StoreUnreachable(f"bookie {bookie_id} {connection.lost}; entries for it may not be written")
            if connection.refused_adds:
                refused = connection.refused_adds[0]
                connection.refused_adds.clear()
                self.failed = bookie_id
                self._bookies.refuse_writes(bookie_id)
                raise _refusal(bookie_id, refused)


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
    if refused.code in (wire_v2.READ_ONLY, wire_v2.IO_ERROR, wire_v2.TOO_MANY):
        return BookieNotWritable(text)
    if refused.code == wire_v2.DENIED:
        return StoreDenied(f"{text}; it may hold the ledger under another password")
    return StoreProtocolError(text)
