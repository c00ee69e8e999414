"""From single flips to sums, a table and `bench/out/blue_green.json`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Side(StrEnum):
    """Who flips: the migration, or the broker's mechanism alone."""

    OURS = "ours"
    PEER = "peer"


@dataclass(frozen=True)
class Flip:
    """One flip.

    Attributes:
        side: who flipped.
        figures: measured values by name.
        faults: what went wrong, in words.
    """

    side: Side
    figures: dict[str, float]
    faults: tuple[str, ...]


# What is counted adds up, what lasts is as long as the longest.
_SUMS = (
    "acknowledged",
    "lost",
    "order_violations",
    "duplicates",
    "duplicates_send_under_way",
    "duplicates_acknowledgement_under_way",
    "corrupt",
    "dead_producers",
    "dead_consumers",
    "stuck_brokers",
)
_LONGEST = ("longest_gap_seconds", "longest_send_seconds")
_LABELS = {
    "acknowledged": "messages acknowledged",
    "lost": "lost",
    "order_violations": "out of order",
    "duplicates": "duplicates",
    "duplicates_send_under_way": "duplicates, send under way",
    "duplicates_acknowledgement_under_way": "duplicates, acknowledgement under way",
    "corrupt": "corrupt",
    "dead_producers": "dead producers",
    "dead_consumers": "dead consumers",
    "stuck_brokers": "flips after which brokers had to be restarted",
    "longest_gap_seconds": "longest gap (s)",
    "median_gap_seconds": "median of the flips' longest gaps (s)",
    "longest_send_seconds": "longest send (s)",
}


@dataclass
class Results:
    """All flips of one benchmark.

    Attributes:
        machine: what it ran on, and with which versions and options.
        flips: in the order in which they ran.
    """

    machine: dict[str, Any]
    flips: list[Flip] = field(default_factory=list[Flip])

    def of(self, side: Side) -> dict[str, float] | None:
        """The figures of one side over all its flips; None without any."""
        found = [flip.figures for flip in self.flips if flip.side is side]
        if not found:
            return None
        gaps = [one["longest_gap_seconds"] for one in found]
        return {
            "flips": len(found),
            **_over(found, _SUMS, sum),
            **_over(found, _LONGEST, max),
            "median_gap_seconds": statistics.median(gaps),
            "flips_with_faults": sum(bool(flip.faults) for flip in self.flips if flip.side is side),
        }

    def summary(self) -> dict[str, Any]:
        """The content of `bench/out/blue_green.json`."""
        return {
            "flips": max((sum(flip.side is side for flip in self.flips) for side in Side), default=0),
            **{side.value: self.of(side) for side in Side},
            "detail": {
                "machine": self.machine,
                "runs": [
                    {"side": flip.side.value, "figures": flip.figures, "faults": flip.faults} for flip in self.flips
                ],
            },
        }

    def table(self) -> str:
        """Markdown: both sides beside each other, sums and longest times over all flips."""
        sides = {side: self.of(side) for side in Side}
        heads = [f"{side.value}, {int(found['flips'])} flips" for side, found in sides.items() if found]
        lines = [f"| | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
        for name, label in _LABELS.items():
            cells = [_shown(name, found[name]) for found in sides.values() if found]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join(lines)


def order(flips: int, of_peer: int) -> list[tuple[Side, int]]:
    """Side and number of each flip: the peer's are spread over ours, so that a drift of the machine hits both alike."""
    found: list[tuple[Side, int]] = []
    for number in range(1, flips + 1):
        found.append((Side.OURS, number))
        before, now = (of_peer * count // flips for count in (number - 1, number))
        found += [(Side.PEER, one) for one in range(before + 1, now + 1)]
    return found


def _over(
    figures: Sequence[dict[str, float]], names: Sequence[str], combine: Callable[[list[float]], float]
) -> dict[str, float]:
    return {name: combine([one[name] for one in figures]) for name in names}


def _shown(name: str, value: float) -> str:
    return f"{value:.2f}" if name.endswith("_seconds") else f"{value:,.0f}"
