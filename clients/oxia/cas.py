"""Compare-and-set on Oxia, whose version ids the server chooses."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cas.store import Node, Part
from clients.closeable import Closeable
from clients.errors import StoreUnsupported
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.client import OxiaClient
from clients.oxia.reader import OxiaReader
from clients.store import ABSENT, name_of
from models.store_url import StoreUrl


class OxiaCas(Closeable):
    """Reads and writes; see `CasStore`. Connects with the first call. A shard's leader answers each read.

    Args:
        url: the store.
        access: credentials and TLS settings.
        timeout: seconds that a call may take.
    """

    def __init__(self, url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float) -> None:
        self._client = OxiaClient(url, access=access, timeout=timeout)
        self._timeout = timeout

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._client.close()

    @property
    def url(self) -> StoreUrl:
        """Address of the store."""
        return self._client.url

    def get(self, path: str) -> Node | None:
        """Return the record; see `CasReader.get`."""
        dated = self._client.get_dated(path.encode())
        return None if dated is None else Node(dated[0].value, dated[0].version, dated[1], 0)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the direct children; see `CasReader.children`."""
        with OxiaReader(self.url, access=self._client.access, timeout=self._timeout) as reader:
            return sorted(name_of(child) for child in reader.children(path.encode()))

    def create(self, path: str, value: bytes) -> None:
        """Create a record; see `CasStore.create`."""
        self._client.put(path.encode(), value, ABSENT)

    def set(self, path: str, value: bytes, version: int) -> None:
        """Replace the value of a record; see `CasStore.set`."""
        self._client.put(path.encode(), value, version)

    def delete(self, path: str, version: int) -> None:
        """Delete a record; see `CasStore.delete`."""
        self._client.delete(path.encode(), version)

    def transaction(self, parts: Sequence[Part]) -> None:
        """Refuse every transaction; see `CasStore.transaction`."""
        raise StoreUnsupported(f"{self.url} has no transactions, and {len(parts)} records must change together")
