"""Read ledgers' entries as they are stored on the bookies, and verify each of them."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from functools import partial

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.digests import count_valid
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.errors import LedgerUnreadable, StoreDenied, StoreError, StoreUnreachable

# Enough to keep two bookies at work while a chunk is hashed and forwarded.
_CHUNKS_AHEAD = 4
# Most ledgers of a cluster are small (cursors, schemas): a limit on bytes alone would put too many in flight.
_LEDGERS_AHEAD = 1024
_BYTES_AHEAD = 8 << 20
_FROM_BEGIN: Mapping[int, int] = {}
# A bookie builds a whole batch before it sends a byte: a chunk is large enough to make requests rare, and small enough
# to keep its disk and the network busy at the same time.
_TARGET = 1 << 20
# Entries may be larger than the average by which chunks are sized.
_LARGEST_ANSWER = 4 << 20
_MOST_ENTRIES = 4096
# Assumed where the metadata do not tell it.
_USUAL_ENTRY = 4096
_OVERHEAD = 64
# These codes concern one entry; all others concern the bookie.
_OF_ENTRY = {wire_v2.NO_ENTRY, wire_v2.NO_LEDGER, wire_v2.IO_ERROR}


class LedgerReader:
    """Reads the bookies of one cluster; bodies are header, digest and data, as `digests` says.

    Where a bookie lacks an entry, gives a bad copy, is down, or does not answer in time, the next replica is asked;
    a bookie that is down or silent is then not asked for some seconds. Nothing waits for a bookie longer than the
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
        """Yield bodies in the order of their entries, in batches of about 1 MB; a few batches are read ahead.

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
                    # Requests are sent before the caller works on these bodies, so that both overlap.
                    fetch.send()
                    yield bodies
                # Only when everything before it was handed out: the caller keeps what could be read.
                elif stream.error:
                    raise stream.error
                else:
                    fetch.poll()
        finally:
            # A caller that stops early leaves requests in flight, and their answers must not accumulate.
            stream.wanted = False

    def read_entry(self, ledger_id: int, metadata: LedgerMetadata, entry_id: int) -> bytes:
        """Return the body of one entry; raises as `entries` does."""
        return next(self.entries(ledger_id, metadata, entry_id, entry_id))[0]

    def read_many(
        self, ledgers: Iterable[tuple[int, LedgerMetadata]], firsts: Mapping[int, int] = _FROM_BEGIN
    ) -> Generator[tuple[int, list[bytes] | StoreError]]:
        """Yield all entries of closed ledgers, many ledgers in flight at once; for ledgers that fit into memory.

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
    """Take the bodies received from `due` on, without a gap; about one chunk of them, unless all are wanted."""
    bodies = stream.ready.pop(due, None)
    if bodies is None:
        return []
    while (whole or len(bodies) < stream.chunk) and (more := stream.ready.pop(due + len(bodies), None)):
        bodies += more
    return bodies


