"""Records that change by compare-and-set only; the same interface for every metadata store.

Paths are absolute text, start with `/` and are relative to the chroot or namespace. A version belongs to one record;
a record that is deleted and created again may get an earlier version again.
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
"""Most tries of a compare-and-set (PIP-477, "Phase 5: PROMOTE")."""


class Node(NamedTuple):
    """A record as it was read, with its version.

    Attributes:
        value: value of the record.
        version: version that a compare-and-set compares.
        modified_ms: time of the last write, in milliseconds since 1970 by the store's clock.
        txid: ZooKeeper: transaction id of the last write; Oxia: 0.
    """

    value: bytes
    version: int
    modified_ms: int
    txid: int


class Create(NamedTuple):
    """Part of a transaction: create a record that must not exist."""

    path: str
    value: bytes = b""


class Set(NamedTuple):
    """Part of a transaction: set a record that must have this version; -1 means any."""

    path: str
    value: bytes
    version: int


class Delete(NamedTuple):
    """Part of a transaction: delete a record that must have this version (-1 means any) and no children."""

    path: str
    version: int


class Check(NamedTuple):
    """Part of a transaction: the record must have this version."""

    path: str
    version: int


Part = Create | Set | Delete | Check


class CasReader(Protocol):
    """Reader of records; a context manager.

    Each read sees all earlier writes, whichever server answers.
    """

    @property
    def url(self) -> StoreUrl:
        """Address of the store."""
        ...

    def get(self, path: str) -> Node | None:
        """Return the record; None if there is none."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the direct children; `[]` if there is no such record."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class CasStore(CasReader, Protocol):
    """Reader and conditional writer of records."""

    def create(self, path: str, value: bytes) -> None:
        """Create a record, with the parents that the store requires.

        Raises:
            VersionConflict: the record exists.
        """
        ...

    def set(self, path: str, value: bytes, version: int) -> None:
        """Replace the value of a record that has this version.

        Raises:
            VersionConflict: the record has another version, or does not exist.
        """
        ...

    def delete(self, path: str, version: int) -> None:
        """Delete a record that has this version.

        Raises:
            VersionConflict: the record has another version, does not exist, or has children.
        """
        ...

    def transaction(self, parts: Sequence[Part]) -> None:
        """Perform all of these parts or none; parents are not created.

        Raises:
            VersionConflict: one part cannot be done; the message names it.
            StoreUnsupported: the store has no transactions over several records.
        """
        ...


def retry(change: Callable[[], ResultT], what: str) -> ResultT:
    """Make a change that reads first; start again from the read if another client wrote in between.

    Args:
        change: reads, and writes on condition of what it read.
        what: name of what is changed, for the message.

    Raises:
        StoreContention: other clients were faster each time.
    """
    tries = 0
    while True:
        try:
            return change()
        # Other conflicts mean that another client holds the claim; reading again would not change that.
        except VersionConflict as error:  # mutant: shared/final-conflicts-are-tried-again
            tries += 1
            if tries == TRIES:
                raise StoreContention(f"{what} was changed by others {TRIES} times in a row: {error}") from error


def write_alone(store: CasStore, path: str, value: bytes, version: int | None) -> int:
    """Write a record that one attempt at a time writes; return its new version.

    Args:
        store: store with the record.
        path: path of the record.
        value: new value.
        version: version that was read; None if there was no record.

    Raises:
        StoreContention: another attempt has written the record, just before or after.
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
    """Remove a record with all records beneath it; do nothing if it does not exist.

    Args:
        store: store with the record.
        path: path of the record.
        delete: deletes one record at a version, after the check of the fence.

    Raises:
        VersionConflict: another client writes there during the removal.
    """
    for name in store.children(path):
        remove_tree(store, f"{path}/{name}", delete)
    if node := store.get(path):
        delete(path, node.version)


def retry_each(keys: Sequence[KeyT], change: Callable[[Sequence[KeyT]], Sequence[KeyT]]) -> list[KeyT]:
    """Run the loop of `retry` for many records at once.

    Args:
        keys: the records.
        change: reads and writes the given records; returns those that another client wrote in between.

    Returns:
        The records that other clients kept changing.
    """
    waiting = list(keys)
    for _ in range(TRIES):
        if not waiting:
            break
        waiting = list(change(waiting))
    return waiting
