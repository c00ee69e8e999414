"""Open any metadata store by its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from clients.bookie_access import BookieAccess
from clients.cas.store import CasReader, CasStore
from clients.oxia.access import ANONYMOUS as ANONYMOUS_OXIA
from clients.oxia.access import OxiaAccess
from clients.oxia.cas import OxiaCas
from clients.oxia.reader import OxiaReader
from clients.oxia.remover import OxiaRemover, end_removers
from clients.oxia.version_floor import mark_versions
from clients.oxia.writer import STREAM_SECONDS, OxiaWriter
from clients.store import NO_SHARD, Guard, StoreReader, StoreRemover, StoreWriter
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.cas import ZooKeeperCas, ZooKeeperCasReader
from clients.zookeeper.connection import Connection
from clients.zookeeper.coordination import Coordination, CoordinationReader
from clients.zookeeper.identity import lead_to_one_ensemble
from clients.zookeeper.permit import revoke_permits as revoke_zookeeper_permits
from clients.zookeeper.reader import ZooKeeperReader
from clients.zookeeper.remover import ZooKeeperRemover
from clients.zookeeper.writer import ZooKeeperWriter
from models.settings import Settings
from models.store_url import StoreUrl

MAX_RAISE = 5_000_000
"""Highest version, or next number, to which a znode of a ZooKeeper target is counted up."""

# Time that the guard's last answer and a busy server add to the end of a stream.
_SERVER_LAG = 3.0


class StoreAccess(NamedTuple):
    """Credentials and timeout for one store; plain data, so that it can be sent to an executor.

    Attributes:
        zookeeper: credentials and TLS settings for ZooKeeper.
        timeout: longest wait for one answer, in seconds.
        oxia: credentials and TLS settings for Oxia.
        bookies: login and TLS settings for the bookies that are registered in the store.
    """

    zookeeper: ZooKeeperAccess = ANONYMOUS
    timeout: float = 10.0
    oxia: OxiaAccess = ANONYMOUS_OXIA
    bookies: BookieAccess = BookieAccess()


class Access(NamedTuple):
    """Credentials and timeout for the stores of a migration, some of which have their own; plain data.

    Attributes:
        common: for all other stores.
        others: address of a store, and what its servers get.
    """

    common: StoreAccess = StoreAccess()
    others: tuple[tuple[StoreUrl, StoreAccess], ...] = ()

    def to(self, url: StoreUrl) -> StoreAccess:
        """Return what the servers of an address get, whatever its root."""
        own = (access for other, access in self.others if other.shares_servers(url))
        return next(own, self.common)

    @classmethod
    def of_each(cls, credentials: Mapping[StoreUrl, str], access: Callable[[str], Access]) -> Access:
        """Create it for stores with credentials of their own.

        Args:
            credentials: name of the credentials of each store; those of the first one are the common ones.
            access: returns the access with the credentials of a name; may raise.
        """
        each = [(url, access(name).common) for url, name in credentials.items()]
        return cls(each[0][1], tuple(each))

    @classmethod
    def from_settings(cls, settings: Settings, name: str = "") -> Access:
        """Create it with the credentials of a name; the common credentials for an empty name.

        Raises:
            UnknownCredentials: the settings have none of this name.
            ValueError: the credentials for ZooKeeper or Oxia are invalid.
        """
        credentials, destinations = settings.credentials_of(name), settings.destinations_of(name)
        return cls(
            StoreAccess(
                zookeeper=ZooKeeperAccess.of(credentials, destinations),
                oxia=OxiaAccess.of(credentials, destinations),
                bookies=BookieAccess.of(credentials, destinations),
                timeout=settings.store_timeout.total_seconds(),
            )
        )


def open_reader(url: StoreUrl, access: Access) -> StoreReader:
    """Return a client that cannot write."""
    own = access.to(url)
    if url.scheme == "zk":
        return ZooKeeperReader(url, access=own.zookeeper, timeout=own.timeout)
    return OxiaReader(url, access=own.oxia, timeout=own.timeout)


def open_writer(
    url: StoreUrl, access: Access, *, keep_versions: bool, guard: Guard | None = None, shared: bool = False
) -> StoreWriter:
    """Return a client that writes in bulk.

    Args:
        url: the store.
        access: credentials and timeout.
        keep_versions: ZooKeeper only: bring each znode to the version of its record (Oxia does so in any case).
        guard: the condition for its writes. ZooKeeper refuses writes that are still in flight after `revoke_permits`;
            Oxia, which has no condition over several records, still applies writes that were sent before for
            `late_writes_last` seconds.
        shared: whether services write there too, so that nothing of theirs may be deleted even for a moment.
    """
    own = access.to(url)
    if url.scheme == "zk":
        return ZooKeeperWriter(
            url,
            access=own.zookeeper,
            timeout=own.timeout,
            keep_versions=keep_versions,
            max_raise=MAX_RAISE,
            guard=guard,
            shared=shared,
        )
    return OxiaWriter(url, access=own.oxia, timeout=own.timeout, guard=guard)


def late_writes_last(url: StoreUrl) -> float:
    """Return for how many seconds a store may apply guarded writes that were sent before their guard refused."""
    return STREAM_SECONDS + _SERVER_LAG if url.scheme == "oxia" else 0.0


def open_remover(url: StoreUrl, access: Access, guard: Guard) -> StoreRemover:
    """Return a client that deletes in bulk, as long as the guard allows it."""
    own = access.to(url)
    if url.scheme == "zk":
        return ZooKeeperRemover(url, guard, access=own.zookeeper, timeout=own.timeout)
    return OxiaRemover(url, guard, access=own.oxia, timeout=own.timeout)


def last_transaction(url: StoreUrl, access: Access) -> int:
    """Return the transaction id that a ZooKeeper has reached: what is written from now on has a higher one. 0 on Oxia.

    Raises:
        StoreError: the store failed.
    """
    if url.scheme != "zk":
        return 0
    own = access.to(url)
    with Connection(url, access=own.zookeeper, timeout=own.timeout) as connection:
        return connection.sync()


def write_marks(url: StoreUrl, access: Access) -> dict[int, int]:
    """Return a number for each shard that later writes of clients to it exceed.

    It is the number of a transaction on ZooKeeper, which has NO_SHARD only, and of a version on Oxia.

    Raises:
        StoreError: the store failed.
    """
    own = access.to(url)
    if url.scheme == "zk":
        return {NO_SHARD: last_transaction(url, access)}
    return mark_versions(url, access=own.oxia, timeout=own.timeout)


def trees_overlap(first: StoreUrl, second: StoreUrl, access: Access) -> bool:
    """Return whether one of two trees holds the other, also where their servers are named differently.

    Addresses of Oxia are compared as they are written.

    Args:
        first: one address, whose root exists.
        second: another one.
        access: credentials and timeout.

    Raises:
        StoreError: only the stores themselves show it, and one of them cannot be read.
    """
    if first.overlaps(second):
        return True
    # Different trees, on whichever servers.
    if first.scheme != "zk" or not first.overlaps(second.model_copy(update={"hosts": first.hosts})):
        return False
    # mutant: metadata-store/stores-differ-by-address
    accesses = [access.to(url).zookeeper for url in (first, second)]
    return lead_to_one_ensemble(first, second, accesses, timeout=access.common.timeout)


def revoke_permits(url: StoreUrl, access: Access) -> None:
    """Stop all guarded writers and removers of a store, also those that are frozen or cut off.

    Call it after taking the claim that their guards check: from now on the server refuses what they send or
    have in flight.

    Raises:
        StoreError: the store failed.
    """
    own = access.to(url)
    if url.scheme == "zk":
        with Connection(url, access=own.zookeeper, timeout=own.timeout) as connection:
            connection.sync()
            revoke_zookeeper_permits(connection)
    else:
        end_removers(url, access=own.oxia, timeout=own.timeout)


def open_cas_reader(url: StoreUrl, access: Access) -> CasReader:
    """Return single records, which it cannot write; a context manager."""
    own = access.to(url)
    if url.scheme == "zk":
        return ZooKeeperCasReader(CoordinationReader(url, access=own.zookeeper, timeout=own.timeout))
    return OxiaCas(url, access=own.oxia, timeout=own.timeout)


def open_cas(url: StoreUrl, access: Access) -> CasStore:
    """Return single records, which change by compare-and-set; a context manager."""
    own = access.to(url)
    if url.scheme == "zk":
        return ZooKeeperCas(Coordination(url, access=own.zookeeper, timeout=own.timeout))
    return OxiaCas(url, access=own.oxia, timeout=own.timeout)
