"""From the runs of a benchmark to medians, tables and a file: what all benchmarks share."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bench.lifecycle.machine import tell
from pulsar_devstack.traffic.audit import DeliveryAudit

OUT = Path(__file__).parents[1] / "out"
"""Where benchmarks write their figures."""


class Side(StrEnum):
    """Side of a comparison: the whole workflow, its Spark jobs alone in an idle session, or Pulsar's own program."""

    OURS = "ours"
    JOBS = "jobs"
    PEER = "peer"


SIDES = (Side.OURS, Side.PEER)
"""Those of a benchmark that measures no jobs alone."""


def parse_sides(text: str) -> list[Side]:
    """Return the sides that an option names, separated by commas."""
    names = text.split(",")
    if unknown := set(names) - {*SIDES}:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not among {', '.join(SIDES)}")
    return [Side(name) for name in names]


class OfSide(Protocol):
    """A run, whatever its figures are."""

    @property
    def side(self) -> Side:
        """Side that the run belongs to."""
        ...


RunT = TypeVar("RunT", bound=OfSide)


@dataclass(frozen=True)
class Run:
    """One run of one side.

    Attributes:
        side: whose.
        figures: measured values by name; the name ends with the unit.
        faults: what went wrong, in words.
    """

    side: Side
    figures: dict[str, float]
    faults: tuple[str, ...] = ()


@dataclass
class Results(Generic[RunT]):
    """Runs of one benchmark.

    Attributes:
        machine: what it ran on, and with which versions and options.
        runs: in the order in which they ran.
    """

    machine: dict[str, Any]
    runs: list[RunT] = field(default_factory=list[RunT])

    def of_side(self, side: Side) -> list[RunT]:
        """Return the runs of one side."""
        return [run for run in self.runs if run.side is side]

    def first_of(self, side: Side) -> RunT | None:
        """Return the run of a side that has one; None where it was left out."""
        return next(iter(self.of_side(side)), None)


@dataclass(frozen=True)
class Spread:
    """The values of one figure over several runs."""

    median: float
    lowest: float
    highest: float
    runs: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return median and range; None where there is no value."""
        sorted_values = list(values)
        return (
            cls(statistics.median(sorted_values), min(sorted_values), max(sorted_values), len(sorted_values))
            if sorted_values
            else None
        )

    def shown(self, form: str | None = None, scale: float = 1.0) -> str:
        """Return the result as text: the median, and the range of more than one run."""
        median, lowest, highest = (
            form.format(value * scale) if form else _number(value * scale)
            for value in (self.median, self.lowest, self.highest)
        )
        return median if self.runs == 1 else f"{median} ({lowest}–{highest})"


DELIVERY = {
    "acknowledged": "messages acknowledged",
    "lost": "lost",
    "order_violations": "out of order",
    "duplicates": "duplicates",
    "duplicates_send_under_way": "duplicates, send under way",
    "duplicates_acknowledgement_under_way": "duplicates, acknowledgement under way",
    "corrupt": "corrupt",
    "dead_producers": "dead producers",
    "dead_consumers": "dead consumers",
}
"""Counts of the delivery audit, and what tables call them."""


def delivery_figures(audit: DeliveryAudit) -> dict[str, float]:
    """Return the figures of `DELIVERY`."""
    duplicates = audit.duplicates
    return {
        "acknowledged": audit.acknowledged,
        "lost": audit.lost,
        "order_violations": audit.reordered,
        "duplicates": duplicates.other,
        "duplicates_send_under_way": duplicates.resent,
        "duplicates_acknowledgement_under_way": duplicates.unconfirmed,
        "corrupt": audit.corrupt,
        "dead_producers": len(audit.dead_producers),
        "dead_consumers": len(audit.dead_consumers),
    }


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose other columns are numbers."""
    lines = [f"| {' | '.join(head)} |".replace("|  |", "| |"), "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def figures_table(head: Sequence[str], labels: Mapping[str, str], columns: Sequence[Mapping[str, float]]) -> str:
    """Return a table with a line for each label, and a column for each side."""
    rows = ([label, *(_figure(name, column[name]) for column in columns)] for name, label in labels.items())
    return markdown(head, rows)


def order(runs: Mapping[Side, int]) -> list[tuple[Side, int]]:
    """Return side and number of each run: spread evenly, so that a drift of the machine hits all sides alike."""
    most = max(runs.values())
    return [
        (side, number)
        for turn in range(1, most + 1)
        for side, count in runs.items()
        for number in range(count * (turn - 1) // most + 1, count * turn // most + 1)
    ]


def write(name: str, content: Mapping[str, Any]) -> Path:
    """Write a file of figures; returns its path."""
    OUT.mkdir(exist_ok=True)
    path = OUT / name
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def conclude(table: str, *files: Path) -> None:
    """Print the result, and say where the figures are."""
    print(table)
    for path in files:
        tell(f"figures are in {path}")


def _figure(name: str, value: float) -> str:
    return f"{value:.2f}" if name.endswith("seconds") else f"{value:,.0f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
