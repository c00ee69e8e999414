"""Copy closed ledgers to another cluster: same id, same entry ids, same bytes, same custom metadata.

An entry's digest does not depend on bookie, cluster or ensemble, so entries are verified and forwarded as they are.
The target's metadata is created OPEN first, because bookies drop entries of ledgers without metadata. It is CLOSED when
every replica of every entry is acknowledged, so a closed copy is complete. An interrupted copy is an open ledger, and
is copied again; so is one that autorecovery has closed before its end.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from clients.bookkeeper import wire_v2
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import Check, Content, ContentSum, compare_records, read_all, unreadable
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.digests import read_header
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import (
    COPY_TOKEN,
    LedgerMetadata,
    LedgerState,
    Segment,
    decode_metadata,
    encode_metadata,
)
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.writer import LargestEntry, LedgerWriter
from clients.errors import (
    BookieNotWritable,
    LedgerIdRefused,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
)

#: Rounds of writing to the bookies that are writable then: one is usually enough, the others are for failing bookies.
_ROUNDS = 4


class _Task(NamedTuple):
    """A ledger that is being copied: its record at the source, and its copy as long as that is open.

    `first` is the first entry to write; earlier ones were compared.
    """

    original: LedgerRecord
    copy: LedgerMetadata
    version: int
    first: int = 0


_NOTHING: Mapping[int, Begun] = {}
_NOT_CLOSED = (
    "the target has a ledger with this id that is not closed, and not marked as a copy: it has another origin, or "
    "another client is closing it now; it was not touched"
)


def copy_batch(
    source: Cluster,
    target: Cluster,
    ids: Sequence[int],
    *,
    verify: bool = True,
    check: Check = lambda _: None,
    begun: Mapping[int, Begun] = _NOTHING,
) -> list[CopyOutcome]:
    """Copy closed ledgers; compare those that the target has already, and never change a closed one.

    Args:
        source: cluster to read from.
        target: cluster to write to; both share one event loop (`open_clusters`).
        ids: ids of the ledgers, each once.
        verify: whether to read the copies back and compare their content.
        check: see `Check`.
        begun: progress of open copies that are continued, not written and compared from their first entry.

    Returns:
        An outcome for each id, in no order. The copy of a ledger that cannot be read is removed, unless the cause may
            pass: then the open copy stays for the next attempt.

    Raises:
        StoreUnreachable: a store or too many bookies do not answer.
        BookieNotWritable: the target has too few writable bookies.
        StoreConflict: other clients keep changing the same ledgers in the target; or an error of `check`.
        StoreError: a store or a bookie failed otherwise.
    """
    outcomes: list[CopyOutcome] = []
    closed: dict[int, LedgerRecord] = {}
    for ledger_id, record in zip(ids, source.directory.read(ids), strict=True):
        if record is None:
            outcomes.append(CopyOutcome(ledger_id, Verdict.DELETED))
        elif record.metadata.closed:
            closed[ledger_id] = record
        else:
            outcomes.append(CopyOutcome(ledger_id, Verdict.OPEN))
    return outcomes + _BatchCopy(source, target, closed, verify=verify, check=check, begun=begun).run()


class _BatchCopy:
    """Copy of one batch: rounds of writing until nothing remains, and one comparison."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        ledgers: dict[int, LedgerRecord],
        *,
        verify: bool,
        check: Check,
        begun: Mapping[int, Begun],
    ) -> None:
        self._source, self._target = source, target
        self._originals = ledgers
        self._waiting = dict(ledgers)
        self._verify = verify
        self._check = check
        self._begun = begun
        self._firsts: dict[int, int] = {}
        self._outcomes: list[CopyOutcome] = []
        # Contents that were written, and closed ledgers that existed before.
        self._contents: dict[int, Content] = {}
        self._existing: dict[int, LedgerRecord] = {}

    def run(self) -> list[CopyOutcome]:
        """Copy and compare; return an outcome for each ledger."""
        for last in (False,) * (_ROUNDS - 1) + (True,):
            try:
                self._round()
            except (StoreUnreachable, BookieNotWritable, StoreConflict):
                # A bookie of the target failed and is left out next time, or another client changed a ledger there.
                self._check(0)
                if last:
                    raise
            if not self._waiting:
                break
        else:
            first = min(self._waiting)
            raise StoreConflict(
                f"others keep changing ledger {first} in the target; find out who writes there", ledger_id=first
            )
        self._finish()
        return self._outcomes

    def _round(self) -> None:
        tasks = self._begin()
        failures = self._write_or_blame(tasks)
        # A ledger is closed only after every replica is acknowledged: other steps take a closed ledger for complete.
        copying = [task for task in tasks if task.original.ledger_id in self._waiting]
        done = [task for task in copying if task.original.ledger_id not in failures]
        self._target.directory.update([(task.original.ledger_id, _closed(task), task.version) for task in done])
        for task in done:
            del self._waiting[task.original.ledger_id]
        for task in copying:
            if cause := failures.get(task.original.ledger_id):
                self._give_up(task, unreadable(self._source, task.original.ledger_id, cause))

    def _begin(self) -> list[_Task]:
        """Create open metadata in the target, or take over the copies of an interrupted attempt."""
        directory = self._target.directory
        missing: list[LedgerRecord] = []
        tasks: list[_Task] = []
        cut: list[tuple[LedgerRecord, LedgerRecord]] = []
        for original, existing in zip(self._waiting.copy().values(), directory.read(list(self._waiting)), strict=True):
            if existing is None:
                missing.append(original)
            elif existing.metadata.closed:
                if _may_be_cut_short(original.metadata, existing.metadata):
                    cut.append((original, existing))
                else:
                    self._take_as_it_is(existing)
            elif begun_from(original.metadata, existing.metadata):
                first = self._first(original, existing)
                tasks.append(_Task(original, existing.metadata, existing.version, first))
            elif _same_making(original.metadata, existing.metadata):
                # Autorecovery may be closing a copy now.
                self._refuse(original, _NOT_CLOSED, transient=True)
            else:
                self._refuse(
                    original, "the target has an open ledger with this id and other settings or custom metadata"
                )
        tasks += self._cut_short(cut)
        writable = self._target.bookies.writable()
        begun = [_Task(original, open_copy(original, writable), 0) for original in missing]
        created = directory.create([(task.original.ledger_id, task.copy) for task in begun])
        # A ledger that another client creates at this moment is checked in the next round.
        fresh = [task for task, ours in zip(begun, created, strict=True) if ours]
        return fresh + self._take_over(tasks, writable)

    def _take_as_it_is(self, existing: LedgerRecord) -> None:
        """Compare a closed ledger with the original at the end, and do not change it."""
        ledger_id = existing.ledger_id
        self._existing[ledger_id] = existing
        # What was read of its end says nothing of the whole.
        if self._firsts.get(ledger_id):
            self._contents.pop(ledger_id, None)
        del self._waiting[ledger_id]

    def _cut_short(self, pairs: Sequence[tuple[LedgerRecord, LedgerRecord]]) -> list[_Task]:
        """Return the copies that another client has closed before their end: they hold what the original begins with.

        BookKeeper's autorecovery does that if a bookie of an open ledger is down. Bookies have fenced it then, which
        does not stop our adds: see `LedgerWriter`. Other ledgers with this id are left as they are.
        """
        beginnings: list[tuple[LedgerRecord, LedgerRecord]] = []
        for original, existing in pairs:
            try:
                last = self._last_copied(original, existing.metadata)
            except StoreError as cause:
                self._end(unreadable(self._source, original.ledger_id, cause))
                continue
            if last is None:
                self._take_as_it_is(existing)
            else:
                copied = replace(existing.metadata, last_entry=last)
                beginnings.append((_beginning(original, copied), existing._replace(metadata=copied)))
        by_id = {original.ledger_id: (original, existing) for original, existing in pairs}
        tasks: list[_Task] = []
        for outcome in compare_records(self._source, self._target, beginnings, {}, check=self._check):
            original, existing = by_id[outcome.ledger_id]
            if outcome.verdict is Verdict.EQUAL:
                tasks.append(_Task(original, existing.metadata, existing.version))
            elif outcome.verdict is Verdict.DIFFERENT:
                self._take_as_it_is(existing)
            else:
                self._end(outcome)
        return tasks

    def _last_copied(self, original: LedgerRecord, copy: LedgerMetadata) -> int | None:
        """Return the last entry of a copy that was closed before its end; None if it is another ledger.

        A recovery closes a ledger at the entry that is named as the last confirmed one, with the length up to the entry
        that names it. In an unfinished copy the two differ where entries of the original replaced lost replicas: these
        name the entry that was confirmed at that time.

        Raises:
            StoreError: the original cannot be read.
        """
        ledger_id, metadata = original.ledger_id, original.metadata
        if not copy.length:
            return copy.last_entry
        reader = LedgerReader(self._source.bookies)

        @cache
        def length(entry: int) -> int:
            return read_header(reader.read_entry(ledger_id, metadata, entry)).length

        last = copy.last_entry
        if length(last) > copy.length:
            last = bisect_left(range(last), copy.length, key=length)
        return last if length(last) == copy.length else None

    def _take_over(self, tasks: Sequence[_Task], writable: Sequence[str]) -> list[_Task]:
        """Move interrupted copies to writable bookies; moved ones are written again from their first entry."""
        unmoved = [task for task in tasks if can_continue(task.copy, writable)]
        moved = [
            task._replace(copy=open_copy(task.original, writable, _closed_before(task.copy)), first=0)
            for task in tasks
            if not can_continue(task.copy, writable)
        ]
        items = [(task.original.ledger_id, task.copy, task.version) for task in moved]
        versions = self._target.directory.update(items)
        return unmoved + [task._replace(version=version) for task, version in zip(moved, versions, strict=True)]

    def _first(self, original: LedgerRecord, existing: LedgerRecord) -> int:
        begun = self._begun.get(original.ledger_id)
        # Only on the bookies on which it was compared, and only entries that the ledger still has.
        if begun is None or begun.mzxid != existing.mzxid or begun.through > original.metadata.last_entry:
            return 0
        return begun.through + 1

    def _write_or_blame(self, tasks: Sequence[_Task]) -> dict[int, StoreError]:
        """Write; find a ledger that the target's bookies refuse by halving the batch, and give it up.

        Returns:
            Ledgers that could not be read at the source, with the cause.
        """
        try:
            return self._write(tasks)
        except _EntryTooLarge as failure:
            (large,) = (task for task in tasks if task.original.ledger_id == failure.ledger_id)
            self._give_up(large, CopyOutcome(failure.ledger_id, Verdict.TOO_LARGE, detail=str(failure)))
            # Each replica's bookie has closed its connection; one that is down is noticed again.
            for bookie_id in large.copy.segments[-1].ensemble:
                self._target.bookies.forgive(bookie_id)
            return self._write_or_blame([task for task in tasks if task is not large])
        except _LedgerRefused as refusal:
            if len(tasks) == 1:
                self._refused(tasks[0], refusal)
                return {}
        half = len(tasks) // 2
        return self._write_or_blame(tasks[:half]) | self._write_or_blame(tasks[half:])

    def _write(self, tasks: Sequence[_Task]) -> dict[int, StoreError]:
        writer = LedgerWriter(self._target.bookies)
        by_id = {task.original.ledger_id: task for task in tasks}
        failures: dict[int, StoreError] = {}
        firsts = {task.original.ledger_id: task.first for task in tasks}
        self._firsts |= firsts
        try:
            for ledger_id, parts in read_all(self._source, [task.original for task in tasks], firsts):
                content = self._forward(writer, by_id[ledger_id], parts)
                if isinstance(content, Content):
                    self._contents[ledger_id] = content
                else:
                    failures[ledger_id] = content
            writer.flush()
        except (StoreDenied, StoreProtocolError, LedgerIdRefused) as cause:
            if writer.failed is None:
                raise
            raise _LedgerRefused(str(cause)) from cause
        except StoreUnreachable:
            self._blame_size(writer)
            raise
        return failures

    def _blame_size(self, writer: LedgerWriter) -> None:
        """Raise `_EntryTooLarge` if a bookie closed the connection because of an entry, not because it is down."""
        bookie_id, largest, bookies = writer.failed, writer.largest, self._target.bookies
        if bookie_id is None or largest is None:
            return
        if not bookies.takes_requests_of(bookie_id, wire_v2.add_size(largest.size)):
            raise _EntryTooLarge(bookie_id, largest)

    def _forward(
        self, writer: LedgerWriter, task: _Task, parts: Iterable[list[bytes] | StoreError]
    ) -> Content | StoreError:
        total = ContentSum(task.original.metadata.digest)
        first = task.first
        for bodies in parts:
            if isinstance(bodies, StoreError):
                return bodies
            self._check(total.add(bodies))
            writer.add(task.original.ledger_id, task.copy, first, bodies)
            first += len(bodies)
        return total.content()

    def _refused(self, task: _Task, refusal: _LedgerRefused) -> None:
        ledger_id = task.original.ledger_id
        if not isinstance(refusal.__cause__, LedgerIdRefused):
            self._give_up(task, CopyOutcome(ledger_id, Verdict.DIFFERENT, detail=str(refusal)))
            return
        # Without the open copy a bookie would collect what its journal replays at its start, and refuse the id again.
        self._give_up(task, CopyOutcome(ledger_id, Verdict.REFUSED, detail=str(refusal), transient=True))

    def _refuse(self, original: LedgerRecord, why: str, *, transient: bool = False) -> None:
        self._end(CopyOutcome(original.ledger_id, Verdict.DIFFERENT, detail=why, transient=transient))

    def _end(self, outcome: CopyOutcome) -> None:
        self._outcomes.append(outcome)
        del self._waiting[outcome.ledger_id]

    def _give_up(self, task: _Task, outcome: CopyOutcome) -> None:
        """Stop copying a ledger; remove its copy unless this run may write the id again.

        Brokers would take an incomplete copy for the whole ledger. But bookies refuse an id that they have deleted, or
        drop what is written under it afterwards. What another client had closed becomes as it was.
        """
        ledger_id = task.original.ledger_id
        before = _closed_before(task.copy)
        # mutant: bookie-cluster/an-id-that-is-written-again-is-deleted
        if outcome.transient and before is None:
            outcome = outcome._replace(begun=self._begun_copy(task))
        else:
            # A client that has changed it in the meantime owns it now.
            with contextlib.suppress(StoreConflict):
                if before is not None:  # mutant: bookie-cluster/what-was-closed-before-is-deleted
                    self._target.directory.update([(ledger_id, before, task.version)])
                else:
                    self._target.directory.delete([(ledger_id, task.version)], lambda: self._check(0))
            # A newer attempt, which the fence of the deletion reports in the same way, ends this one.
            self._check(0)
        self._contents.pop(ledger_id, None)
        self._end(outcome)

    def _begun_copy(self, task: _Task) -> Begun | None:
        """Return the progress of a copy that stays open; None if another client has changed it."""
        ledger_id = task.original.ledger_id
        (existing,) = self._target.directory.read([ledger_id])
        if existing is None or existing.version != task.version:
            return None
        begun = self._begun.get(ledger_id)
        return begun if begun and begun.mzxid == existing.mzxid else Begun(-1, 0, existing.mzxid)

    def _finish(self) -> None:
        """Compare the ledgers that existed before, and the written ones if that was requested."""
        copies = dict(self._existing)
        written = [ledger_id for ledger_id in self._contents if ledger_id not in copies]
        if self._verify:
            # Read again, since the comparison must hold for the stored metadata, not for the intended one.
            for ledger_id, record in zip(written, self._target.directory.read(written), strict=True):
                if record is None:
                    text = (
                        f"the copy of ledger {ledger_id} was deleted during the copy; find out which program did that"
                    )
                    raise StoreConflict(text, ledger_id=ledger_id)
                copies[ledger_id] = record
        else:
            for ledger_id in written:
                _, entries, size = self._contents[ledger_id]
                self._outcomes.append(CopyOutcome(ledger_id, Verdict.COPIED, entries, size))
        pairs = [(self._originals[ledger_id], record) for ledger_id, record in copies.items()]
        firsts = {ledger_id: self._firsts[ledger_id] for ledger_id in written}
        for compare_record in compare_records(
            self._source, self._target, pairs, self._contents, check=self._check, firsts=firsts
        ):
            ours = compare_record.verdict is Verdict.EQUAL and compare_record.ledger_id in self._contents
            self._outcomes.append(compare_record._replace(verdict=Verdict.COPIED) if ours else compare_record)


