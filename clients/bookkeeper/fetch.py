"""Ask bookies for ranges of entries, and the next replica where one does not give a valid copy."""

from __future__ import annotations

import dataclasses
from collections import deque
from functools import partial

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.digests import count_valid
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.errors import LedgerUnreadable, StoreDenied, StoreError, StoreUnreachable

# A bookie builds a whole batch before it sends a byte: a chunk is large enough to make requests rare, and small enough
# to keep its disk and the network busy at the same time.
_TARGET = 1 << 20
# Entries may be larger than the average by which chunks are sized.
_LARGEST_ANSWER = 4 << 20
_MOST_ENTRIES = 4096
# An open ledger's metadata tell no length.
_USUAL_ENTRY = 4096
_OVERHEAD = 64
# These say something of one entry; everything else says something of the bookie.
_OF_ENTRY = {wire_v2.NO_ENTRY, wire_v2.NO_LEDGER, wire_v2.IO_ERROR}


class LedgerStream:
    """Entries of one ledger that are being read.

    Args:
        ledger_id: the ledger.
        metadata: where its entries lie.
        first: the first entry wanted.
        last: the last one.

    Attributes:
        ready: bodies that have come, by the first one's entry id.
        missing: how many have not.
        unrequested: the first entry that no request covers yet.
        chunk: entries of one request.
        error: why it cannot be read.
        wanted: False once nobody waits for it any more.
        quarantined: bookies that lacked an entry or gave a bad one; they are asked last.
    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, first: int, last: int) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.last = last
        self.ready: dict[int, list[bytes]] = {}
        self.missing = last - first + 1
        self.unrequested = first
        known = metadata.length // (metadata.last_entry + 1) if metadata.last_entry >= 0 else _USUAL_ENTRY
        self.entry_size = known + _OVERHEAD
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
            part = self._unsent.popleft()
            if part.stream.wanted and not part.stream.error:
                self._send(part)
        self._bookies.loop.send()

    def poll(self) -> None:
        """Send, wait for something to arrive, and ask again where a bookie had no valid copy."""
        self.send()
        # A refusal that came while sending leaves something to send; waiting now could wait for nobody.
        if not self._unsent:
            self._bookies.loop.poll()
        self.send()

    def _send(self, part: _Range) -> None:
        stream = part.stream
        for bookie_id in self._candidates(part):
            try:
                batch = part.count > 1 and self._bookies.reads_batches(bookie_id, stream.ledger_id, part.first)
                connection = self._bookies.connection(bookie_id)
            except StoreError as cause:
                code = wire_v2.DENIED if isinstance(cause, StoreDenied) else wire_v2.LOST
                part.refusals[bookie_id] = Refused(code, str(cause))
                continue
            if batch:
                on_answer = partial(self._answered, part, bookie_id)
                connection.read_batch(stream.ledger_id, part.first, part.count, _LARGEST_ANSWER, on_answer)
                return
            for entry in range(part.first, part.first + part.count):
                single = _Range(stream, entry, 1, {**part.refusals})
                connection.read(stream.ledger_id, entry, partial(self._answered, single, bookie_id))
            return
        stream.error = _unreadable(part)

    def _candidates(self, part: _Range) -> list[str]:
        """Replicas not asked yet, good ones first."""
        stream = part.stream
        replicas = stream.metadata.replicas(part.first)
        if part.count > 1:
            # A ledger is read from one replica, and another ledger from the next: bookies read ahead, and alternating
            # would make each of them read everything.
            offset = stream.ledger_id % len(replicas)
            replicas = sorted(replicas)[offset:] + sorted(replicas)[:offset]
        left = [bookie_id for bookie_id in replicas if bookie_id not in part.refusals]
        if stream.quarantined or any(self._bookies.quarantined(bookie_id) for bookie_id in left):
            left.sort(
                key=lambda bookie_id: (bool(self._bookies.quarantined(bookie_id)), bookie_id in stream.quarantined)
            )
        return left

    def _answered(self, part: _Range, bookie_id: str, answer: list[bytes] | Refused) -> None:
        stream = part.stream
        # A generator that was closed, or failed, leaves requests in flight; their answers belong to nobody.
        if not stream.wanted or stream.error:
            return
        if isinstance(answer, Refused):
            if part.count > 1 and answer.code in _OF_ENTRY:
                self._ask_others(part, 0, bookie_id, answer)
            else:
                part.refusals[bookie_id] = answer
                self._unsent.append(part)
            return
        valid, wrong = len(answer), ""
        if self._verify:
            metadata = stream.metadata
            valid, wrong = count_valid(answer, stream.ledger_id, part.first, metadata.digest, metadata.password)
        # More than was asked for is no proof of anything: taken as it is, it would overwrite entries of other requests.
        if valid > part.count or not answer:
            valid, wrong = 0, f"gave {len(answer)} entries where {part.count} were asked for"
        if valid:
            stream.ready[part.first] = answer if valid == len(answer) else answer[:valid]
            stream.missing -= valid
        if wrong:
            self._ask_others(part, valid, bookie_id, Refused(wire_v2.OK, f"has a bad copy: {wrong}"))
        elif valid < part.count:
            # The answer was full, or the bookie lacks the next entry. Asking it for that one alone tells which.
            self._unsent.append(_Range(stream, part.first + valid, part.count - valid, {**part.refusals}))

    def _ask_others(self, part: _Range, index: int, bookie_id: str, refusal: Refused) -> None:
        """One entry is another replica's; those behind it may well be here."""
        stream = part.stream
        stream.quarantined.add(bookie_id)
        bad = part.first + index
        self._unsent.append(_Range(stream, bad, 1, {**part.refusals, bookie_id: refusal}))
        if behind := part.count - index - 1:
            self._unsent.append(_Range(stream, bad + 1, behind, {**part.refusals}))


def _unreadable(part: _Range) -> StoreError:
    refusals = part.refusals
    said = "; ".join(f"{bookie_id} {refusal.reason}" for bookie_id, refusal in refusals.items())
    ledger, entry = part.stream.ledger_id, part.first
    text = f"entry {entry} of ledger {ledger} cannot be read: {said}"
    codes = {refusal.code for refusal in refusals.values()}
    # One silent bookie may have what the others lack; only when all have answered it is known that nobody does.
    if codes & {wire_v2.LOST, wire_v2.TOO_MANY}:
        return StoreUnreachable(f"{text}; try again when they answer", ledger_id=ledger, entry_id=entry)
    if wire_v2.DENIED in codes:
        return StoreDenied(f"{text}; give credentials that may", ledger_id=ledger, entry_id=entry)
    return LedgerUnreadable(f"{text}; no replica has a valid copy", ledger_id=ledger, entry_id=entry)
