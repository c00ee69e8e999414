"""Tests of the writer of ledgers; the connection to a bookie is a double."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from clients.bookkeeper import wire_v2
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pending_adds import RefusedAdd
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import StoreUnreachable

METADATA = LedgerMetadata(1, 1, 1, LedgerState.OPEN, 0, -1, (Segment(0, ("one",)),), DigestType.CRC32C)


class Overloaded:
    """Connection to a bookie that refuses what it gets, and is lost when it gets that again."""

    def __init__(self) -> None:
        self.lost = ""
        self.refused_adds: list[RefusedAdd] = []
        self.accepted_adds = self.bytes_in_flight = self.unanswered_adds = 0
        self._sent: list[bytes] = []

    def add(self, frames: Sequence[bytes], bodies: Sequence[bytes], size: int) -> None:
        """Take the first bodies; the connection is lost with the next ones."""
        if self._sent:
            self.lost = "closed the connection"
            return
        self._sent += bodies
        self.unanswered_adds = len(bodies)

    def poll(self) -> None:
        """Refuse what was sent."""
        self.unanswered_adds = 0
        self.refused_adds = [RefusedAdd(5, entry, wire_v2.TOO_MANY, body) for entry, body in enumerate(self._sent)]


def test_a_bookie_that_is_lost_while_it_gets_entries_again() -> None:
    """Nothing is unanswered then, and the entries are not written all the same."""
    connection = Overloaded()
    loop = SimpleNamespace(poll=connection.poll, send=lambda: None)
    bookies = SimpleNamespace(loop=loop, connection={"one": connection}.__getitem__, add_timeout=5.0)
    writer = LedgerWriter(cast("Bookies", bookies))
    writer.add(5, METADATA, 0, [pack_entry(5, 0, b"x", length=1)])
    with pytest.raises(StoreUnreachable, match="bookie one closed the connection; entries for it may not be written"):
        writer.flush()
