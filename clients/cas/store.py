"""Records that change by compare-and-set only, the same for every metadata store.

Paths are text, absolute, beginning with `/`, relative to the chroot or namespace. A version belongs to one record; a
record that is deleted and created again may get a version that it had before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

from clients.errors import StoreContention, VersionConflict
from models.store_url import StoreUrl

ResultT = TypeVar("ResultT")
KeyT = TypeVar("KeyT")

TRIES = 5
"""How often a compare-and-set is tried (PIP-477, "Phase 5: PROMOTE")."""


class Node(NamedTuple):
    """A record as it was read.

    Attributes:
        value: the data.
        version: what a compare-and-set compares.
        modified_ms: when it was written, in milliseconds since 1970 by the store's own clock.
        txid: ZooKeeper: the transaction id that wrote it; Oxia: 0.
    """

    value: bytes
    version: int
    modified_ms: int
    txid: int


class Create(NamedTuple):
    """Part of a transaction: the record must not exist."""

    path: str
    value: bytes = b""


class Set(NamedTuple):
    """Part of a transaction: the record must stand at this version; -1 means any."""

    path: str
    value: bytes
    version: int


class Delete(NamedTuple):
    """Part of a transaction: the record must stand at this version (-1 means any) and have no children."""

    path: str
    version: int


class Check(NamedTuple):
    """Part of a transaction: the record must stand at this version."""

    path: str
    version: int


Part = Create | Set | Delete | Check


class CasReader(Protocol):
    """Reads records, and cannot write; a context manager.

    Each read sees all that was written before it, whichever server answers.
    """

    @property
    def url(self) -> StoreUrl:
        """The store."""
        ...

    def get(self, path: str) -> Node | None:
        """The record; None if there is none."""
        ...

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted; `[]` if there is no such record."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class CasStore(CasReader, Protocol):
    """Reads records, and writes them on a condition."""

    def create(self, path: str, value: bytes) -> None:
        """Create a record, with the parents that the store wants.

        Raises:
            VersionConflict: it exists.
        """
        ...

    def set(self, path: str, value: bytes, version: int) -> None:
        """Replace the value of a record that stands at this version.

        Raises:
            VersionConflict: it has another version, or does not exist.
        """
        ...

    def delete(self, path: str, version: int) -> None:
        """Delete a record that stands at this version.

        Raises:
            VersionConflict: it has another version, does not exist, or has children.
        """
        ...

    def transaction(self, parts: Sequence[Part]) -> None:
        """Do all of these or none; parents are not created.

        Raises:
            VersionConflict: one of them cannot be done; the message names it.
            StoreUnsupported: the store has no transactions over several records.
        """
        ...


def retry(change: Callable[[], ResultT], what: str) -> ResultT:
    """Make a change that reads first, and again from its read on where somebody else wrote in between.

    Args:
        change: reads, and writes on the condition of what it read.
        what: is changed, for the message.

    Raises:
        StoreContention: others came first each time.
    """
    tries = 0
    while True:
        try:
            return change()
        # Other conflicts say that somebody else is in charge; reading again would not change that.
        except VersionConflict as error:  # mutant: shared/final-conflicts-are-tried-again
            tries += 1
            if tries == TRIES:
                raise StoreContention(f"{what} was changed by others {TRIES} times in a row: {error}") from error


def write_alone(store: CasStore, path: str, value: bytes, version: int | None) -> int:
    """Write a record that one attempt at a time writes; returns the version at which it stands now.

    Args:
        store: where it is.
        path: of the record.
        value: of the record.
        version: at which it was read; None where there was none.

    Raises:
        StoreContention: another attempt has written it, before or right after.
    """
    try:
        if version is None:
            store.create(path, value)
        else:
            store.set(path, value, version)
    except VersionConflict as cause:
        raise StoreContention(f"{path}: another attempt has written it, and continues") from cause
    node = store.get(path)
    # With the version of another attempt's value, this one would overwrite it.
    if node is None or node.value != value:
        raise StoreContention(f"{path}: another attempt has written it, and continues")
    return node.version


def remove_tree(store: CasReader, path: str, delete: Callable[[str, int], None]) -> None:
    """Remove a record with all beneath it; harmless where there is none.

    Args:
        store: where it is.
        path: of the record.
        delete: deletes one record at a version, behind the fence of whoever is in charge.

    Raises:
        VersionConflict: somebody writes there meanwhile.
    """
    for name in store.children(path):
        remove_tree(store, f"{path}/{name}", delete)
    if node := store.get(path):
        delete(path, node.version)


def retry_each(keys: Sequence[KeyT], change: Callable[[Sequence[KeyT]], Sequence[KeyT]]) -> list[KeyT]:
    """The loop of `retry` for many records at once.

    Args:
        keys: the records.
        change: reads and writes the records that it is given; returns those that somebody else wrote in between.

    Returns:
        The records that others kept changing.
    """
    waiting = list(keys)
    for _ in range(TRIES):
        if not waiting:
            break
        waiting = list(change(waiting))
    return waiting
