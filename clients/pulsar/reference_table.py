"""Table of all references to ledgers: about twenty bytes for each, and the paths of the nodes that name them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from clients.pulsar.references import LedgerReference, ReferenceKind


class _Use(NamedTuple):
    """Part that many references share."""

    kind: ReferenceKind
    cluster: str | None
    last: bool
    offloaded: bool


class ReferenceTable:
    """References in the order in which they were added; not changed once it is made.

    Args:
        found: of each node together.
    """

    def __init__(self, references: Iterable[LedgerReference] = ()) -> None:
        self._ids, self._path, self._use = array("q"), array("L"), array("L")
        self._paths: list[str] = []
        self._uses: list[_Use] = []
        self._order: array[int] | None = None
        #: The same for the same references in any order.
        self.digest = 0
        numbers: dict[_Use, int] = {}
        for reference in references:
            # A node's references follow each other.
            if not self._paths or self._paths[-1] != reference.path:
                self._paths.append(reference.path)
            use = _Use(reference.kind, reference.cluster, reference.last, reference.offloaded)
            number = numbers.get(use)
            if number is None:
                number = numbers[use] = len(self._uses)
                self._uses.append(use)
            self._ids.append(reference.ledger_id)
            self._path.append(len(self._paths) - 1)
            self._use.append(number)
            self.digest = (self.digest + xxh3_64_intdigest(repr(tuple(reference)).encode())) & ((1 << 64) - 1)

    def plus(self, more: Iterable[LedgerReference]) -> ReferenceTable:
        """Return a table with further references."""
        further = list(more)
        return ReferenceTable([*self, *further]) if further else self

    @property
    def ids(self) -> set[int]:
        """Of all ledgers that are referred to."""
        return set(self._ids)

    @property
    def highest(self) -> int:
        """The highest id of a ledger that is referred to, -1 if none is."""
        return max(self._ids, default=-1)

    def of(self, ledger_id: int) -> list[LedgerReference]:
        """Return the references to one ledger."""
        if self._order is None:
            ids = self._ids
            self._order = array("L", sorted(range(len(ids)), key=ids.__getitem__))
        order = self._order
        at = bisect_left(order, ledger_id, key=self._ids.__getitem__)
        references: list[LedgerReference] = []
        while at < len(order) and self._ids[order[at]] == ledger_id:
            references.append(self._at(order[at]))
            at += 1
        return references

    def __contains__(self, ledger_id: int) -> bool:
        """Return whether a ledger is referred to."""
        return bool(self.of(ledger_id))

    def __iter__(self) -> Iterator[LedgerReference]:
        return map(self._at, range(len(self._ids)))

    def __len__(self) -> int:
        return len(self._ids)

    def _at(self, index: int) -> LedgerReference:
        kind, cluster, last, offloaded = self._uses[self._use[index]]
        return LedgerReference(self._ids[index], kind, self._paths[self._path[index]], cluster, last, offloaded)
