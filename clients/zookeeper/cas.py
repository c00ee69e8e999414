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
        """See `CasReader`."""
        found = self._session.get(path)
        return None if found is None else Node(found[0], found[1].version, found[1].mtime, found[1].mzxid)

    def children(self, path: str) -> list[str]:
        """See `CasReader`."""
        return self._session.children(path)


class ZooKeeperCas(ZooKeeperCasReader[Coordination]):
    """Reads and writes; see `CasStore`."""

    def create(self, path: str, value: bytes) -> None:
        """See `CasStore`."""
        self._session.create(path, value, parents=True)

    def set(self, path: str, value: bytes, version: int) -> None:
        """See `CasStore`."""
        self._session.set(path, value, version)

    def delete(self, path: str, version: int) -> None:
        """See `CasStore`."""
        self._session.delete(path, version)

    def transaction(self, parts: Sequence[Part]) -> None:
        """See `CasStore`."""
        self._session.commit(parts)
