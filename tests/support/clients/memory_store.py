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
        """Close nothing: there is nothing to free."""

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
        """Apply all operations or none; as in ZooKeeper, the version -1 matches any."""
        self.before_write()
        after, txid = dict(self.nodes), self._txid + 1
        for operation in parts:
            current = after.get(operation.path)
            if isinstance(operation, Create):
                if current:
                    raise VersionConflict(operation.path)
                after[operation.path] = Node(operation.value, 0, txid, txid)
                continue
            if current is None or operation.version not in (current.version, -1):
                raise VersionConflict(operation.path)
            if isinstance(operation, Set):
                after[operation.path] = Node(operation.value, current.version + 1, txid, txid)
            elif isinstance(operation, Delete):
                del after[operation.path]
        self.nodes, self._txid = after, txid
        self.children_changed |= {
            operation.path.rpartition("/")[0]: txid for operation in parts if isinstance(operation, Create | Delete)
        }

    def before_next_writes(self, *actions: Callable[[], object]) -> None:
        """Schedule concurrent actions: the first before the next write, and so on."""
        pending = [*actions]

        def act() -> None:
            self.before_write = lambda: None
            pending.pop(0)()
            self.before_write = act if pending else lambda: None

        self.before_write = act
