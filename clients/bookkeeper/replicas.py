"""Read ledgers from each of their replicas, where usually the first one that answers is enough."""

from __future__ import annotations

from dataclasses import replace

from clients.bookkeeper.metadata import LedgerMetadata, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader


def require_replicas(bookies: Bookies, ledger_id: int, metadata: LedgerMetadata) -> None:
    """Read the first, middle and last entry of a closed ledger from every bookie that should have it.

    Raises:
        LedgerUnreadable: a bookie lacks one of them, or has a bad copy; the message names it.
        StoreUnreachable: a bookie does not answer.
        StoreError: a bookie refuses.
    """
    reader = LedgerReader(bookies)
    last = metadata.last_entry
    for entry in sorted({0, last // 2, last}) if last >= 0 else ():
        for bookie_id in metadata.replicas(entry):
            alone = replace(
                metadata, ensemble_size=1, write_quorum=1, ack_quorum=1, segments=(Segment(0, (bookie_id,)),)
            )
            reader.read_entry(ledger_id, alone, entry)
