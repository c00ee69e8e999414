"""Next ledger ids of a metadata store that has ledgers of Pulsar's own driver."""

from __future__ import annotations

from clients.bookkeeper.idgen import read_generator
from clients.bookkeeper.oxia_idgen import read_oxia_generator
from clients.stores import Access
from clients.zookeeper.coordination import CoordinationReader
from models.store_url import StoreUrl

_LEDGERS = "/ledgers"


def ledgers_of(store: StoreUrl) -> StoreUrl:
    """Return the default root of ledgers in a metadata store."""
    return store.model_copy(update={"root": store.root + _LEDGERS})


def next_ledger_id(store: StoreUrl, access: Access) -> int | None:
    """Return the id that the next ledger gets; None in a store without ledgers.

    Raises:
        StoreError: the store cannot be read.
    """
    own = access.to(store)
    if store.scheme != "zk":
        generator = read_oxia_generator(store, access=own.oxia, timeout=own.timeout)
        return generator.next_id if generator else None
    with CoordinationReader(ledgers_of(store), access=own.zookeeper, timeout=own.timeout) as coordination:
        return read_generator(coordination).next_id if coordination.exists("/") else None
