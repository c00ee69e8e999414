"""Close a ledger whose writer is gone, or must be stopped: BookKeeper's ledger recovery.

IN_RECOVERY by compare-and-set; fence the last ensemble; read forward from the last add confirmed up to the first entry
that no bookie has acknowledged; write those entries to their whole write quorum again; CLOSED by compare-and-set. Any
number of clients may do this at once, including BookKeeper's own: adding an entry again changes nothing, and only one
of them closes the ledger.

Source: LedgerRecoveryOp, ReadLastConfirmedOp, PendingReadOp and ReadOnlyLedgerHandle of BookKeeper 4.18.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from clients.bookkeeper import wire_v2
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import unreadable
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.digests import HEADER, EntryCorrupt, master_key, read_header, verify_entry
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreConflict, StoreError, StoreUnreachable

# How far the writer was ahead of its confirmations is not known; asking entry by entry would cost a round trip each.
_ENTRIES_AT_ONCE = 64
# Every replica is asked for every entry, and all answers are in memory at once.
_BYTES_AT_ONCE = 1 << 20
_ABSENT = {wire_v2.NO_ENTRY, wire_v2.NO_LEDGER}
Answers = dict[tuple[str, int], list[bytes] | Refused]
# Each lost round means that another client made progress; so many in a row mean that they undo each other.
_ROUNDS = 20
# What they read forward is in memory at once, from all replicas.
_LEDGERS_AT_ONCE = 32


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
    """Result of `Additions`: the bookie that failed and why, or neither."""

    failed: str | None = None
    cause: StoreUnreachable | BookieNotWritable | None = None


Steps = Generator[Questions | Additions, Answers | Added, LedgerMetadata]
"""Yields requests to bookies, receives their results, and returns the metadata to close with."""


class Recovery:
    """Steps between the two changes of one ledger's metadata; sends nothing by itself.

    Args:
        bookies: the ledger's.
        ledger_id: the ledger.
        metadata: current metadata, IN_RECOVERY.
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
            # mutant: bookie-cluster/the-end-is-what-was-confirmed, bookie-cluster/the-end-is-not-written-again
            yield from self._write_again(last + 1, bodies)
            last += len(bodies)
            length = read_header(bodies[-1]).length
            # An entry in between was never acknowledged, so no later one was either.
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
            # mutant: bookie-cluster/a-silent-bookie-counts-as-fenced
            if isinstance(answer, Refused) and answer.code not in _ABSENT
        }
        # Entries are striped, so each position of the ensemble begins another write set.
        for start in range(len(ensemble)):
            write_set = {ensemble[(start + number) % len(ensemble)] for number in range(self._metadata.write_quorum)}
            # mutant: bookie-cluster/a-writer-that-continues-is-closed
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
        """Return what an entry reports about earlier entries; nothing if it is corrupt."""
        if len(body) < HEADER.size:
            return -1
        header = read_header(body)
        return -1 if self._flaw(body, header.entry_id) else header.last_add_confirmed

    def _read_confirmed(self, entry: int) -> Generator[Questions | Additions, Answers | Added, bytes]:
        """Yield an entry that some replica must have."""
        answers = yield from self._ask((bookie_id, entry) for bookie_id in self._metadata.replicas(entry))
        for answer in answers.values():
            if not isinstance(answer, Refused) and not self._flaw(answer[0], entry):
                return answer[0]
        # Says of each replica what is wrong with it.
        return LedgerReader(self._bookies).read_entry(self._ledger_id, self._metadata, entry)

    def _read_forward(self, first: int) -> Generator[Questions | Additions, Answers | Added, list[bytes]]:
        """Yield the entries from `first` on, as far as they may have been acknowledged, and not too many at once."""
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
        """Return the entry, or None if so many bookies lack it that it was never acknowledged."""
        flaws: dict[str, Refused] = {}
        for bookie_id, answer in answers.items():
            if isinstance(answer, Refused):
                flaws[bookie_id] = answer
            elif flaw := self._flaw(answer[0], entry):  # mutant: bookie-cluster/damaged-entries-are-taken
                flaws[bookie_id] = flaw
            else:
                return answer[0]
        # With so many bookies that lack it, too few are left that could have made up an ack quorum.
        # mutant: bookie-cluster/a-silent-bookie-counts-as-without-the-entry
        absent = sum(flaw.code in _ABSENT for flaw in flaws.values())
        # mutant: bookie-cluster/one-that-lacks-an-entry-is-enough
        if absent >= self._metadata.write_quorum - self._metadata.ack_quorum + 1:
            return None
        text = f"whether entry {entry} of ledger {self._ledger_id} was acknowledged is unknown: {_said(flaws.items())}"
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
                # mutant: bookie-cluster/fewer-than-the-ack-quorum-are-enough
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
        """Return why an entry cannot be written again: it is another matter whether bookies are away or full."""
        text = (
            f"entry {entry} of ledger {self._ledger_id} cannot be written to its ack quorum of "
            f"{self._metadata.ack_quorum}, and there is no other writable bookie"
        )
        if refusals := [self._refusing[replica] for replica in replicas if replica in self._refusing]:
            text = f"{text}: {'; '.join(refusals)}; free its disks or start another bookie, then try again"
            return BookieNotWritable(text, ledger_id=self._ledger_id, entry_id=entry)
        return StoreUnreachable(f"{text}; start one, then try again", ledger_id=self._ledger_id, entry_id=entry)

    def _replace_silent(self, first: int) -> None:
        ensemble = list(self._segments[-1].ensemble)
        spare = [bookie for bookie in self._bookies.writable() if bookie not in ensemble and bookie not in self._silent]
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


