"""Positions of a topic's entries on blue and of their copies on green."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from clients.pulsar.wire.position import EntryPosition


class LedgerLength(NamedTuple):
    """Length of a ledger of a topic.

    Attributes:
        ledger_id: id of the ledger.
        entries: number of its entries.
    """

    ledger_id: int
    entries: int


def positions_after(ledgers: Sequence[LedgerLength], after: EntryPosition) -> Iterator[EntryPosition]:
    """Yield the positions after a position, in order."""
    for ledger_id, entries in ledgers:
        if ledger_id >= after.ledger_id:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            for entry_id in range(first, entries):
                yield EntryPosition(ledger_id, entry_id)


def count_after(ledgers: Sequence[LedgerLength], after: EntryPosition) -> int:
    """Return how many entries come after a position."""
    same_ledger = sum(
        max(0, entries - after.entry_id - 1) for ledger_id, entries in ledgers if ledger_id == after.ledger_id
    )
    return same_ledger + sum(entries for ledger_id, entries in ledgers if ledger_id > after.ledger_id)


class Run(NamedTuple):
    """Entries that are consecutive on both sides.

    Attributes:
        blue: position of the first entry.
        green: position of its copy.
        length: number of entries.
    """

    blue: EntryPosition
    green: EntryPosition
    length: int


Span = tuple[int, int]
"""Consecutive entries by their numbers in the copy: the first one, and the one after the last."""


class PositionMap:
    """Positions of the copied entries, in order; entries are numbered from 0.

    It is small: a run ends only where a ledger ends on one of the sides.

    Args:
        runs: runs in order.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        self._starts: list[int] = []
        self._length = 0
        for run in runs:
            self.append(*run)

    def __len__(self) -> int:
        return self._length

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs in order."""
        return tuple(self._runs)

    @property
    def last(self) -> tuple[EntryPosition, EntryPosition] | None:
        """Position of the last entry on blue and of its copy; None if nothing was copied."""
        if not self._runs:
            return None
        blue, green, count = self._runs[-1]
        return blue.moved(count - 1), green.moved(count - 1)

    def append(self, blue: EntryPosition, green: EntryPosition, count: int = 1) -> None:
        """Append entries.

        Raises:
            ValueError: they do not come after all others, on one of the sides.
        """
        if (last := self.last) is not None:
            if blue <= last[0] or green <= last[1]:
                raise ValueError(f"{blue} and {green} do not come after {last[0]} and {last[1]}")
            if blue == last[0].moved(1) and green == last[1].moved(1):
                self._runs[-1] = self._runs[-1]._replace(length=self._runs[-1].length + count)
                self._length += count
                return
        self._runs.append(Run(blue, green, count))
        self._starts.append(self._length)
        self._length += count

    def blue_at(self, number: int) -> EntryPosition:
        """Return the position of an entry on blue."""
        run, offset = self._find(number)
        return run.blue.moved(offset)

    def green_at(self, number: int) -> EntryPosition:
        """Return the position of an entry's copy on green."""
        run, offset = self._find(number)
        return run.green.moved(offset)

    def number_of(self, blue: EntryPosition) -> int | None:
        """Return the number of an entry of blue; None if it was not copied."""
        number = self.up_to_on_blue(blue)
        return number - 1 if number > self.up_to_on_blue(blue.moved(-1)) else None

    def up_to_on_blue(self, position: EntryPosition) -> int:
        """Return how many copied entries lie at or before a position on blue."""
        return self._up_to(position, [run.blue for run in self._runs])

    def up_to_on_green(self, position: EntryPosition) -> int:
        """Return how many copied entries lie at or before a position on green."""
        return self._up_to(position, [run.green for run in self._runs])

    def _find(self, number: int) -> tuple[Run, int]:
        index = bisect_right(self._starts, number) - 1
        return self._runs[index], number - self._starts[index]

    def _up_to(self, position: EntryPosition, firsts: list[EntryPosition]) -> int:
        index = bisect_right(firsts, position) - 1
        if index < 0:
            return 0
        first, count = firsts[index], self._runs[index].length
        inside = position.entry_id - first.entry_id + 1 if position.ledger_id == first.ledger_id else count
        return self._starts[index] + min(inside, count)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted and without empty ones; adjacent spans are joined."""
    result: list[Span] = []
    for first, end in sorted(span for span in spans if span[0] < span[1]):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return result
