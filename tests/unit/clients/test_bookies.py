"""Connections to bookies, and how old bookies are asked for entries; real bookies are in the integration tier."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clients.bookkeeper import pool, wire_v2
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import read_all
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.errors import LedgerUnreadable, StoreUnreachable
from tests.support.clients.bookie_double import BatchReads, BookieDouble

LEDGER, ENTRIES = 7, 300
LONG_TIMEOUT = 60.0
"""The read timeout of clients whose bookies answer."""
BODIES = [pack_entry(LEDGER, entry, b"data", length=4 * (entry + 1)) for entry in range(ENTRIES)]


def metadata(bookie_id: str) -> LedgerMetadata:
    """Return the metadata of a closed ledger that one bookie has."""
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=LedgerState.CLOSED,
        length=4 * ENTRIES,
        last_entry=ENTRIES - 1,
        segments=(Segment(0, (bookie_id,)),),
        digest=DigestType.CRC32C,
    )


def read(bookies: Bookies, bookie_id: str) -> list[bytes]:
    """Return all entries of the ledger."""
    return [body for entry in LedgerReader(bookies).entries(LEDGER, metadata(bookie_id)) for body in entry]


@pytest.mark.parametrize("batches", [BatchReads.CLOSED, BatchReads.REFUSED])
def test_a_bookie_without_batch_reads_gives_entry_by_entry(batches: BatchReads) -> None:
    """A bookie before BookKeeper 4.17 is asked for a batch once, over a connection of its own, and for entries then."""
    with BookieDouble(BODIES, batches) as double, Bookies(double.registered, read_timeout=LONG_TIMEOUT) as bookies:
        assert read(bookies, double.address) == BODIES
        assert read(bookies, double.address) == BODIES
        assert double.operations.count(wire_v2.BATCH_READ) == 1


def test_a_bookie_with_batch_reads_gives_batches() -> None:
    """A bookie of BookKeeper 4.17 or newer is not asked entry by entry."""
    with BookieDouble(BODIES) as double, Bookies(double.registered, read_timeout=LONG_TIMEOUT) as bookies:
        assert read(bookies, double.address) == BODIES
        assert wire_v2.READ not in double.operations


def test_a_bookie_that_answers_nothing_is_not_an_old_one() -> None:
    """A bookie that ends each connection is away, and is asked for batches again when it is back."""
    with BookieDouble(BODIES, BatchReads.ALL_CLOSED) as away, BookieDouble(BODIES) as back:
        registered = away.registered("bookie")
        with Bookies(lambda: registered, read_timeout=LONG_TIMEOUT) as bookies:
            with pytest.raises(StoreUnreachable, match="closes the connection at each request"):
                read(bookies, "bookie")
            registered = back.registered("bookie")
            bookies.forgive("bookie")
            assert read(bookies, "bookie") == BODIES
        assert wire_v2.READ not in back.operations


def test_a_ledger_of_a_false_length_is_read_in_small_parts() -> None:
    """BookKeeper's recovery may record a length of 0: the entries are not taken for empty ones, of which many fit."""
    bodies = [pack_entry(LEDGER, entry, bytes(1 << 12), length=(entry + 1) << 12) for entry in range(1_200)]
    with BookieDouble(bodies) as double, Bookies(double.registered, read_timeout=LONG_TIMEOUT) as bookies:
        without_length = replace(metadata(double.address), length=0, last_entry=len(bodies) - 1)
        batches = list(LedgerReader(bookies).entries(LEDGER, without_length))
    assert [body for batch in batches for body in batch] == bodies
    assert max(sum(map(len, batch)) for batch in batches) <= 2 << 20


def test_every_replica_is_read() -> None:
    """A ledger that one of its bookies lacks is reported, although the other bookies could return its entries."""
    with BookieDouble(BODIES) as whole, BookieDouble(BODIES[:200]) as cut:
        registered = {**whole.registered("whole"), **cut.registered("cut")}
        both = replace(metadata("whole"), ensemble_size=2, write_quorum=2, segments=(Segment(0, ("whole", "cut")),))
        with Bookies(lambda: registered, read_timeout=LONG_TIMEOUT) as bookies:
            cluster = Cluster(cast("LedgerDirectoryWriter", None), bookies)
            cluster.require_replicas(LEDGER, metadata("whole"))
            cluster.require_replicas(LEDGER, replace(both, last_entry=199))
            with pytest.raises(LedgerUnreadable, match="entry 299 of ledger 7 cannot be read: cut does not have"):
                cluster.require_replicas(LEDGER, both)


def test_a_ledger_of_a_false_length_is_read_part_by_part() -> None:
    """A ledger that says it has no bytes, as BookKeeper's recovery may record it, is not read as a whole."""
    bodies = [pack_entry(LEDGER, entry, b"", length=0) for entry in range(5_000)]
    with BookieDouble(bodies) as double, Bookies(double.registered, read_timeout=LONG_TIMEOUT) as bookies:
        form = replace(metadata(double.address), length=0, last_entry=len(bodies) - 1)
        cluster: Any = SimpleNamespace(bookies=bookies)
        ((_, parts),) = read_all(cluster, [LedgerRecord(LEDGER, form, 0, 0, 0)])
        counts = [len(cast("list[bytes]", piece)) for piece in parts]
    assert sum(counts) == len(bodies)
    assert len(counts) > 1


def test_an_id_that_is_not_registered_is_no_address() -> None:
    """A bookie that listens at the address which the id of an unregistered one names is not asked for its entries."""
    with BookieDouble(BODIES) as double, Bookies(dict) as bookies:
        with pytest.raises(StoreUnreachable, match="is not registered"):
            bookies.connection(double.address)
        with pytest.raises(StoreUnreachable, match="is not registered"):
            bookies.free_space(double.address)
        assert bookies.takes_requests_of(double.address, 1 << 30), "nothing is known of it"
        assert double.connections == 0


def test_a_registration_that_ended_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that is not registered any more is not connected to again, though it was a moment ago."""
    monkeypatch.setattr(pool, "_RESOLVE_AGAIN", 0.0)
    with BookieDouble(BODIES) as double:
        registered = double.registered()
        with Bookies(lambda: registered) as bookies:
            bookies.connection(double.address).lose("was idle")
            registered = {}
            with pytest.raises(StoreUnreachable, match="is not registered"):
                bookies.connection(double.address)
