"""Recover the open ones of many ledgers, so that they can be copied."""

from __future__ import annotations

from collections.abc import Sequence

from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import unreadable
from clients.bookkeeper.copy_result import CopyOutcome
from clients.bookkeeper.recovery import recover_ledger
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreConflict, StoreUnreachable


def recover_batch(source: Cluster, ids: Sequence[int]) -> list[CopyOutcome]:
    """Recover those of these ledgers that are open, which stops their writers; closed ones are left as they are.

    Returns:
        The ledgers that could not be recovered, `unreadable` or `deleted`; no others.

    Raises:
        StoreError: a store failed, or no bookie answers.
    """
    failed: list[CopyOutcome] = []
    for record in source.directory.read(ids):
        if record is None or record.metadata.closed:
            continue
        try:
            recover_ledger(source.directory, source.bookies, record.ledger_id)
        except (LedgerUnreadable, StoreUnreachable, BookieNotWritable, StoreConflict) as cause:
            # Its own trouble, unless the store or all bookies fail.
            reason = (
                cause
                if isinstance(cause, StoreUnreachable)
                else LedgerUnreadable(str(cause), ledger_id=record.ledger_id)
            )
            failed.append(unreadable(source, record.ledger_id, reason))
    return failed