class LedgerStream:
    """Entries of one ledger that are being read.

    Args:
        ledger_id: the ledger.
        metadata: where its entries lie.
        first: the first entry wanted.
        last: the last one.

    Attributes:
        ready: received bodies, by the first one's entry id.
        missing: number of bodies that have not been received.
        unrequested: the first entry that no request covers yet.
        chunk: entries of one request.
        error: why it cannot be read.
        wanted: False once no caller waits for it any more.
        quarantined: bookies that lacked an entry or gave a bad one; they are asked last.
    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, first: int, last: int) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.last = last
        self.ready: dict[int, list[bytes]] = {}
        self.missing = last - first + 1
        self.unrequested = first
        self.entry_size = (metadata.entry_size or _USUAL_ENTRY) + _OVERHEAD
        self.chunk = max(1, min(_TARGET // self.entry_size, _MOST_ENTRIES))
        self.error: StoreError | None = None
        self.wanted = True
        self.quarantined: set[str] = set()


@dataclasses.dataclass(slots=True)
class _Range:
    """Consecutive entries in one segment, and what bookies said when they were asked for them."""

    stream: LedgerStream
    first: int
    count: int
    refusals: dict[str, Refused]


class Fetch:
    """Requests for any number of ledgers, in flight at once on the bookies of one cluster.

    Args:
        bookies: the bookies.
        verify: check ids and digests; without it, whatever a bookie gives is taken.
    """

    def __init__(self, bookies: Bookies, *, verify: bool = True) -> None:
        self._bookies = bookies
        self._verify = verify
        self._unsent: deque[_Range] = deque()

    def request_chunk(self, stream: LedgerStream) -> None:
        """Ask for a stream's next entries; they come in later turns."""
        metadata, first = stream.metadata, stream.unrequested
        end = min(first + stream.chunk, stream.last + 1)
        # A request stays within one segment, since the next one lies on other bookies.
        for segment in metadata.segments:
            if first < segment.first_entry < end:
                end = segment.first_entry
        stream.unrequested = end
        if metadata.ensemble_size == metadata.write_quorum:
            self._unsent.append(_Range(stream, first, end - first, {}))
        else:
            # Consecutive entries lie on different bookies, so that a batch would end at once.
            self._unsent.extend(_Range(stream, entry, 1, {}) for entry in range(first, end))

    def send(self) -> None:
        """Send what was requested, as far as the sockets take it."""
        while self._unsent:
            requested = self._unsent.popleft()
            if requested.stream.wanted and not requested.stream.error:
                self._send(requested)
        self._bookies.loop.send()

    def poll(self) -> None:
        """Send, wait for something to arrive, and ask again where a bookie had no valid copy."""
        self.send()
        # A refusal that came while sending leaves something to send; waiting now could wait for no answer at all.
        if not self._unsent:
            self._bookies.loop.poll()
        self.send()

    def _send(self, requested: _Range) -> None:
        stream = requested.stream
        for bookie_id in self._candidates(requested):
            try:
                batch = requested.count > 1 and self._bookies.reads_batches(
                    bookie_id, stream.ledger_id, requested.first
                )
                connection = self._bookies.connection(bookie_id)
            except StoreError as cause:
                code = wire_v2.DENIED if isinstance(cause, StoreDenied) else wire_v2.LOST
                requested.refusals[bookie_id] = Refused(code, str(cause))
                continue
            if batch:
                on_answer = partial(self._answered, requested, bookie_id)
                connection.read_batch(stream.ledger_id, requested.first, requested.count, _LARGEST_ANSWER, on_answer)
                return
            for entry in range(requested.first, requested.first + requested.count):
                single = _Range(stream, entry, 1, {**requested.refusals})
                connection.read(stream.ledger_id, entry, partial(self._answered, single, bookie_id))
            return
        stream.error = _unreadable(requested)

    def _candidates(self, requested: _Range) -> list[str]:
        """Return replicas not asked yet, good ones first."""
        stream = requested.stream
        replicas = stream.metadata.replicas(requested.first)
        if requested.count > 1:
            # A ledger is read from one replica, and another ledger from the next: bookies read ahead, and alternating
            # would make each of them read everything.
            offset = stream.ledger_id % len(replicas)
            replicas = sorted(replicas)[offset:] + sorted(replicas)[:offset]
        remaining = [bookie_id for bookie_id in replicas if bookie_id not in requested.refusals]
        if stream.quarantined or any(self._bookies.quarantined(bookie_id) for bookie_id in remaining):
            remaining.sort(
                key=lambda bookie_id: (bool(self._bookies.quarantined(bookie_id)), bookie_id in stream.quarantined)
            )
        return remaining

    def _answered(self, requested: _Range, bookie_id: str, answer: list[bytes] | Refused) -> None:
        stream = requested.stream
        # A generator that was closed, or failed, leaves requests in flight; their answers have no caller.
        if not stream.wanted or stream.error:
            return
        if isinstance(answer, Refused):
            if requested.count > 1 and answer.code in _OF_ENTRY:
                self._ask_others(requested, 0, bookie_id, answer)
            else:
                requested.refusals[bookie_id] = answer
                self._unsent.append(requested)
            return
        valid, wrong = len(answer), ""
        if self._verify:
            metadata = stream.metadata
            valid, wrong = count_valid(answer, stream.ledger_id, requested.first, metadata.digest, metadata.password)
        # More entries than were asked for prove nothing: taken as it is, it would overwrite entries of other requests.
        if valid > requested.count or not answer:
            valid, wrong = 0, f"gave {len(answer)} entries where {requested.count} were asked for"
        if valid:
            stream.ready[requested.first] = answer if valid == len(answer) else answer[:valid]
            stream.missing -= valid
        if wrong:
            self._ask_others(requested, valid, bookie_id, Refused(wire_v2.OK, f"has a bad copy: {wrong}"))
        elif valid < requested.count:
            # The answer was full, or the bookie lacks the next entry. Asking it for that one alone tells which.
            self._unsent.append(
                _Range(stream, requested.first + valid, requested.count - valid, {**requested.refusals})
            )

    def _ask_others(self, requested: _Range, index: int, bookie_id: str, refusal: Refused) -> None:
        """Ask another replica for one entry; this one may have the entries after it."""
        stream = requested.stream
        stream.quarantined.add(bookie_id)
        bad = requested.first + index
        self._unsent.append(_Range(stream, bad, 1, {**requested.refusals, bookie_id: refusal}))
        if following := requested.count - index - 1:
            self._unsent.append(_Range(stream, bad + 1, following, {**requested.refusals}))


def _unreadable(requested: _Range) -> StoreError:
    refusals = requested.refusals
    said = "; ".join(f"{bookie_id} {refusal.reason}" for bookie_id, refusal in refusals.items())
    ledger, entry = requested.stream.ledger_id, requested.first
    text = f"entry {entry} of ledger {ledger} cannot be read: {said}"
    codes = {refusal.code for refusal in refusals.values()}
    # One silent bookie may have what the others lack; only when all have answered it is certain that none has it.
    if codes & {wire_v2.LOST, wire_v2.TOO_MANY}:
        return StoreUnreachable(f"{text}; try again when they answer", ledger_id=ledger, entry_id=entry)
    if wire_v2.DENIED in codes:
        return StoreDenied(f"{text}; give credentials that may", ledger_id=ledger, entry_id=entry)
    return LedgerUnreadable(f"{text}; no replica has a valid copy", ledger_id=ledger, entry_id=entry)
