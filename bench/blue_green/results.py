"""From single flips to sums, a table and `bench/out/blue_green.json`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench.lifecycle.results import DELIVERY, SIDES, Results, Run, Side, figures_table

# What is counted adds up, what lasts is as long as the longest.
_SUMS = (*DELIVERY, "stuck_brokers")
_LONGEST = ("longest_gap_seconds", "longest_send_seconds")
_LABELS = DELIVERY | {
    "stuck_brokers": "flips after which brokers had to be restarted",
    "longest_gap_seconds": "longest gap (s)",
    "median_gap_seconds": "median of the flips' longest gaps (s)",
    "longest_send_seconds": "longest send (s)",
}


class Flips(Results[Run]):
    """All flips of one benchmark: by the migration, and by the broker's mechanism alone."""

    def of(self, side: Side) -> dict[str, float] | None:
        """Return the figures of one side over all its flips; None without any."""
        flips = self.of_side(side)
        if not flips:
            return None
        found = [flip.figures for flip in flips]
        return {
            "flips": len(found),
            **_over(found, _SUMS, sum),
            **_over(found, _LONGEST, max),
            "median_gap_seconds": statistics.median(one["longest_gap_seconds"] for one in found),
            "flips_with_faults": sum(bool(flip.faults) for flip in flips),
        }

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/blue_green.json`."""
        return {
            "flips": max(len(self.of_side(side)) for side in SIDES),
            **{side.value: self.of(side) for side in SIDES},
            "detail": {
                "machine": self.machine,
                "runs": [
                    {"side": flip.side.value, "figures": flip.figures, "faults": flip.faults} for flip in self.runs
                ],
            },
        }

    def table(self) -> str:
        """Return a Markdown table: both sides beside each other, sums and longest times over all flips."""
        sides = {side: found for side in SIDES if (found := self.of(side))}
        head = ["", *(f"{side.value}, {int(found['flips'])} flips" for side, found in sides.items())]
        return figures_table(head, _LABELS, [*sides.values()])


def _over(
    figures: Sequence[dict[str, float]], names: Sequence[str], combine: Callable[[list[float]], float]
) -> dict[str, float]:
    return {name: combine([one[name] for one in figures]) for name in names}
