"""Repeated scans of all ledgers of a cluster: unchanged ledgers are neither decoded again nor held twice."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest

from clients.bookkeeper.ledger_table import LedgerTable
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment, decode_metadata
from clients.stores import Access
from clients.zookeeper import Coordination
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack

OPEN = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    state=LedgerState.OPEN,
    length=0,
    last_entry=-1,
    segments=(Segment(0, ("bookie-1",)),),
    digest=DigestType.CRC32C,
)
CLOSED = replace(OPEN, state=LedgerState.CLOSED)


@pytest.fixture(scope="session")
def stack(three_bookies: Stack) -> Stack:
    """Any ZooKeeper."""
    return three_bookies


@pytest.fixture
def directory(stack: Stack) -> Generator[LedgerDirectoryWriter]:
    """A ledgers root without ledgers."""
    root = parse_store_url(stack.zk_url + "/scanned-ledgers")
    with Coordination(root) as coordination:
        coordination.create("/available", parents=True)
    with LedgerDirectoryWriter(root, Access()) as writer:
        yield writer


def scan(directory: LedgerDirectoryWriter, earlier: LedgerTable) -> LedgerTable:
    """Return all ledgers by id."""
    return LedgerTable(directory.facts(earlier))


def test_only_what_has_changed_is_decoded_again(
    directory: LedgerDirectoryWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that was set, or deleted and created again, is decoded again, and no other."""
    ids = [*range(500), 1 << 33]
    directory.create([(number, OPEN) for number in ids])
    first = scan(directory, LedgerTable())
    directory.update([(7, CLOSED, 0)])
    directory.delete([(8, None), (9, None)])
    # A writer creates none that it has deleted.
    with LedgerDirectoryWriter(directory.url, Access()) as another:
        another.create([(8, OPEN)])

    decoded: list[bytes] = []

    def counted(data: bytes) -> LedgerMetadata:
        decoded.append(data)
        return decode_metadata(data)

    monkeypatch.setattr("clients.bookkeeper.ledgers.decode_metadata", counted)
    again = scan(directory, first)

    assert len(decoded) == 2
    assert dict(again) == dict(scan(directory, LedgerTable()))
    assert set(again) == set(ids) - {9}
    assert (again[7].state, again[7].version) == (LedgerState.CLOSED, 1)

    # The highest id is known by names alone; nodes that remain of deleted ledgers say nothing.
    assert directory.highest() == 1 << 33
    directory.delete([(1 << 33, None)])
    assert directory.highest() == 499
    directory.delete([(number, None) for number in range(500)])
    assert directory.highest() == -1
