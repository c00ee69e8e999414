"""Entries that a verification reads from bookies; real bookies are in the integration tier."""

from __future__ import annotations

from typing import Any, cast

import pytest

from activities.verification.ledgers import LedgerSide, windows
from clients.bookie_access import BookieAccess
from clients.bookkeeper import wire_v2
from clients.bookkeeper.digests import pack_entry
from clients.errors import StoreUnreachable
from clients.verification.bookie_entries import BookieEntries
from clients.verification.ledger_records import Fragment, LedgerNode
from tests.support.clients.bookie_double import BookieDouble

LEDGER = 7
BODIES = [pack_entry(LEDGER, entry, b"data", length=4 * (entry + 1)) for entry in range(3)]


class FaultyBookie(BookieDouble):
    """A bookie that answers with a code to each request for one entry."""

    def __init__(self, entry: int, code: int) -> None:
        super().__init__(BODIES)
        self._entry, self._code = entry, code

    def _head(self, header: int, ledger_id: int, entry_id: int) -> bytes:
        code = self._code if entry_id == self._entry else wire_v2.OK
        return wire_v2.ANSWER.pack(header, code, ledger_id, entry_id)


def test_an_entry_that_no_disk_gives_is_unreadable() -> None:
    """An entry that no replica can read on its disk is missing; other entries, and another replica, are read."""
    with FaultyBookie(1, wire_v2.IO_ERROR) as first, FaultyBookie(1, wire_v2.IO_ERROR) as second:
        both = read(first, second)
        assert (sorted(both.bodies), sorted(both.missing)) == ([0, 2], [1])
        assert both.missing[1].endswith("cannot read it on its disk")
        with BookieDouble(BODIES) as whole:
            assert sorted(read(first, whole).bodies) == [0, 1, 2]


def test_a_bookie_that_is_busy_is_asked_again() -> None:
    """A bookie that refuses an entry for now may have it."""
    with FaultyBookie(1, wire_v2.TOO_MANY) as busy, pytest.raises(StoreUnreachable, match="answers with code 106"):
        read(busy)


def read(*bookies: BookieDouble) -> Any:
    """Return the entries that these replicas give."""
    addresses = {each.address: ("127.0.0.1", int(each.address.rpartition(":")[2])) for each in bookies}
    fragments = (Fragment(0, tuple(addresses)),)
    node = LedgerNode(True, 2, 12, "CRC32C", b"", (), len(bookies), fragments)
    with BookieEntries(lambda: addresses, access=BookieAccess(), timeout=5.0) as entries:
        return LedgerSide(cast("Any", None), entries).read(LEDGER, node, range(3))


@pytest.mark.parametrize(("length", "together"), [(0, 16), (99, 16), (100, 100), (100 << 20, 8)])
def test_entries_that_are_read_together(length: int, together: int) -> None:
    """As many entries are read at a time as memory can hold; few if the recorded length is less than a byte each."""
    node = LedgerNode(True, 99, length, "CRC32C", b"", (), 1, (Fragment(0, ("b",)),))
    ranges = list(windows(node))
    assert len(ranges[0]) == together
    assert [entry for entries in ranges for entry in entries] == [*range(100)]
