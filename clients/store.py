"""Common interface of all metadata stores, as bulk copy and bulk compare use it.

Paths are bytes (UTF-8, absolute, starting with `/`, relative to the chroot or namespace); the root `/` is not a record.
Readers leave out what belongs to the server: `/zookeeper` and Oxia's `__oxia/` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from clients.errors import StoreProtocolError
from models.store_url import StoreUrl

#: Pulsar's own coordination subtree: belongs to one store, and is never copied or compared (PIP-454).
COORDINATOR = b"/pulsar/migration-coordinator"

#: Expected version of a record that must not exist.
ABSENT = -1

#: Shard of all records of a store without shards.
NO_SHARD = -1

Guard = Callable[[], object]
"""Check that raises StoreConflict if its caller must not write any more by the store's current state."""


def text_of(data: bytes, path: bytes) -> str:
    """Return a name or a value as text.

    Args:
        data: what was read.
        path: of the record.

    Raises:
        StoreProtocolError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        name = path.decode(errors="backslashreplace")
        raise StoreProtocolError(f"{name} is not UTF-8; check which client wrote it", path=path) from None


def name_of(path: bytes) -> str:
    """Return the last part of a path as text.

    Raises:
        StoreProtocolError: it is not UTF-8.
    """
    return text_of(path.rpartition(b"/")[2], path)


class Record(NamedTuple):
    """One znode, or one Oxia record.

    Attributes:
        path: absolute path.
        value: value; a znode without data reads as `b""`.
        version: data version (znode) or version id (Oxia).
        count: how many children were ever created beneath it, which is the number that the next sequential child gets
            (znode: (cversion + numChildren) // 2); Oxia: the modification count, which Pulsar uses for the same.
        owner: session that holds an ephemeral record; 0 for a persistent one.
        changed: highest zxid that created or set the node; 0 on Oxia.
        children_changed: zxid of the last creation or deletion of a child (pzxid); 0 on Oxia.
        created: zxid that created the node; 0 on Oxia.
    """

    path: bytes
    value: bytes
    version: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - hides a method of tuples that is not used
    owner: int
    changed: int
    children_changed: int
    created: int = 0


class Partition(NamedTuple):
    """A part of a store that one task scans; plain data, so that it travels to an executor.

    The partitions of one `partitions()` call are disjoint, and together hold every record exactly once, except records
    that are created or deleted during the scan.
    """

    singles: tuple[bytes, ...]
    """Records to read without their children."""
    subtrees: tuple[bytes, ...]
    """Records to read with everything beneath them."""
    shard: int
    """Oxia's shard to scan; NO_SHARD on ZooKeeper."""
    start: bytes
    """Oxia: first key of the range, empty for the start of the shard."""
    end: bytes
    """Oxia: key after the range, empty for the end of the shard."""


class Unreadable(NamedTuple):
    """A record whose value the store refused to return (ACL)."""

    path: bytes
    reason: str


class Seen(NamedTuple):
    """Path and version of a record as it was read."""

    path: bytes
    version: int


class StoreReader(Protocol):
    """Reader of a store; a context manager."""

    url: StoreUrl

    def partitions(self, wanted: int) -> list[Partition]:
        """Split the store into about `wanted` parts of similar size."""
        ...

    def scan(self, partition: Partition) -> Iterator[list[Record | Unreadable]]:
        """Yield all records of one partition, in batches; leave out records that are deleted during the scan."""
        ...

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        """Return the records of these paths, in their order, pipelined; None for a missing record."""
        ...

    def shard_of(self, path: bytes) -> int:
        """Return the shard that has the record of this path; NO_SHARD on ZooKeeper."""
        ...

    def children(self, path: bytes) -> list[bytes]:
        """Return the full paths of the direct children, `[]` if the node does not exist."""
        ...

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the full paths of the direct children of many nodes, in no order, without a round trip for each."""
        ...

    def close(self) -> None:
        """Close the connections; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StoreWriter(Protocol):
    """Writer of many records at a time; nothing counts as written before `flush` returned. A context manager."""

    url: StoreUrl

    def put(self, record: Record, *, over: int | None) -> None:
        """Write value, version and count of a persistent record (see each store for what it can keep).

        Args:
            record: record to write.
            over: what it may replace. `ABSENT`: nothing, an existing record stays as it is. A version: only that one,
                    else `flush` raises StoreConflict. None: any record.

        Blocks while too much is in flight.
        """
        ...

    def delete(self, path: bytes, *, expected: int | None = None) -> None:
        """Delete one record; a missing one is not in the count of `flush`.

        With `expected` it must have that version, else `flush` raises StoreConflict. A znode that has children stays,
        and is not counted either.
        """
        ...

    def flush(self) -> int:
        """Wait until everything is acknowledged; return the number of records written or deleted since the last flush.

        Raises:
            StoreConflict: a record had another version than the expected one.
            StoreError: a write failed; it is unknown which ones were done, and all can be repeated.
        """
        ...

    def close(self) -> None:
        """Close the connections without a flush; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StoreRemover(Protocol):
    """Bulk deletion of records, as long as its guard allows it; a context manager.

    The server enforces the fence: after `clients.stores.revoke_permits` it refuses deletions that are still in
    flight.
    """

    url: StoreUrl

    def remove(self, seen: Sequence[Seen]) -> int:
        """Delete records that still have the version that was read; return how many.

        Others stay, and so does a znode with children that are not among these.

        Raises:
            StoreConflict: the guard refuses.
            StoreError: the store failed; it is unknown which ones were deleted.
        """
        ...

    def close(self) -> None:
        """Close the connections; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
