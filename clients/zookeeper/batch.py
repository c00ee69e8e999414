"""What the bulk writer has on its way: batches of items, and the nodes in the target that they meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from clients.errors import StoreConflict, StoreDenied
from clients.store import ABSENT, Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.ops import Standing
from clients.zookeeper.scan import read_records

#: Failures of a multi that reading the nodes again may cure.
RACES = (wire.NO_NODE, wire.NODE_EXISTS, wire.BAD_VERSION, wire.NOT_EMPTY)
#: Rounds of reading and writing before others are said to change the same nodes.
ROUNDS = 20


class Item(NamedTuple):
    """A record to put; without one, a path to delete. Paths are absolute on the server.

    `over` is what may stand there: `ABSENT` nothing, a version, or None for anything.
    """

    path: bytes
    record: Record | None
    over: int | None = None

    def check(self, found: Standing | None) -> None:
        """Refuse to touch a node that is not the expected one.

        Raises:
            StoreConflict: somebody changed it.
        """
        if self.over is None or self.over == ABSENT:
            return
        stands = found.record.version if found else None
        if stands != self.over and (found or self.record):
            at = "is gone" if stands is None else f"has version {stands}"
            name = self.path.decode(errors="replace")
            raise StoreConflict(f"{name} {at}, and version {self.over} was expected", path=self.path)

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.record.value) if self.record else 0


@dataclass(eq=False)
class Batch:
    """Items whose nodes are read, then the ops planned and sent; from the start again when others interfered.

    Attributes:
        items: what to do, parents before children where records are put.
        counts: whether only the counts of the records are to be raised.
        rounds: how often it started.
        reads: paths asked for in this round.
        reading: whether their answer is due; otherwise answers to `requests` are.
        requests: multis not sent yet.
        open: multis whose answer is due.
        error: first error of this round.
        created: nodes that this round creates.
        written: items that this round deals with.
        oversize: whether it had a request that a server refuses by default.
    """

    items: list[Item]
    counts: bool = False
    rounds: int = 0
    reads: list[bytes] = field(default_factory=list[bytes])
    reading: bool = True
    requests: Iterator[bytes] = field(default_factory=lambda: iter(()))
    open: int = 0
    error: int = 0
    created: set[bytes] = field(default_factory=set[bytes])
    written: int = 0
    oversize: bool = False

    def __str__(self) -> str:
        first = self.items[0].path.decode(errors="replace")
        return first if len(self.items) == 1 else f"{len(self.items)} nodes from {first} on"

    def split(self) -> list[Batch]:
        """Halves to try again: others who write at the same time spoil small ones less often."""
        middle = -(-len(self.items) // 2)
        halves = (self.items[:middle], self.items[middle:])
        return [Batch(half, counts=self.counts, rounds=self.rounds, error=self.error) for half in halves if half]

    @property
    def largest(self) -> bytes:
        """Path of the item with the largest value."""
        return max(self.items, key=lambda item: item.size).path


def read_standing(frame: bytes, paths: list[bytes]) -> dict[bytes, Standing]:
    """The nodes that exist, from the answer to a multiRead of these paths.

    Raises:
        StoreDenied: one of them may not be read, so that nothing can be said about it.
    """
    records: list[Record | Unreadable] = []
    inner: list[tuple[bytes, int]] = []
    read_records(frame, paths, records, inner)
    children = dict(inner)
    standing: dict[bytes, Standing] = {}
    for record in records:
        if isinstance(record, Unreadable):
            raise StoreDenied(f"cannot write what cannot be read: {record.reason}", path=record.path)
        standing[record.path] = Standing(record, children.get(record.path, 0))
    return standing
