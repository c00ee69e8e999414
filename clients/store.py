"""What all metadata stores have in common, as bulk copy and bulk compare see them.

Paths are bytes (UTF-8, absolute, beginning with `/`, relative to the chroot or namespace); the root `/` itself is no
record. Readers leave out what belongs to the server: `/zookeeper` and Oxia's `__oxia/` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from models.store_url import StoreUrl

#: Pulsar's own coordination subtree: belongs to one store, and is never copied or compared (PIP-454).
COORDINATOR = b"/pulsar/migration-coordinator"

#: Stands for "no record" where a version is expected.
ABSENT = -1

Guard = Callable[[], object]
"""Raises StoreConflict where its caller must not write any more, by what stands in the store now."""


class Record(NamedTuple):
    """One znode, or one Oxia record.

    Attributes:
        path: absolute path.
        value: the data; a znode without data reads as `b""`.
        version: data version (znode) or version id (Oxia).
        count: how many children were ever created beneath it, which is the number that the next sequential child gets
            (znode: (cversion + numChildren) // 2); Oxia: the modification count, which Pulsar uses for the same.
        owner: session that holds an ephemeral record; 0 for a persistent one.
        changed: highest zxid that created or set the node; 0 on Oxia.
        children_changed: zxid of the last creation or deletion of a child (pzxid); 0 on Oxia.
    """

    path: bytes
    value: bytes
    version: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - nobody counts a record's fields
    owner: int
    changed: int
    children_changed: int


class Partition(NamedTuple):
    """A part of a store that one task scans; plain data, so that it travels to an executor.

    The partitions of one `partitions()` call are disjoint and together hold every record exactly once, except for those
    that come and go meanwhile.
    """

    singles: tuple[bytes, ...]
    """Records to read by themselves, without what is beneath them."""
    subtrees: tuple[bytes, ...]
    """Records to read with all that is beneath them."""
    shard: int
    """Oxia's shard to scan; -1 on ZooKeeper."""
    start: bytes
    """Oxia: first key of the range, empty for the shard's begin."""
    end: bytes
    """Oxia: key behind the range, empty for the shard's end."""


class Unreadable(NamedTuple):
    """A record whose value the store refused to give (ACL)."""

    path: bytes
    reason: str


class Seen(NamedTuple):
    """A record as it was seen."""

    path: bytes
    version: int


class StoreReader(Protocol):
    """Reads a store and cannot write to it; a context manager."""

    url: StoreUrl

    def partitions(self, wanted: int) -> list[Partition]:
        """Split the store into about `wanted` parts of like size."""
        ...

    def scan(self, partition: Partition) -> Iterator[list[Record | Unreadable]]:
        """All records of one partition, in batches; a record that vanishes meanwhile is left out."""
        ...

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        """The records of these paths, in their order, pipelined; None where there is none."""
        ...

    def children(self, path: bytes) -> list[bytes]:
        """Full paths of the direct children, `[]` if the node does not exist."""
        ...

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        """Full paths of the direct children of many nodes, in no order; without a round trip for each."""
        ...

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StoreWriter(Protocol):
    """Writes records in bulk, many at a time; nothing counts as written before `flush` returned. A context manager."""

    url: StoreUrl

    def put(self, record: Record, *, over: int | None) -> None:
        """Write value, version and count of a persistent record (see each store for what it can keep).

        Args:
            record: what must stand.
            over: what it may replace: `ABSENT` nothing, so that a record that stands is left as it is; a version
                only that one, and another makes `flush` raise StoreConflict; None whatever stands.

        Blocks while too much is in flight.
        """
        ...

    def delete(self, path: bytes, *, expected: int | None = None) -> None:
        """Delete one record; one that is absent is none of `flush`'s count.

        With `expected` it must have that version, else `flush` raises StoreConflict. A znode that has children stays,
        and is none of the count either.
        """
        ...

    def flush(self) -> int:
        """Wait until everything is acknowledged; returns the number of records written or deleted since the last flush.

        Raises:
            StoreConflict: a record had another version than the expected one.
            StoreError: a write failed; which ones were done is not known, and all can be repeated.
        """
        ...

    def close(self) -> None:
        """Free the connections without a flush; harmless when done twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StoreRemover(Protocol):
    """Deletes records in bulk, as long as its guard allows it; a context manager.

    The server holds the fence: once `clients.stores.revoke_permits` was called, it refuses deletions that are still on
    their way.
    """

    url: StoreUrl

    def remove(self, seen: Sequence[Seen]) -> int:
        """Delete records that are as they were seen; returns how many.

        Others stay, and so does a znode that has children which are not among these.

        Raises:
            StoreConflict: the guard refuses.
            StoreError: the store failed; which ones were deleted is not known.
        """
        ...

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
