"""Compare-and-set on Oxia, whose version ids the server chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from clients.cas.store import Node, Part
from clients.errors import StoreUnsupported
from clients.oxia.client import OxiaClient
from clients.oxia.reader import OxiaReader
from clients.store import ABSENT
from models.store_url import StoreUrl


class OxiaCas:
    """Reads and writes; see `CasStore`. Connects with the first call.

    Args:
        url: the store.
        timeout: seconds that a call may take.
    """

    def __init__(self, url: StoreUrl, *, timeout: float) -> None:
        self._client = OxiaClient(url, timeout=timeout)
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def url(self) -> StoreUrl:
        """The store."""
        return self._client.url

    def get(self, path: str) -> Node | None:
        """See `CasReader`."""
        found = self._client.get_dated(path.encode())
        return None if found is None else Node(found[0].value, found[0].version, found[1], 0)

    def children(self, path: str) -> list[str]:
        """See `CasReader`."""
        reader = OxiaReader(self.url, timeout=self._timeout)
        try:
            return sorted(child.decode().rpartition("/")[2] for child in reader.children(path.encode()))
        finally:
            reader.close()

    def sync(self) -> None:
        """See `CasReader`; a shard's leader answers every read, so there is nothing to catch up with."""

    def create(self, path: str, value: bytes) -> None:
        """See `CasStore`."""
        self._client.put(path.encode(), value, ABSENT)

    def set(self, path: str, value: bytes, version: int) -> None:
        """See `CasStore`."""
        self._client.put(path.encode(), value, version)

    def delete(self, path: str, version: int) -> None:
        """See `CasStore`."""
        self._client.delete(path.encode(), version)

    def transaction(self, parts: Sequence[Part]) -> None:
        """Always refused: see `CasStore`."""
        raise StoreUnsupported(f"{self.url} has no transactions, and {len(parts)} records must change together")
