"""Copy closed ledgers to another cluster: same id, same entry ids, same bytes, same custom metadata.

An entry's digest does not depend on bookie, cluster or ensemble, so entries are verified and forwarded as they are.
The target's metadata is created OPEN first, because bookies drop entries of ledgers that have none, and is CLOSED when
every replica of every entry was acknowledged: whoever finds it closed finds it whole. So a copy that was interrupted
shows as an open ledger, and is done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import Check, Content, ContentSum, compare_records, read_all, unreadable
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import (
    BookieNotWritable,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
)

#: Rounds of writing, each to the bookies that are writable then: one goes well, the others are for bookies that fail.
_ROUNDS = 4


class _Task(NamedTuple):
    """A ledger that is being copied: as it stands at the source, and its copy as long as that is open."""

    original: LedgerRecord
    copy: LedgerMetadata
    version: int


def copy_batch(
    source: Cluster,
    target: Cluster,
    ids: Sequence[int],
    *,
    verify: bool = True,
    check: Check = lambda _: None,
) -> list[CopyOutcome]:
    """Copy closed ledgers; what stands in the target already is compared, and never changed if it is closed.

    Args:
        source: where entries are read.
        target: where they are written; both share one event loop (`open_clusters`).
        ids: the ledgers, each once.
        verify: read back what was written, and compare it byte for byte.
        check: see `Check`.

    Returns:
        An outcome for each id, in no order. Of a ledger that cannot be read nothing is left in the target.

    Raises:
        StoreUnreachable: a store or too many bookies do not answer.
        BookieNotWritable: the target has too few writable bookies.
        StoreConflict: others keep changing the same ledgers in the target; or what `check` raises.
        StoreError: a store or a bookie failed otherwise.
    """
    outcomes: list[CopyOutcome] = []
    left: dict[int, LedgerRecord] = {}
    for ledger_id, record in zip(ids, source.directory.read(ids), strict=True):
        if record is None:
            outcomes.append(CopyOutcome(ledger_id, Verdict.DELETED))
        elif record.metadata.closed:
            left[ledger_id] = record
        else:
            outcomes.append(CopyOutcome(ledger_id, Verdict.OPEN))
    return outcomes + _BatchCopy(source, target, left, verify=verify, check=check).run()


class _BatchCopy:
    """One batch: rounds of writing until nothing is left to write, and one comparison."""

    def __init__(
        self, source: Cluster, target: Cluster, ledgers: dict[int, LedgerRecord], *, verify: bool, check: Check
    ) -> None:
        self._source, self._target = source, target
        self._originals = ledgers
        self._left = dict(ledgers)
        self._verify = verify
        self._check = check
        self._outcomes: list[CopyOutcome] = []
        # What was written, and what stood there, closed.
        self._contents: dict[int, Content] = {}
        self._standing: dict[int, LedgerRecord] = {}

    def run(self) -> list[CopyOutcome]:
        """Copy and compare; returns an outcome for each ledger."""
        for last in (False,) * (_ROUNDS - 1) + (True,):
            try:
                self._round()
            except (StoreUnreachable, BookieNotWritable, StoreConflict):
                # A bookie of the target failed, which is left out next time, or somebody else changed a ledger there.
                self._check(0)
                if last:
                    raise
            if not self._left:
                break
        else:
            first = min(self._left)
            raise StoreConflict(
                f"others keep changing ledger {first} in the target; find out who writes there", ledger_id=first
            )
        self._finish()
        return self._outcomes

    def _round(self) -> None:
        tasks = self._begin()
        failures = self._write_or_blame(tasks)
        # A ledger is closed only after every replica was acknowledged: closed is the proof that others rely on.
        left = [task for task in tasks if task.original.ledger_id in self._left]
        done = [task for task in left if task.original.ledger_id not in failures]
        self._target.directory.update([(task.original.ledger_id, _closed(task), task.version) for task in done])
        for task in done:
            del self._left[task.original.ledger_id]
        for task in left:
            if cause := failures.get(task.original.ledger_id):
                self._give_up(task, unreadable(self._source, task.original.ledger_id, cause))

    def _begin(self) -> list[_Task]:
        """Create open metadata in the target, or take over what an interrupted copy left there."""
        directory = self._target.directory
        missing: list[LedgerRecord] = []
        tasks: list[_Task] = []
        for original, standing in zip(self._left.copy().values(), directory.read(list(self._left)), strict=True):
            if standing is None:
                missing.append(original)
            elif standing.metadata.closed:
                self._standing[original.ledger_id] = standing
                del self._left[original.ledger_id]
            elif _begun_from(original.metadata, standing.metadata):
                tasks.append(_Task(original, standing.metadata, standing.version))
            else:
                self._refuse(original, "an open ledger with other settings or custom metadata stands in the target")
        writable = self._target.bookies.writable()
        begun = [_Task(one, _open_copy(one, writable), 0) for one in missing]
        created = directory.create([(task.original.ledger_id, task.copy) for task in begun])
        # What somebody else creates at this moment is looked at in the next round.
        fresh = [task for task, ours in zip(begun, created, strict=True) if ours]
        return fresh + self._take_over(tasks, writable)

    def _take_over(self, tasks: Sequence[_Task], writable: Sequence[str]) -> list[_Task]:
        """Give interrupted copies an ensemble that can be written; they are written again from their first entry."""
        kept = [task for task in tasks if _writable(task.copy, writable)]
        moved = [
            task._replace(copy=_open_copy(task.original, writable))
            for task in tasks
            if not _writable(task.copy, writable)
        ]
        items = [(task.original.ledger_id, task.copy, task.version) for task in moved]
        versions = self._target.directory.update(items)
        return kept + [task._replace(version=version) for task, version in zip(moved, versions, strict=True)]

    def _write_or_blame(self, tasks: Sequence[_Task]) -> dict[int, StoreError]:
        """Write; a ledger that the target's bookies refuse is found by halves, and given up.

        Returns:
            Ledgers that could not be read at the source, and why.
        """
        try:
            return self._write(tasks)
        except _LedgerRefused as refusal:
            if len(tasks) == 1:
                self._give_up(
                    tasks[0], CopyOutcome(tasks[0].original.ledger_id, Verdict.DIFFERENT, detail=str(refusal))
                )
                return {}
        half = len(tasks) // 2
        return self._write_or_blame(tasks[:half]) | self._write_or_blame(tasks[half:])

    def _write(self, tasks: Sequence[_Task]) -> dict[int, StoreError]:
        writer = LedgerWriter(self._target.bookies)
        by_id = {task.original.ledger_id: task for task in tasks}
        failures: dict[int, StoreError] = {}
        try:
            for ledger_id, parts in read_all(self._source, [task.original for task in tasks]):
                content = self._forward(writer, by_id[ledger_id], parts)
                if isinstance(content, Content):
                    self._contents[ledger_id] = content
                else:
                    failures[ledger_id] = content
            writer.flush()
        except (StoreDenied, StoreProtocolError) as cause:
            if writer.failed is None:
                raise
            raise _LedgerRefused(str(cause)) from cause
        return failures

    def _forward(
        self, writer: LedgerWriter, task: _Task, parts: Iterable[list[bytes] | StoreError]
    ) -> Content | StoreError:
        total = ContentSum()
        first = 0
        for part in parts:
            if isinstance(part, StoreError):
                return part
            self._check(total.add(part))
            writer.add(task.original.ledger_id, task.copy, first, part)
            first += len(part)
        return total.content()

    def _refuse(self, original: LedgerRecord, why: str) -> None:
        self._outcomes.append(CopyOutcome(original.ledger_id, Verdict.DIFFERENT, detail=why))
        del self._left[original.ledger_id]

    def _give_up(self, task: _Task, outcome: CopyOutcome) -> None:
        """Leave nothing of a copy that cannot be completed: brokers would take what is there for the whole ledger."""
        # Whoever changed it meanwhile has made it their own.
        with contextlib.suppress(StoreConflict):
            self._target.directory.delete([(task.original.ledger_id, task.version)])
        self._contents.pop(task.original.ledger_id, None)
        self._outcomes.append(outcome)
        del self._left[task.original.ledger_id]

    def _finish(self) -> None:
        """Compare what stood there, and what was written if that is wanted."""
        copies = dict(self._standing)
        written = [ledger_id for ledger_id in self._contents if ledger_id not in copies]
        if self._verify:
            # Read anew, since the comparison is to hold for what stands there, not for what was meant to.
            for ledger_id, record in zip(written, self._target.directory.read(written), strict=True):
                if record is None:
                    text = f"the copy of ledger {ledger_id} was deleted meanwhile; find out by whom"
                    raise StoreConflict(text, ledger_id=ledger_id)
                copies[ledger_id] = record
        else:
            for ledger_id in written:
                _, entries, size = self._contents[ledger_id]
                self._outcomes.append(CopyOutcome(ledger_id, Verdict.COPIED, entries, size))
        pairs = [(self._originals[ledger_id], record) for ledger_id, record in copies.items()]
        for one in compare_records(self._source, self._target, pairs, self._contents, check=self._check):
            ours = one.verdict is Verdict.EQUAL and one.ledger_id in self._contents
            self._outcomes.append(one._replace(verdict=Verdict.COPIED) if ours else one)


class _LedgerRefused(Exception):
    """A bookie of the target does not take the entries of one of the ledgers that are being written."""


def _open_copy(original: LedgerRecord, writable: Sequence[str]) -> LedgerMetadata:
    """Metadata to begin a copy with, on bookies that take turns."""
    metadata = original.metadata
    size = metadata.ensemble_size
    if len(writable) < size:
        raise BookieNotWritable(
            f"ledger {original.ledger_id} needs {size} bookies, and the target has {len(writable)} that take entries "
            f"({', '.join(writable) or 'none'}); start bookies there",
            ledger_id=original.ledger_id,
        )
    ensemble = tuple(writable[(original.ledger_id + place) % len(writable)] for place in range(size))
    return replace(metadata, state=LedgerState.OPEN, length=0, last_entry=-1, segments=(Segment(0, ensemble),))


def _closed(task: _Task) -> LedgerMetadata:
    original = task.original.metadata
    return replace(task.copy, state=LedgerState.CLOSED, length=original.length, last_entry=original.last_entry)


def _begun_from(original: LedgerMetadata, copy: LedgerMetadata) -> bool:
    """Whether an open ledger of the target is a copy that was begun from this one."""
    return _making(original) == _making(copy)


def _making(metadata: LedgerMetadata) -> tuple[object, ...]:
    quorums = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    return *quorums, metadata.digest, metadata.password, metadata.ctime, metadata.custom_map


def _writable(copy: LedgerMetadata, writable: Collection[str]) -> bool:
    """Whether an interrupted copy can be gone on with on its bookies."""
    return (
        copy.state is LedgerState.OPEN and len(copy.segments) == 1 and set(copy.segments[0].ensemble) <= set(writable)
    )
