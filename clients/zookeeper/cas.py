"""Compare-and-set on ZooKeeper, over one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Self, TypeVar

from clients.cas.store import Node, Part
from clients.closeable import Closeable
from clients.zookeeper.coordination import Coordination, CoordinationReader
from models.store_url import StoreUrl

SessionT = TypeVar("SessionT", bound=CoordinationReader)


class ZooKeeperCasReader(Closeable, Generic[SessionT]):
    """Reads over a session that it opens and closes as a context manager.

    Args:
        session: not opened yet.
    """

    def __init__(self, session: SessionT) -> None:
        self._session = session

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def close(self) -> None:
        """End the session; harmless when done twice."""
        self._session.close()

    @property
    def url(self) -> StoreUrl:
        """The store."""
        return self._session.url

    def get(self, path: str) -> Node | None:
        """Read as `CasReader` says."""
        result = self._session.get(path)
        return None if result is None else Node(result[0], result[1].version, result[1].mtime, result[1].mzxid)

    def children(self, path: str) -> list[str]:
        """Read as `CasReader` says."""
        return self._session.children(path)


class ZooKeeperCas(ZooKeeperCasReader[Coordination]):
    """Reads and writes; see `CasStore`."""

    def create(self, path: str, value: bytes) -> None:
        """Write as `CasStore` says."""
        self._session.create(path, value, parents=True)

    def set(self, path: str, value: bytes, version: int) -> None:
        """Write as `CasStore` says."""
        self._session.set(path, value, version)

    def delete(self, path: str, version: int) -> None:
        """Write as `CasStore` says."""
        self._session.delete(path, version)

    def transaction(self, parts: Sequence[Part]) -> None:
        """Write as `CasStore` says."""
        self._session.commit(parts)
