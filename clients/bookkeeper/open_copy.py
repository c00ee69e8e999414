"""Copy the confirmed entries of open ledgers while their writers continue: nothing is fenced, the copy stays open.

An entry that its writer knows to be acknowledged never changes, and recovery never cuts it off. So two attempts may
write the same copy at once, and a late one adds entries that exist already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from clients.bookkeeper.batch_copy import begun_from, can_continue, open_copy
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import Check, ContentSum
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.digests import read_header
from clients.bookkeeper.last_entries import last_confirmed
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, LedgerIdRefused, LedgerUnreadable, StoreUnreachable

# A failure here is ignored: the ledger is copied when it is closed, and then its failure is reported.
_LATER = (BookieNotWritable, LedgerIdRefused, LedgerUnreadable, StoreUnreachable)


def copy_open(
    source: Cluster, target: Cluster, ids: Sequence[int], begun: Mapping[int, Begun], *, check: Check
) -> list[CopyOutcome]:
    """Copy the confirmed entries of open ledgers that their copies lack, and compare these.

    Args:
        source: cluster to read from.
        target: cluster to write to.
        ids: ids of the ledgers; those that are closed or deleted by now are left out.
        begun: previous progress of copies.
        check: see `Check`.

    Returns:
        An outcome `open` for each ledger that has an open copy now. Failures are left for the copy when closed.

    Raises:
        StoreError: a store failed; or an error of `check`.
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
    copy = _existing_copy(target, original) if last >= 0 else None
    if copy is None:
        return None
    if begun is None or begun.mzxid != copy.mzxid or begun.through > last:
        begun = Begun(-1, 0, copy.mzxid)
    done = None
    with contextlib.suppress(*_LATER):
        done = _copy_confirmed(source, target, original, copy, begun=begun, last=last, check=check)
    # Also if nothing could be written: if the original is deleted now, only this shows that the copy is ours.
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
    """Copy the entries after the previous progress up to `last`; return None if they read back differently."""
    ledger_id = original.ledger_id
    first = begun.through + 1
    digest = original.metadata.digest
    sent, length, writer = ContentSum(digest), begun.length, LedgerWriter(target.bookies)
    for bodies in LedgerReader(source.bookies).entries(ledger_id, original.metadata, first, last):
        check(sent.add(bodies))
        writer.add(ledger_id, copy.metadata, first, bodies)
        first += len(bodies)
        length = read_header(bodies[-1]).length
    writer.flush()
    read_back = ContentSum(digest)
    for bodies in LedgerReader(target.bookies).entries(ledger_id, copy.metadata, begun.through + 1, last):
        check(0)
        read_back.add(bodies)
    if read_back.content() != sent.content():
        return None
    _, entries, size = sent.content()
    return CopyOutcome(ledger_id, Verdict.OPEN, entries, size, begun=Begun(last, length, copy.mzxid))


def _existing_copy(target: Cluster, original: LedgerRecord) -> LedgerRecord | None:
    """Return the open copy, which is created if there is none; None if another ledger has its id."""
    ledger_id = original.ledger_id
    (existing,) = target.directory.read([ledger_id])
    writable = target.bookies.writable()
    if existing is None:
        target.directory.create([(ledger_id, open_copy(original, writable))])
        (existing,) = target.directory.read([ledger_id])
    if existing is None or existing.metadata.closed or not begun_from(original.metadata, existing.metadata):
        return None
    # A copy on other bookies is moved, and written from its first entry, when the ledger is closed.
    return existing if can_continue(existing.metadata, writable) else None
