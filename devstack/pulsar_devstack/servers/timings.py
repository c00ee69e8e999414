"""How long each of several things takes that continue side by side, and which of them the others wait for."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """One item's time.

    Attributes:
        name: what it is called in the table.
        begun: seconds after the first.
        ended: likewise.
    """

    name: str
    begun: float
    ended: float


class Timings:
    """The items of one run; any thread may measure one."""

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self._spans: list[Span] = []

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Measure the time until the end of the context, also if it fails."""
        begun = time.monotonic() - self._zero
        try:
            yield
        finally:
            self._spans.append(Span(name, begun, time.monotonic() - self._zero))

    def table(self) -> list[str]:
        """Return a head, a line for each item in the order of their starts, and the total; empty without items."""
        if not self._spans:
            return []
        width = max(len(span.name) for span in self._spans) + 2
        lines = [f"{'item':<{width}}   began  seconds  waited for"]
        for span in sorted(self._spans, key=lambda span: span.begun):
            seconds, alone = span.ended - span.begun, time_alone(span, self._spans)
            lines.append(f"{span.name:<{width}} {span.begun:>7.1f}  {seconds:>7.1f}  {alone:>10.1f}")
        return [*lines, f"{'total':<{width}} {'':>7}  {max(span.ended for span in self._spans):>7.1f}"]


def time_alone(item: Span, spans: Sequence[Span]) -> float:
    """Return the seconds in which only this item ran: a faster item would have saved all of them."""
    others = [*spans]
    others.remove(item)
    edges = {item.begun, item.ended, *(edge for span in others for edge in (span.begun, span.ended))}
    inner = sorted(edge for edge in edges if item.begun <= edge <= item.ended)
    return sum(
        end - begin
        for begin, end in pairwise(inner)
        if not any(span.begun <= begin and end <= span.ended for span in others)
    )
