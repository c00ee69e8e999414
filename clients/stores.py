"""Open any metadata store by its address."""

from __future__ import annotations

from typing import NamedTuple

from clients.cas.oxia import OxiaCas
from clients.cas.store import CasReader, CasStore
from clients.cas.zookeeper import ZooKeeperCas, ZooKeeperCasReader
from clients.oxia.reader import OxiaReader
from clients.oxia.writer import OxiaWriter
from clients.store import StoreReader, StoreWriter
from clients.zookeeper.coordination import Coordination, CoordinationReader
from clients.zookeeper.reader import ZooKeeperReader
from clients.zookeeper.writer import ZooKeeperWriter
from models.store_url import StoreUrl

MAX_RAISE = 5_000_000
"""How far a ZooKeeper target may have to count up to the version, or the next number, of one znode."""


class Access(NamedTuple):
    """How stores are talked to; plain data, so that it travels to an executor.

    Attributes:
        zookeeper_auth: credentials, each scheme and credential.
        timeout: longest wait for one answer, in seconds.
    """

    zookeeper_auth: tuple[tuple[str, bytes], ...] = ()
    timeout: float = 10.0


def open_reader(url: StoreUrl, access: Access) -> StoreReader:
    """A client that cannot write."""
    if url.scheme == "zk":
        return ZooKeeperReader(url, auth=access.zookeeper_auth, timeout=access.timeout)
    return OxiaReader(url, timeout=access.timeout)


def open_writer(url: StoreUrl, access: Access, *, keep_versions: bool) -> StoreWriter:
    """A client that writes in bulk.

    Args:
        url: the store.
        access: credentials and timeout.
        keep_versions: ZooKeeper only: bring each znode to the version of its record (Oxia does so in any case).
    """
    if url.scheme == "zk":
        return ZooKeeperWriter(
            url,
            auth=access.zookeeper_auth,
            timeout=access.timeout,
            keep_versions=keep_versions,
            max_raise=MAX_RAISE,
        )
    return OxiaWriter(url, timeout=access.timeout)


def open_cas_reader(url: StoreUrl, access: Access) -> CasReader:
    """Single records, which it cannot write; a context manager."""
    if url.scheme == "zk":
        return ZooKeeperCasReader(CoordinationReader(url, auth=access.zookeeper_auth, timeout=access.timeout))
    return OxiaCas(url, timeout=access.timeout)


def open_cas(url: StoreUrl, access: Access) -> CasStore:
    """Single records, which change by compare-and-set; a context manager."""
    if url.scheme == "zk":
        return ZooKeeperCas(Coordination(url, auth=access.zookeeper_auth, timeout=access.timeout))
    return OxiaCas(url, timeout=access.timeout)
