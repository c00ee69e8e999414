"""Recover many ledgers at once: all are fenced together, read together, written together and closed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from clients.bookkeeper import wire_v2
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import unreadable
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import LedgerMetadata, LedgerState
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.recovery import Added, Additions, Answers, Questions, Recovery, Steps
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreConflict, StoreError, StoreUnreachable

# Each lost round means that somebody else got on; so many in a row mean that they undo each other.
_ROUNDS = 20
# What they read forward is in memory at once, from all replicas.
_LEDGERS_AT_ONCE = 32


def recover_batch(source: Cluster, ids: Sequence[int]) -> list[CopyOutcome]:
    """Recover those of these ledgers that are open, which stops their writers; closed ones are left as they are.

    Returns:
        The ledgers that could not be recovered, `unreadable`, `not recovered` or `deleted`; no others.

    Raises:
        StoreError: a store failed, or no bookie answers.
    """
    failed: list[CopyOutcome] = []
    standing = source.directory.read(ids)
    unclosed = [record.ledger_id for record in standing if record is not None and not record.metadata.closed]
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
    left = list(ids)
    for _ in range(_ROUNDS):
        unclosed: list[LedgerRecord] = []
        for ledger_id, record in zip(left, directory.read(left), strict=True):
            if record is None:
                text = f"ledger {ledger_id} does not exist; nothing can be recovered"
                results[ledger_id] = StoreConflict(text, ledger_id=ledger_id)
            elif record.metadata.closed:
                results[ledger_id] = record
            else:
                unclosed.append(record)
        left = [record.ledger_id for record in unclosed]
        if not left:
            return results
        try:
            results |= _recover_read(directory, bookies, unclosed)
        except StoreConflict:
            continue  # Somebody else changed one of them first; what they made of it counts.
        finally:
            left = [ledger_id for ledger_id in left if ledger_id not in results]
    for ledger_id in left:
        text = f"others keep changing ledger {ledger_id}, so that it cannot be recovered; try again"
        results[ledger_id] = StoreConflict(text, ledger_id=ledger_id)
    return results


def _recover_read(
    directory: LedgerDirectoryWriter, bookies: Bookies, records: Sequence[LedgerRecord]
) -> dict[int, StoreError]:
    """One round: close these ledgers; returns those that cannot be, the next reading shows the others closed.

    Raises:
        StoreConflict: somebody else has changed one of them; those that could be closed were.
    """
    # Before the fence, as BookKeeper does it: a writer that finds IN_RECOVERY knows that it has been replaced.
    begun = [(record.ledger_id, _in_recovery(record.metadata), record.version) for record in records]
    opened = [one for one, record in zip(begun, records, strict=True) if record.metadata.state is LedgerState.OPEN]
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
        """The metadata to close each with, or why it cannot be closed."""
        wanted = {ledger: step for ledger, one in recoveries.items() if (step := self._advance(ledger, one, None))}
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
            found = answers[step.ledger_id]
            for bookie_id, entry in step.wanted:
                try:
                    connection = self._bookies.connection(bookie_id)
                except StoreError as cause:
                    found[bookie_id, entry] = Refused(wire_v2.LOST, str(cause))
                else:
                    take = partial(found.__setitem__, (bookie_id, entry))
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
