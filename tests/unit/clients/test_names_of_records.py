"""Names and values of records that are not text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from activities.pulsar.registrations import registered
from clients.bookkeeper.ledgers import LedgerDirectory
from clients.errors import StoreProtocolError
from clients.store import Record, StoreReader, name_of
from clients.stores import Access
from models.store_url import StoreUrl, parse_store_url

_BAD = b"\xff\xfe"


class _Store:
    """A store whose nodes all have a child with a name that is not UTF-8, and such a value."""

    def children(self, path: bytes) -> list[bytes]:
        """Return the child of any node."""
        return [path.rstrip(b"/") + b"/" + _BAD]

    def read(self, paths: Sequence[bytes]) -> list[Record]:
        """Return an ephemeral record for each path."""
        return [Record(path, _BAD, 0, 0, 1, 0, 0) for path in paths]


STORE = cast("StoreReader", _Store())


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the directory of ledgers read the store."""

    def reader(_: StoreUrl, **_settings: object) -> StoreReader:
        return STORE

    monkeypatch.setattr("clients.bookkeeper.ledgers.ZooKeeperReader", reader)


def _directory() -> LedgerDirectory:
    return LedgerDirectory(parse_store_url("zk://127.0.0.1:1/ledgers"), Access())


def cookies() -> object:
    """Return the ids of bookies."""
    return _directory().cookies()


def bookies() -> object:
    """Return the registered bookies."""
    return _directory().bookies()


def instance_id() -> object:
    """Return the id of the cluster of bookies."""
    return _directory().instance_id()


def highest() -> object:
    """Return the highest ledger id."""
    return _directory().highest()


def services() -> object:
    """Return the registered services."""
    return registered(STORE)


@pytest.mark.parametrize("read", [cookies, bookies, instance_id, highest, services])
def test_names_that_are_not_text(read: Callable[[], object]) -> None:
    """Any writer of a store may choose bytes that are not UTF-8; they are a typed error."""
    with pytest.raises(StoreProtocolError, match="is not UTF-8"):
        read()


def test_a_name() -> None:
    """The name of a record is the last part of its path."""
    assert name_of("/bookies/übel:3181".encode()) == "übel:3181"