def recover_batch(source: Cluster, ids: Sequence[int]) -> list[CopyOutcome]:
    """Recover those of these ledgers that are open, which stops their writers; closed ones are left as they are.

    Returns:
        The ledgers that could not be recovered, `unreadable`, `not recovered` or `deleted`; no others.

    Raises:
        StoreError: a store failed, or no bookie answers.
    """
    failed: list[CopyOutcome] = []
    records = source.directory.read(ids)
    unclosed = [record.ledger_id for record in records if record is not None and not record.metadata.closed]
    for ledger_id, result in recover_ledgers(source.directory, source.bookies, unclosed).items():
        if isinstance(result, (BookieNotWritable, StoreConflict)) and source.directory.read([ledger_id]) != [None]:
            # Neither says anything of the entries, and both may pass.
            failed.append(CopyOutcome(ledger_id, Verdict.NOT_RECOVERED, detail=str(result), transient=True))
        elif isinstance(result, StoreError):
            failed.append(unreadable(source, ledger_id, result))
    return failed


def recover_ledgers(
    directory: LedgerDirectoryWriter, bookies: Bookies, ids: Iterable[int]
) -> dict[int, LedgerRecord | StoreError]:
    """Close ledgers at the last entry that any of their readers may have seen; returns each closed, or why it is not.

    A closed one is returned as it is. A bookie of the last ensemble that does not answer is replaced by a writable one
    for the entries that are written again, or left out if there is none and the ack quorum is reached without it.

    Errors of single ledgers are:
        StoreConflict: the ledger does not exist, or others keep changing it.
        StoreUnreachable: too many of its bookies do not answer to fence it, to decide on its end, or to write it.
        BookieNotWritable: too many of them do not take entries.
        LedgerUnreadable: an entry before its end has no valid copy.

    Raises:
        StoreError: the metadata cannot be read or written.
    """
    results: dict[int, LedgerRecord | StoreError] = {}
    wanted = list(ids)
    for start in range(0, len(wanted), _LEDGERS_AT_ONCE):
        results |= _recover_some(directory, bookies, wanted[start : start + _LEDGERS_AT_ONCE])
    return results


def _recover_some(
    directory: LedgerDirectoryWriter, bookies: Bookies, ids: Sequence[int]
) -> dict[int, LedgerRecord | StoreError]:
    results: dict[int, LedgerRecord | StoreError] = {}
    remaining = list(ids)
    for _ in range(_ROUNDS):
        unclosed: list[LedgerRecord] = []
        for ledger_id, record in zip(remaining, directory.read(remaining), strict=True):
            if record is None:
                text = f"ledger {ledger_id} does not exist; nothing can be recovered"
                results[ledger_id] = StoreConflict(text, ledger_id=ledger_id)
            elif record.metadata.closed:
                results[ledger_id] = record
            else:
                unclosed.append(record)
        remaining = [record.ledger_id for record in unclosed]
        if not remaining:
            return results
        try:
            results |= _recover_read(directory, bookies, unclosed)
        except StoreConflict:
            continue  # Another client changed one of them first; its result counts.
        finally:
            remaining = [ledger_id for ledger_id in remaining if ledger_id not in results]
    for ledger_id in remaining:
        text = f"others keep changing ledger {ledger_id}, so that it cannot be recovered; try again"
        results[ledger_id] = StoreConflict(text, ledger_id=ledger_id)
    return results


