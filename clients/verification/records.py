"""Records of a metadata store, as a verification reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

PATHS_AT_ONCE = 200
"""Records that are requested together."""


class StoredRecord(NamedTuple):
    """One record.

    Attributes:
        value: a znode without data reads as `b""`.
        version: data version (ZooKeeper) or version id (Oxia).
        counter: what numbers the next sequential child: children ever created (ZooKeeper), or modifications (Oxia).
        is_ephemeral: a session holds it.
        created_ms: time of its creation, in milliseconds since 1970 by the server's clock.
        changed_ms: time of the last write of its value, by the same clock.
    """

    value: bytes
    version: int
    counter: int
    is_ephemeral: bool
    created_ms: int
    changed_ms: int


class Withheld(NamedTuple):
    """A record whose value the store does not return, and why."""

    reason: str


Answer = StoredRecord | Withheld | None
"""A record, why it is not returned, or None for one that does not exist."""


class RecordReader(Protocol):
    """Reader of a metadata store."""

    @property
    def layout(self) -> str:
        """Parts of the store, on which the order of `paths` depends."""
        ...

    def paths(self, scope: str, after: str) -> Iterator[list[str]]:
        """Yield the paths beneath a path, and the path itself, in an order that is always the same.

        Args:
            scope: the path; empty for the whole store.
            after: the last path of a list that was yielded before; empty for the start.
        """
        ...

    def read(self, paths: Sequence[str]) -> list[Answer]:
        """Return the records of these paths, in their order; None for one that does not exist."""
        ...