class _EntryTooLarge(Exception):
    """A bookie of the target closes the connection when it is sent this entry."""

    def __init__(self, bookie_id: str, entry: LargestEntry) -> None:
        super().__init__(
            f"entry {entry.entry_id} has {entry.size:,} bytes, and bookie {bookie_id} takes no such request; "
            "raise nettyMaxFrameSizeBytes of the target's bookies, then try again"
        )
        self.ledger_id = entry.ledger_id


class _LedgerRefused(Exception):
    """A bookie of the target does not take the entries of one of the ledgers that are being written."""


def open_copy(
    original: LedgerRecord, writable: Sequence[str], closed_before: LedgerMetadata | None = None
) -> LedgerMetadata:
    """Return metadata to start a copy with, on bookies that alternate.

    Args:
        original: the ledger.
        writable: ids of the bookies.
        closed_before: what the target had of the ledger when another client had closed it.
    """
    metadata = original.metadata
    size = metadata.ensemble_size
    if len(writable) < size:
        raise BookieNotWritable(
            f"ledger {original.ledger_id} needs {size} bookies, and the target has {len(writable)} that take entries "
            f"({', '.join(writable) or 'none'}); start bookies there",
            ledger_id=original.ledger_id,
        )
    ensemble = tuple(writable[(original.ledger_id + offset) % len(writable)] for offset in range(size))
    segments = (Segment(0, ensemble),)
    return replace(
        metadata,
        state=LedgerState.OPEN,
        length=0,
        last_entry=-1,
        segments=segments,
        token=COPY_TOKEN,
        closed_before=encode_metadata(closed_before) if closed_before else b"",
    )


