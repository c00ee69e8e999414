"""The ledger ids that a metadata store gives next, where brokers and bookies keep ledgers in it by Pulsar's driver."""

from __future__ import annotations

from clients.bookkeeper.idgen import read_generator
from clients.bookkeeper.oxia_idgen import read_oxia_generator
from clients.stores import Access
from clients.zookeeper.coordination import CoordinationReader
from models.store_url import StoreUrl

_LEDGERS = "/ledgers"


def ledgers_of(store: StoreUrl) -> StoreUrl:
    """Return where ledgers are kept in a metadata store by default."""
    return store.model_copy(update={"root": store.root + _LEDGERS})


def next_ledger_id(store: StoreUrl, access: Access) -> int | None:
    """Return the id that the next ledger gets; None where no ledgers are kept.

    Raises:
        StoreError: the store cannot be read.
    """
    if store.scheme != "zk":
        found = read_oxia_generator(store, timeout=access.timeout)
        return found.next_id if found else None
    with CoordinationReader(ledgers_of(store), auth=access.zookeeper_auth, timeout=access.timeout) as coordination:
        return read_generator(coordination).next_id if coordination.exists("/") else None
