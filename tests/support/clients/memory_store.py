"""A store in memory, for what only concerns the order of reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clients.cas.store import Create, Delete, Node, Part, Set
from clients.closeable import Closeable
from clients.errors import VersionConflict
from models.store_url import parse_store_url


class MemoryStore(Closeable):
    """A `CasStore` in memory; `before_write` acts between a read and the write that follows it.

    Attributes:
        nodes: all records.
        children_changed: number of the last transaction that created or deleted a child, by path.
    """

    url = parse_store_url("zk:memory:2181")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.children_changed: dict[str, int] = {}
        self.before_write: Callable[[], None] = lambda: None
        self._txid = 0

    def close(self) -> None:
        """Nothing to free."""

    def get(self, path: str) -> Node | None:
        """Return the record."""
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Return names of the direct children."""
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
        """Do all or none; as in ZooKeeper, the version -1 means any."""
        self.before_write()
        after, txid = dict(self.nodes), self._txid + 1
        for part in parts:
            standing = after.get(part.path)
            if isinstance(part, Create):
                if standing:
                    raise VersionConflict(part.path)
                after[part.path] = Node(part.value, 0, txid, txid)
                continue
            if standing is None or part.version not in (standing.version, -1):
                raise VersionConflict(part.path)
            if isinstance(part, Set):
                after[part.path] = Node(part.value, standing.version + 1, txid, txid)
            elif isinstance(part, Delete):
                del after[part.path]
        self.nodes, self._txid = after, txid
        self.children_changed |= {
            part.path.rpartition("/")[0]: txid for part in parts if isinstance(part, Create | Delete)
        }

    def meanwhile(self, *actions: Callable[[], object]) -> None:
        """Have others act before the next writes: the first before the first one, and so on."""
        left = [*actions]

        def act() -> None:
            self.before_write = lambda: None
            left.pop(0)()
            self.before_write = act if left else lambda: None

        self.before_write = act
