"""A number for each of very many ledgers, at sixteen bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableMapping

# Changes are merged into the arrays when there are so many, which copies those.
_RECENT = 20_000


class IdNumbers(MutableMapping[int, int]):
    """Numbers by ledger id, ascending.

    Args:
        items: ids and their numbers, in any order; of an id that comes twice the later one counts.
    """

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        self._ids, self._numbers = array("q"), array("q")
        # None for an id that was taken out.
        self._recent: dict[int, int | None] = {}
        for ledger, number in items:
            self[ledger] = number

    def __getitem__(self, ledger: int) -> int:
        found = self._recent[ledger] if ledger in self._recent else self._settled(ledger)
        if found is None:
            raise KeyError(ledger)
        return found

    def __setitem__(self, ledger: int, number: int) -> None:
        self._recent[ledger] = number
        if len(self._recent) >= _RECENT:
            self._merge()

    def __delitem__(self, ledger: int) -> None:
        if ledger not in self:
            raise KeyError(ledger)
        if self._settled(ledger) is None:
            del self._recent[ledger]
        else:
            self._recent[ledger] = None

    def __iter__(self) -> Iterator[int]:
        self._merge()
        return iter(self._ids)

    def __len__(self) -> int:
        self._merge()
        return len(self._ids)

    def _settled(self, ledger: int) -> int | None:
        at = bisect_left(self._ids, ledger)
        return self._numbers[at] if at < len(self._ids) and self._ids[at] == ledger else None

    def _merge(self) -> None:
        if not self._recent:
            return
        ids, numbers, at = array("q"), array("q"), 0
        for ledger in sorted(self._recent):
            end = bisect_left(self._ids, ledger, lo=at)
            ids += self._ids[at:end]
            numbers += self._numbers[at:end]
            at = end + (end < len(self._ids) and self._ids[end] == ledger)
            number = self._recent[ledger]
            if number is not None:
                ids.append(ledger)
                numbers.append(number)
        self._ids, self._numbers = ids + self._ids[at:], numbers + self._numbers[at:]
        self._recent = {}
