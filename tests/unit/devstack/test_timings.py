"""The table of durations says which of several concurrent items was waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_devstack.servers.timings import Span, Timings, time_alone

PIP, JARS, GO = Span("pip", 0, 30), Span("jars", 5, 60), Span("go", 5, 75)


@pytest.mark.parametrize(
    ("item", "spans", "seconds"),
    [
        (GO, [PIP, JARS, GO], 15),
        (JARS, [PIP, JARS, GO], 0),
        (PIP, [PIP, JARS, GO], 5),
        (PIP, [PIP], 30),
        (Span("gap", 0, 10), [Span("gap", 0, 10), Span("a", 2, 4), Span("b", 6, 8)], 6),
    ],
)
def test_only_time_without_others_counts_as_waited_for(item: Span, spans: list[Span], seconds: float) -> None:
    """An item was waited for while no other was under way, before, between and after them."""
    assert time_alone(item, spans) == pytest.approx(seconds)


def test_the_table_names_every_item_and_the_whole() -> None:
    """Items are in the order of their start, one that failed too; without items there is no table."""
    timings = Timings()
    assert timings.table() == []
    with timings.measure("outer"):
        with timings.measure("inner"):
            pass
        with pytest.raises(ZeroDivisionError), timings.measure("broken"):
            raise ZeroDivisionError
    assert [line.split()[0] for line in timings.table()] == ["item", "outer", "inner", "broken", "total"]


def test_preparation_needs_nothing_installed() -> None:
    """The code that runs before the installation imports with the standard library alone."""
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'devstack')!r}]; import pulsar_devstack.prepare"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)
