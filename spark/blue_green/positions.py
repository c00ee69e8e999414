"""Where the entries of a topic of blue stand in its copy on green, and what a subscription has acknowledged of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from clients.pulsar.wire.position import EntryPosition


class LedgerLength(NamedTuple):
    """A ledger of a topic.

    Attributes:
        ledger_id: which.
        entries: in it.
    """

    ledger_id: int
    entries: int


def places_after(ledgers: Sequence[LedgerLength], after: EntryPosition) -> Iterator[EntryPosition]:
    """The places behind one, in their order."""
    for ledger_id, entries in ledgers:
        if ledger_id >= after.ledger_id:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            for entry_id in range(first, entries):
                yield EntryPosition(ledger_id, entry_id)


def count_after(ledgers: Sequence[LedgerLength], after: EntryPosition) -> int:
    """How many entries are behind a place."""
    begun = sum(max(0, entries - after.entry_id - 1) for number, entries in ledgers if number == after.ledger_id)
    return begun + sum(entries for number, entries in ledgers if number > after.ledger_id)


class Run(NamedTuple):
    """Entries that follow each other on both sides.

    Attributes:
        blue: the first of them.
        green: its copy.
        length: how many.
    """

    blue: EntryPosition
    green: EntryPosition
    length: int


Span = tuple[int, int]
"""Consecutive entries by their numbers in the copy, the second one not among them."""


class PositionMap:
    """The entries that were copied, in their order; each has a number, counted from 0.

    Small: a run ends only where a ledger does, on one of both sides.

    Args:
        runs: in their order.
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
        """The runs in their order."""
        return tuple(self._runs)

    @property
    def last(self) -> tuple[EntryPosition, EntryPosition] | None:
        """The last entry on blue and its copy; None if nothing was copied."""
        if not self._runs:
            return None
        blue, green, count = self._runs[-1]
        return blue.moved(count - 1), green.moved(count - 1)

    def append(self, blue: EntryPosition, green: EntryPosition, count: int = 1) -> None:
        """Add entries behind all others.

        Raises:
            ValueError: they are not behind them, on one of both sides.
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
        """Where an entry stands."""
        run, offset = self._find(number)
        return run.blue.moved(offset)

    def green_at(self, number: int) -> EntryPosition:
        """Where the copy of an entry stands."""
        run, offset = self._find(number)
        return run.green.moved(offset)

    def number_of(self, blue: EntryPosition) -> int | None:
        """The number of an entry of blue; None if it was not copied."""
        number = self.up_to_on_blue(blue)
        return number - 1 if number > self.up_to_on_blue(blue.moved(-1)) else None

    def up_to_on_blue(self, place: EntryPosition) -> int:
        """How many of the copied entries stand up to and with a place of blue."""
        return self._up_to(place, [run.blue for run in self._runs])

    def up_to_on_green(self, place: EntryPosition) -> int:
        """The same for a place of green."""
        return self._up_to(place, [run.green for run in self._runs])

    def _find(self, number: int) -> tuple[Run, int]:
        index = bisect_right(self._starts, number) - 1
        return self._runs[index], number - self._starts[index]

    def _up_to(self, place: EntryPosition, firsts: list[EntryPosition]) -> int:
        index = bisect_right(firsts, place) - 1
        if index < 0:
            return 0
        first, count = firsts[index], self._runs[index].length
        inside = place.entry_id - first.entry_id + 1 if place.ledger_id == first.ledger_id else count
        return self._starts[index] + min(inside, count)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in their order, those that touch as one, and none that is empty."""
    result: list[Span] = []
    for first, end in sorted(span for span in spans if span[0] < span[1]):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return result