def _closed(task: _Task) -> LedgerMetadata:
    length, last_entry = task.original.metadata.length, task.original.metadata.last_entry
    return replace(task.copy, state=LedgerState.CLOSED, length=length, last_entry=last_entry, closed_before=b"")


def _closed_before(copy: LedgerMetadata) -> LedgerMetadata | None:
    """Return what the target had of a ledger when another client had closed it; an open copy of ours remembers it."""
    if copy.closed:
        return copy
    # mutant: bookie-cluster/a-later-worker-forgets-what-was-closed
    return decode_metadata(copy.closed_before) if copy.closed_before else None


def begun_from(original: LedgerMetadata, copy: LedgerMetadata) -> bool:
    """Return whether an open ledger of the target is a copy that was started from this one.

    In a rollback the target's place is the cluster that the ledger came from. Its own ledger has the same settings, and
    may have entries that the copy lacks; only the mark of copies tells them apart.
    """
    # mutant: bookie-cluster/open-originals-are-taken-for-copies
    return copy.is_copy and _same_making(original, copy)


def _may_be_cut_short(original: LedgerMetadata, copy: LedgerMetadata) -> bool:
    # BookKeeper's own recovery may record a length of 0, which says nothing.
    earlier = copy.last_entry < original.last_entry or (
        copy.last_entry == original.last_entry and 0 < copy.length < original.length
    )
    return earlier and _same_making(original, copy)


def _beginning(original: LedgerRecord, copy: LedgerMetadata) -> LedgerRecord:
    """Return the original as if it ended where the copy does."""
    metadata = replace(original.metadata, last_entry=copy.last_entry, length=copy.length)
    return original._replace(metadata=metadata)


def _same_making(original: LedgerMetadata, copy: LedgerMetadata) -> bool:
    return _making(original) == _making(copy)


def _making(metadata: LedgerMetadata) -> tuple[object, ...]:
    quorums = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    return *quorums, metadata.digest, metadata.password, metadata.ctime, metadata.custom_map


def can_continue(copy: LedgerMetadata, writable: Collection[str]) -> bool:
    """Return whether an interrupted copy can be continued on its bookies."""
    return (
        copy.state is LedgerState.OPEN and len(copy.segments) == 1 and set(copy.segments[0].ensemble) <= set(writable)
    )
