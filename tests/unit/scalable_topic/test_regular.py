"""What a regular topic has after the position at which it was ended."""

from __future__ import annotations

from typing import cast

import pytest

from activities.scalable_topic.regular import entries_after_end
from clients.cas.store import CasReader, Node
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.names import TopicName

_TOPIC = TopicName.parse("persistent://t/n/x")


class _Store:
    """A store that has one managed ledger."""

    def __init__(self, info: ManagedLedgerInfo | None) -> None:
        self._info = info

    def get(self, path: str) -> Node | None:
        assert path == _TOPIC.managed_ledger_path
        return Node(self._info.SerializeToString(), 0, 0, 0) if self._info else None


@pytest.mark.parametrize(
    ("end", "ledgers", "after"),
    [
        ((5, 9), {4: 3, 5: 10}, ""),
        ((5, -1), {4: 3, 5: 0}, ""),
        ((5, 9), {5: 12}, "ledger 5 (2 entries)"),
        ((5, 9), {5: 10, 6: 7}, "ledger 6 (7 entries)"),
        (None, {5: 10, 6: 7}, ""),
    ],
)
def test_entries_after_the_end(end: tuple[int, int] | None, ledgers: dict[int, int], after: str) -> None:
    """Entries of the last ledger, or of later ones, that the end does not cover are named; older ledgers are not."""
    info = ManagedLedgerInfo()
    for ledger, entries in ledgers.items():
        info.ledgerInfo.add(ledgerId=ledger, entries=entries)
    if end:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = end
    found = entries_after_end(cast("CasReader", _Store(info)), _TOPIC)
    assert (after in found) if after else not found


def test_a_topic_that_is_gone_has_nothing() -> None:
    """A deleted topic has no entries after its end."""
    assert entries_after_end(cast("CasReader", _Store(None)), _TOPIC) == ""
