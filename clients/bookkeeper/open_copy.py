"""Copy what is confirmed of open ledgers while their writers continue: nothing is fenced, and the copy stays open.

An entry that its writer knows to be acknowledged never changes, and recovery never cuts it off. So two attempts may
write the same copy at once, and one that comes late adds what stands there already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from clients.bookkeeper.batch_copy import begun_from, can_go_on, open_copy
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import Check, ContentSum
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.digests import read_header
from clients.bookkeeper.last_entries import last_confirmed
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, LedgerIdRefused, LedgerUnreadable, StoreUnreachable

# Whatever fails here is done when the ledger is closed, which then says why it fails.
_LATER = (BookieNotWritable, LedgerIdRefused, LedgerUnreadable, StoreUnreachable)


def copy_open(
    source: Cluster, target: Cluster, ids: Sequence[int], begun: Mapping[int, Begun], *, check: Check
) -> list[CopyOutcome]:
    """Copy the confirmed entries of open ledgers that their copies lack, and compare these.

    Args:
        source: where entries are read.
        target: where they are written.
        ids: the ledgers; those that are closed or gone meanwhile are left out.
        begun: how far copies had come before.
        check: see `Check`.

    Returns:
        An outcome `open` for each that has an open copy now. What fails is left for the copy of the closed ledger.

    Raises:
        StoreError: a store failed; or what `check` raises.
    """
    outcomes: list[CopyOutcome] = []
    for ledger_id, record in zip(ids, source.directory.read(ids), strict=True):
        if record is None or record.metadata.closed:
            continue
        check(0)
        try:
            outcome = _copy_one(source, target, record, begun.get(ledger_id), check)
        except _LATER:
            continue
        if outcome:
            outcomes.append(outcome)
    return outcomes


def _copy_one(
    source: Cluster, target: Cluster, original: LedgerRecord, begun: Begun | None, check: Check
) -> CopyOutcome | None:
    ledger_id = original.ledger_id
    last = last_confirmed(source.bookies, ledger_id, original.metadata)
    copy = _standing(target, original) if last >= 0 else None
    if copy is None:
        return None
    if begun is None or begun.mzxid != copy.mzxid or begun.through > last:
        begun = Begun(-1, 0, copy.mzxid)
    done = None
    with contextlib.suppress(*_LATER):
        done = _copy_confirmed(source, target, original, copy, begun=begun, last=last, check=check)
    # Also where nothing could be written: if the original is deleted now, only this tells that the copy is ours.
    return done or CopyOutcome(ledger_id, Verdict.OPEN, begun=begun)


def _copy_confirmed(
    source: Cluster,
    target: Cluster,
    original: LedgerRecord,
    copy: LedgerRecord,
    *,
    begun: Begun,
    last: int,
    check: Check,
) -> CopyOutcome | None:
    """Copy the entries after those that were copied before, up to `last`; None if they read back otherwise."""
    ledger_id = original.ledger_id
    first = begun.through + 1
    sent, length, writer = ContentSum(), begun.length, LedgerWriter(target.bookies)
    for part in LedgerReader(source.bookies).entries(ledger_id, original.metadata, first, last):
        check(sent.add(part))
        writer.add(ledger_id, copy.metadata, first, part)
        first += len(part)
        length = read_header(part[-1]).length
    writer.flush()
    found = ContentSum()
    for part in LedgerReader(target.bookies).entries(ledger_id, copy.metadata, begun.through + 1, last):
        check(0)
        found.add(part)
    if found.content() != sent.content():
        return None
    _, entries, size = sent.content()
    return CopyOutcome(ledger_id, Verdict.OPEN, entries, size, begun=Begun(last, length, copy.mzxid))


def _standing(target: Cluster, original: LedgerRecord) -> LedgerRecord | None:
    """The open copy, which is made where there is none; None if something else stands there."""
    ledger_id = original.ledger_id
    (standing,) = target.directory.read([ledger_id])
    writable = target.bookies.writable()
    if standing is None:
        target.directory.create([(ledger_id, open_copy(original, writable))])
        (standing,) = target.directory.read([ledger_id])
    if standing is None or standing.metadata.closed or not begun_from(original.metadata, standing.metadata):
        return None
    # One that lies elsewhere is moved, and written from its first entry, when the ledger is closed.
    return standing if can_go_on(standing.metadata, writable) else None
