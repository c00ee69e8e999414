"""Close a ledger whose writer is gone, or shall be stopped: BookKeeper's ledger recovery.

IN_RECOVERY by compare-and-set; fence the last ensemble; read forward from the last add confirmed until an entry was
acknowledged by nobody; write what was found to its whole write quorum again; CLOSED by compare-and-set. Any number of
clients may do this at once, BookKeeper's own among them: adding an entry again changes nothing, and one of them closes.

Source: LedgerRecoveryOp, ReadLastConfirmedOp, PendingReadOp and ReadOnlyLedgerHandle of BookKeeper 4.18.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.digests import HEADER, EntryCorrupt, master_key, read_header, verify_entry
from clients.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreError, StoreUnreachable

# How far the writer was ahead of its confirmations is not known; asking entry by entry would cost a round trip each.
_ENTRIES_AT_ONCE = 64
# Every replica is asked for every entry, and all answers are in memory at once.
_BYTES_AT_ONCE = 1 << 20
_ABSENT = {wire_v2.NO_ENTRY, wire_v2.NO_LEDGER}


class Questions(NamedTuple):
    """Bookies and entries that they are asked for; each read fences, by this master key of the ledger."""

    ledger_id: int
    key: bytes
    wanted: tuple[tuple[str, int], ...]


class Additions(NamedTuple):
    """Consecutive entries to write to all their replicas but some."""

    ledger_id: int
    metadata: LedgerMetadata
    first_entry: int
    bodies: Sequence[bytes]
    leave_out: frozenset[str]


class Added(NamedTuple):
    """What came of `Additions`: the bookie that failed and why, or neither."""

    failed: str | None = None
    cause: StoreUnreachable | BookieNotWritable | None = None


Answers = dict[tuple[str, int], list[bytes] | Refused]
Steps = Generator[Questions | Additions, Answers | Added, LedgerMetadata]
"""Yields what bookies shall be asked or given, gets what came of it, and returns the metadata to close with."""


class Recovery:
    """What is done between the two changes of one ledger's metadata; sends nothing by itself.

    Args:
        bookies: the ledger's.
        ledger_id: the ledger.
        metadata: as they stand, IN_RECOVERY.
    """

    def __init__(self, bookies: Bookies, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._bookies = bookies
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._key = master_key(metadata.password)
        self._segments = list(metadata.segments)
        self._silent: set[str] = set()
        self._refusing: dict[str, str] = {}
        self._at_once = _ENTRIES_AT_ONCE

    def run(self) -> Steps:
        """Fence, find the end, and write again what lies before it.

        Raises:
            StoreUnreachable: too many of its bookies do not answer to fence it, to decide on its end, or to write it.
            BookieNotWritable: too many of them do not take entries.
            LedgerUnreadable: an entry before its end has no valid copy.
        """
        confirmed = yield from self._fence()
        length = 0
        # Each entry tells the length of the ledger up to itself; where nothing follows, this one has the last word.
        if confirmed >= 0:
            body = yield from self._read_confirmed(confirmed)
            length = read_header(body).length
            self._at_once = max(1, min(_ENTRIES_AT_ONCE, _BYTES_AT_ONCE // len(body)))
        last = confirmed
        while bodies := (yield from self._read_forward(last + 1)):
            yield from self._write_again(last + 1, bodies)
            last += len(bodies)
            length = read_header(bodies[-1]).length
            # An entry in between was never acknowledged, so nothing behind it was either.
            if len(bodies) < self._at_once:
                break
        return replace(
            self._metadata,
            state=LedgerState.CLOSED,
            last_entry=last,
            length=length,
            segments=tuple(self._segments),
        )

    def _fence(self) -> Generator[Questions | Additions, Answers | Added, int]:
        """Stop the writer; returns the last entry that is known to be confirmed.

        No entry can be acknowledged any more once in every write set fewer bookies than the ack quorum are unfenced.
        """
        first, ensemble = self._metadata.segments[-1]
        answers = yield from self._ask((bookie_id, wire_v2.LAST_ENTRY) for bookie_id in dict.fromkeys(ensemble))
        unfenced = {
            bookie_id
            for (bookie_id, _), answer in answers.items()
            if isinstance(answer, Refused) and answer.code not in _ABSENT
        }
        # Entries are striped, so each position of the ensemble begins another write set.
        for start in range(len(ensemble)):
            write_set = {ensemble[(start + number) % len(ensemble)] for number in range(self._metadata.write_quorum)}
            if len(write_set & unfenced) >= self._metadata.ack_quorum:
                said = _said((bookie_id, answers[bookie_id, wire_v2.LAST_ENTRY]) for bookie_id in sorted(unfenced))
                raise StoreUnreachable(
                    f"ledger {self._ledger_id} cannot be fenced: {said}; start these bookies, then try again",
                    ledger_id=self._ledger_id,
                )
        # Earlier segments were confirmed before the last one was begun.
        confirmed = first - 1
        for answer in answers.values():
            if not isinstance(answer, Refused):
                confirmed = max(confirmed, self._confirmed_by(answer[0]))
        return confirmed

    def _confirmed_by(self, body: bytes) -> int:
        """What an entry says of those before it; nothing if it is corrupt."""
        if len(body) < HEADER.size:
            return -1
        header = read_header(body)
        return -1 if self._flaw(body, header.entry_id) else header.last_add_confirmed

    def _read_confirmed(self, entry: int) -> Generator[Questions | Additions, Answers | Added, bytes]:
        """An entry that some replica must have."""
        answers = yield from self._ask((bookie_id, entry) for bookie_id in self._metadata.replicas(entry))
        for answer in answers.values():
            if not isinstance(answer, Refused) and not self._flaw(answer[0], entry):
                return answer[0]
        # Says of each replica what is wrong with it.
        return LedgerReader(self._bookies).read_entry(self._ledger_id, self._metadata, entry)

    def _read_forward(self, first: int) -> Generator[Questions | Additions, Answers | Added, list[bytes]]:
        """The entries from `first` on, as far as they may have been acknowledged, and not too many at once."""
        entries = range(first, first + self._at_once)
        answers = yield from self._ask(
            (bookie_id, entry) for entry in entries for bookie_id in self._metadata.replicas(entry)
        )
        bodies: list[bytes] = []
        for entry in entries:
            body = self._decide(
                entry, {bookie_id: answers[bookie_id, entry] for bookie_id in self._metadata.replicas(entry)}
            )
            if body is None:
                break
            bodies.append(body)
        return bodies

    def _decide(self, entry: int, answers: dict[str, list[bytes] | Refused]) -> bytes | None:
        """The entry, or None if so many bookies lack it that it was never acknowledged."""
        flaws: dict[str, Refused] = {}
        for bookie_id, answer in answers.items():
            if isinstance(answer, Refused):
                flaws[bookie_id] = answer
            elif flaw := self._flaw(answer[0], entry):
                flaws[bookie_id] = flaw
            else:
                return answer[0]
        # With so many bookies that lack it, too few are left that could have made up an ack quorum.
        absent = sum(flaw.code in _ABSENT for flaw in flaws.values())
        if absent >= self._metadata.write_quorum - self._metadata.ack_quorum + 1:
            return None
        text = (
            f"whether entry {entry} of ledger {self._ledger_id} was acknowledged cannot be told: {_said(flaws.items())}"
        )
        if any(flaw.code == wire_v2.LOST for flaw in flaws.values()):
            hint = f"{text}; start these bookies, then try again"
            raise StoreUnreachable(hint, ledger_id=self._ledger_id, entry_id=entry)
        raise LedgerUnreadable(text, ledger_id=self._ledger_id, entry_id=entry)

    def _flaw(self, body: bytes, entry: int) -> Refused | None:
        try:
            verify_entry(body, self._ledger_id, entry, self._metadata.digest, self._metadata.password)
        except EntryCorrupt as cause:
            return Refused(wire_v2.OK, f"has a bad copy: {cause}")
        return None

    def _write_again(
        self, first: int, bodies: Sequence[bytes]
    ) -> Generator[Questions | Additions, Answers | Added, None]:
        """Write to the last ensemble, with those replaced that cannot be written; what they had is not changed."""
        while True:
            self._replace_silent(first)
            ensemble = self._segments[-1].ensemble
            target = replace(self._metadata, segments=tuple(self._segments))
            for entry in range(first, first + min(len(bodies), len(ensemble))):
                if len(set(target.replicas(entry)) - self._silent) < self._metadata.ack_quorum:
                    raise self._too_few(entry, target.replicas(entry))
            added = yield Additions(self._ledger_id, target, first, bodies, frozenset(self._silent))
            assert isinstance(added, Added)
            if added.cause is None:
                return
            # Only a bookie that is new among the failed can be replaced; else the loop would never end.
            if added.failed is None or added.failed in self._silent:
                raise added.cause
            self._silent.add(added.failed)
            if isinstance(added.cause, BookieNotWritable):
                self._refusing[added.failed] = str(added.cause)

    def _too_few(self, entry: int, replicas: Iterable[str]) -> StoreError:
        """Why an entry cannot be written again: it is another matter whether bookies are away or full."""
        text = (
            f"entry {entry} of ledger {self._ledger_id} cannot be written to its ack quorum of "
            f"{self._metadata.ack_quorum}, and there is no other writable bookie"
        )
        if refusals := [self._refusing[one] for one in replicas if one in self._refusing]:
            text = f"{text}: {'; '.join(refusals)}; free its disks or start another bookie, then try again"
            return BookieNotWritable(text, ledger_id=self._ledger_id, entry_id=entry)
        return StoreUnreachable(f"{text}; start one, then try again", ledger_id=self._ledger_id, entry_id=entry)

    def _replace_silent(self, first: int) -> None:
        ensemble = list(self._segments[-1].ensemble)
        spare = [one for one in self._bookies.writable() if one not in ensemble and one not in self._silent]
        for place, bookie_id in enumerate(ensemble):
            if bookie_id in self._silent and spare:
                ensemble[place] = spare.pop(0)
        if tuple(ensemble) == self._segments[-1].ensemble:
            return
        # Two segments must not begin with the same entry; nothing lies in the one that would be replaced.
        if self._segments[-1].first_entry == first:
            self._segments.pop()
        self._segments.append(Segment(first, tuple(ensemble)))

    def _ask(self, wanted: Iterable[tuple[str, int]]) -> Generator[Questions | Additions, Answers | Added, Answers]:
        """Ask for entries with fencing, all at once; returns what each bookie said of each."""
        # Every read fences, so that a bookie which was silent before is fenced with its first answer.
        answers = yield Questions(self._ledger_id, self._key, tuple(wanted))
        assert not isinstance(answers, Added)
        self._silent |= {
            bookie_id
            for (bookie_id, _), answer in answers.items()
            if isinstance(answer, Refused) and answer.code == wire_v2.LOST
        }
        return answers


def _said(flaws: Iterable[tuple[str, list[bytes] | Refused]]) -> str:
    return "; ".join(f"{bookie_id} {flaw.reason}" for bookie_id, flaw in flaws if isinstance(flaw, Refused))
