"""A store in memory, for what only concerns the order of reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clients.cas.store import Create, Delete, Node, Part, Set
from clients.closeable import Closeable
from clients.errors import VersionConflict
from models.store_url import parse_store_url


class MemoryStore(Closeable):
    """A `CasStore` in memory; `before_write` acts between a read and the write that follows it."""

    url = parse_store_url("zk:memory:2181")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.before_write: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Nothing to free."""

    def get(self, path: str) -> Node | None:
        """The record."""
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names of the direct children."""
        return sorted(key.rpartition("/")[2] for key in self.nodes if key.rpartition("/")[0] == path)

    def create(self, path: str, value: bytes) -> None:
        """Create a record."""
        self.transaction([Create(path, value)])

    def set(self, path: str, value: bytes, version: int) -> None:
        """Replace a record's value."""
        self.transaction([Set(path, value, version)])

    def delete(self, path: str, version: int) -> None:
        """Delete a record."""
        self.transaction([Delete(path, version)])

    def transaction(self, parts: Sequence[Part]) -> None:
        """Do all or none."""
        self.before_write()
        after = dict(self.nodes)
        for part in parts:
            standing = after.get(part.path)
            if isinstance(part, Create):
                if standing:
                    raise VersionConflict(part.path)
                after[part.path] = Node(part.value, 0, 0, 0)
                continue
            if standing is None or standing.version != part.version:
                raise VersionConflict(part.path)
            if isinstance(part, Set):
                after[part.path] = Node(part.value, standing.version + 1, 0, 0)
            elif isinstance(part, Delete):
                del after[part.path]
        self.nodes = after