def _recover_read(
    directory: LedgerDirectoryWriter, bookies: Bookies, records: Sequence[LedgerRecord]
) -> dict[int, StoreError]:
    """Return one round: close these ledgers; returns those that cannot be, the next reading shows the others closed.

    Raises:
        StoreConflict: another client has changed one of them; those that could be closed were.
    """
    # Before the fence, as BookKeeper does it: a writer that finds IN_RECOVERY knows that it has been replaced.
    begun = [(record.ledger_id, _in_recovery(record.metadata), record.version) for record in records]
    opened = [
        recovery for recovery, record in zip(begun, records, strict=True) if record.metadata.state is LedgerState.OPEN
    ]
    directory.update(opened)
    versions = {
        ledger_id: version + (record.metadata.state is LedgerState.OPEN)
        for (ledger_id, _, version), record in zip(begun, records, strict=True)
    }
    ends = _Together(bookies).run({ledger: Recovery(bookies, ledger, metadata).run() for ledger, metadata, _ in begun})
    closed = [(ledger, end, versions[ledger]) for ledger, end in ends.items() if isinstance(end, LedgerMetadata)]
    directory.update(closed)
    return {ledger: end for ledger, end in ends.items() if isinstance(end, StoreError)}


def _in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    # As BookKeeper writes it: only the client that created the ledger has a token other than 0.
    return replace(metadata, state=LedgerState.IN_RECOVERY, token=None if metadata.token is None else 0)


class _Together:
    """Carries out the steps of many recoveries, each step of all of them at once."""

    def __init__(self, bookies: Bookies) -> None:
        self._bookies = bookies
        self._ends: dict[int, LedgerMetadata | StoreError] = {}

    def run(self, recoveries: dict[int, Steps]) -> dict[int, LedgerMetadata | StoreError]:
        """Return the metadata to close each with, or why it cannot be closed."""
        wanted = {ledger: step for ledger, steps in recoveries.items() if (step := self._advance(ledger, steps, None))}
        while wanted:
            done = self._ask([step for step in wanted.values() if isinstance(step, Questions)])
            done |= self._add([step for step in wanted.values() if isinstance(step, Additions)])
            wanted = {
                ledger: step for ledger in wanted if (step := self._advance(ledger, recoveries[ledger], done[ledger]))
            }
        return self._ends

    def _advance(self, ledger_id: int, steps: Steps, result: Answers | Added | None) -> Questions | Additions | None:
        try:
            return next(steps) if result is None else steps.send(result)
        except StopIteration as end:
            self._ends[ledger_id] = end.value
        except (LedgerUnreadable, StoreUnreachable, BookieNotWritable) as cause:
            self._ends[ledger_id] = cause
        return None

    def _ask(self, steps: Sequence[Questions]) -> dict[int, Answers | Added]:
        answers: dict[int, Answers] = {step.ledger_id: {} for step in steps}
        for step in steps:
            results = answers[step.ledger_id]
            for bookie_id, entry in step.wanted:
                try:
                    connection = self._bookies.connection(bookie_id)
                except StoreError as cause:
                    results[bookie_id, entry] = Refused(wire_v2.LOST, str(cause))
                else:
                    take = partial(results.__setitem__, (bookie_id, entry))
                    connection.read(step.ledger_id, entry, take, fence_key=step.key)
        while any(len(answers[step.ledger_id]) < len(step.wanted) for step in steps):
            self._bookies.loop.poll()
        return {**answers}

    def _add(self, steps: Sequence[Additions]) -> dict[int, Answers | Added]:
        if not steps:
            return {}
        if len({step.leave_out for step in steps}) == 1 and self._write(steps).cause is None:
            return {step.ledger_id: Added() for step in steps}
        # What a bookie refuses is one ledger's trouble: each is written by itself, which changes nothing of the others.
        return {step.ledger_id: self._write([step]) for step in steps}

    def _write(self, steps: Sequence[Additions]) -> Added:
        writer = LedgerWriter(self._bookies, leave_out=steps[0].leave_out, recovering=True)
        try:
            for step in steps:
                writer.add(step.ledger_id, step.metadata, step.first_entry, step.bodies)
            writer.flush()
        except (StoreUnreachable, BookieNotWritable) as cause:
            return Added(writer.failed, cause)
        return Added()
