"""Read ledgers' entries as they lie on the bookies, each of them verified."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping

from clients.bookkeeper.fetch import Fetch, LedgerStream
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.errors import StoreError

# Enough to keep two bookies at work while a chunk is hashed and forwarded.
_CHUNKS_AHEAD = 4
# Most ledgers of a cluster are small (cursors, schemas): a limit on bytes alone would put too many in flight.
_LEDGERS_AHEAD = 1024
_BYTES_AHEAD = 8 << 20
_FROM_BEGIN: Mapping[int, int] = {}


class LedgerReader:
    """Reads the bookies of one cluster; bodies are header, digest and data, as `digests` says.

    Where a bookie lacks an entry, gives a bad copy, is down, or does not answer in time, the next replica is asked;
    a bookie that is down or silent is then left alone for some seconds. Nothing waits for a bookie longer than the
    read timeout of `Bookies`.

    Args:
        bookies: the bookies.
        verify: check ids and digests of entries. Leave it out only where bodies are compared with verified ones.
    """

    def __init__(self, bookies: Bookies, *, verify: bool = True) -> None:
        self._bookies = bookies
        self._verify = verify

    def entries(
        self, ledger_id: int, metadata: LedgerMetadata, first: int = 0, last: int | None = None
    ) -> Generator[list[bytes]]:
        """Bodies in the order of their entries, in batches of about 1 MB; a few batches are read ahead.

        Args:
            ledger_id: the ledger.
            metadata: its metadata.
            first: the first entry.
            last: the last one; by default that of the metadata, which an open ledger does not have.

        Raises:
            LedgerUnreadable: no replica has a valid copy of an entry; names it and what each bookie said.
            StoreUnreachable: a bookie that may have it does not answer.
            StoreDenied: a bookie refuses the credentials.
        """
        stream = LedgerStream(ledger_id, metadata, first, metadata.last_entry if last is None else last)
        fetch = Fetch(self._bookies, verify=self._verify)
        due = first
        try:
            while due <= stream.last:
                while stream.unrequested <= stream.last and stream.unrequested - due < _CHUNKS_AHEAD * stream.chunk:
                    fetch.request_chunk(stream)
                bodies = _contiguous(stream, due)
                if bodies:
                    due += len(bodies)
                    # What was requested goes out before the caller works on these bodies, so that both overlap.
                    fetch.send()
                    yield bodies
                # Only when everything before it was handed out: the caller keeps what could be read.
                elif stream.error:
                    raise stream.error
                else:
                    fetch.poll()
        finally:
            # A caller that stops early leaves requests in flight, and their answers must not pile up.
            stream.wanted = False

    def read_entry(self, ledger_id: int, metadata: LedgerMetadata, entry_id: int) -> bytes:
        """The body of one entry; raises as `entries` does."""
        return next(self.entries(ledger_id, metadata, entry_id, entry_id))[0]

    def read_many(
        self, ledgers: Iterable[tuple[int, LedgerMetadata]], firsts: Mapping[int, int] = _FROM_BEGIN
    ) -> Generator[tuple[int, list[bytes] | StoreError]]:
        """All entries of closed ledgers, many ledgers in flight at once; for ledgers that fit into memory.

        Args:
            ledgers: ids and metadata.
            firsts: ledgers of which only the entries from this one on are wanted.

        Yields:
            A ledger's id and its bodies, or the error that `entries` would raise; in the order of completion.
        """
        waiting = iter(ledgers)
        active: deque[LedgerStream] = deque()
        fetch = Fetch(self._bookies, verify=self._verify)
        more = True
        try:
            while more or active:
                ahead = sum(stream.missing * stream.entry_size for stream in active)
                while more and ahead < _BYTES_AHEAD and len(active) < _LEDGERS_AHEAD:
                    stream = self._begin(next(waiting, None), fetch, firsts)
                    more = stream is not None
                    if stream is not None:
                        active.append(stream)
                        ahead += stream.missing * stream.entry_size
                fetch.send()
                done = [stream for stream in active if stream.error or not stream.missing]
                if done:
                    active = deque(stream for stream in active if not stream.error and stream.missing)
                for stream in done:
                    stream.wanted = False
                    yield (
                        stream.ledger_id,
                        stream.error or _contiguous(stream, firsts.get(stream.ledger_id, 0), whole=True),
                    )
                if not done and active:
                    fetch.poll()
        finally:
            for stream in active:
                stream.wanted = False

    def _begin(
        self, ledger: tuple[int, LedgerMetadata] | None, fetch: Fetch, firsts: Mapping[int, int]
    ) -> LedgerStream | None:
        if ledger is None:
            return None
        ledger_id, metadata = ledger
        stream = LedgerStream(ledger_id, metadata, firsts.get(ledger_id, 0), metadata.last_entry)
        while stream.unrequested <= stream.last:
            fetch.request_chunk(stream)
        return stream


def _contiguous(stream: LedgerStream, due: int, *, whole: bool = False) -> list[bytes]:
    """Take the bodies that have come from `due` on, without a gap; about one chunk of them, unless all are wanted."""
    bodies = stream.ready.pop(due, None)
    if bodies is None:
        return []
    while (whole or len(bodies) < stream.chunk) and (more := stream.ready.pop(due + len(bodies), None)):
        bodies += more
    return bodies
