"""The slowest and the fastest recent rate of work that counts."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

_WINDOWS = 6
"""Most windows into which the recent time is split."""

_SHORTEST = 3.0
"""Seconds of counting before a rate is given."""


class RateRange(NamedTuple):
    """Rates in units per second.

    Attributes:
        slowest: of all windows; 0 if nothing was done in one of them.
        fastest: of all windows.
    """

    slowest: float
    fastest: float


class RecentRates:
    """Counts of the recent time, and the range of their rates.

    Args:
        recent: seconds for which counts are remembered.
        apart: shortest time between two kept counts.
    """

    def __init__(self, *, recent: float = 300.0, apart: float = 0.5) -> None:
        self._recent = recent
        self._apart = apart
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, at: float, done: int) -> None:
        """Add a count; `at` is in seconds by any clock that does not go back. A smaller count begins again."""
        if self._counts and done < self._counts[-1][1]:
            self.restart()
        if self._counts and at - self._counts[-1][0] < self._apart:
            return
        self._counts.append((at, done))
        while at - self._counts[0][0] > self._recent:
            self._counts.popleft()

    def restart(self) -> None:
        """Forget all counts, because the work rested or began again."""
        self._counts.clear()

    def range(self) -> RateRange | None:
        """Return the range; None while too little is known.

        Work that counts in batches has windows without any, so windows get longer until each has some.
        """
        if len(self._counts) < 2 or self._counts[-1][0] - self._counts[0][0] < _SHORTEST:
            return None
        counts = list(self._counts)
        rates: list[float] = []
        for windows in range(min(_WINDOWS, len(counts) - 1), 0, -1):
            rates = _rates(counts, windows)
            if min(rates) > 0 or windows == 2:
                break
        return RateRange(min(rates), max(rates)) if max(rates) > 0 else None


def _rates(counts: list[tuple[float, int]], windows: int) -> list[float]:
    """Return the rate of each of some windows of about the same number of counts."""
    edges = [counts[round(index * (len(counts) - 1) / windows)] for index in range(windows + 1)]
    return [(after - before) / (end - start) for (start, before), (end, after) in pairwise(edges)]
