"""Messages that a topic has after the position at which it was ended."""

from __future__ import annotations

import pytest

from activities.pulsar.stored_topics import after_end
from clients.pulsar.admin.topics import InternalInfo, LedgerStats, Position


@pytest.mark.parametrize(
    ("ledgers", "end", "expected"),
    [
        ([(3, 5)], None, ""),
        ([(2, 9), (3, 0)], (3, 4), ""),
        ([(2, 9), (3, 5)], (3, 4), ""),
        ([(3, 7)], (3, 4), "2 entries in ledger 3"),
        ([(3, 5), (4, 2), (5, 0)], (3, 4), "2 entries in ledger 4, perhaps entries in ledger 5"),
        ([(3, 5)], (3, -1), "5 entries in ledger 3"),
    ],
)
def test_entries_after_the_end(ledgers: list[tuple[int, int]], end: tuple[int, int] | None, expected: str) -> None:
    """Ledgers after the end are named; what an open ledger has is not stored."""
    position = None if end is None else Position(ledger_id=end[0], entry_id=end[1])
    stored = tuple(LedgerStats(ledger_id=ledger, entries=entries) for ledger, entries in ledgers)
    assert after_end(InternalInfo(ledgers=stored, terminated_position=position)) == expected
