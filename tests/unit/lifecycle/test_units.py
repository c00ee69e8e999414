"""Numbers of results as text: rounded, with their units."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from models.lifecycle.units import (
    Bytes,
    BytesPerSecond,
    Count,
    Entries,
    Ledgers,
    Quantity,
    Records,
    RecordsPerSecond,
    Seconds,
    Unit,
    describe,
    format_value,
)

TIME, SIZE = Unit(Quantity.TIME), Unit(Quantity.SIZE)


class Inner(BaseModel):
    """A part of a result."""

    copied_ledgers: Ledgers
    compared_entries: Entries
    seconds: Seconds = 0.0


class Figures(BaseModel):
    """A result as migrations have it."""

    blocked_seconds: Seconds
    copied_bytes: Bytes = 0
    copied_records: Records = 0
    records: Records = 0
    rate: RecordsPerSecond = 0.0
    speed_bytes: BytesPerSecond = 0.0
    rounds: Count = 0
    by_kind: dict[str, Ledgers] = Field(default_factory=dict)
    verify_seconds: Seconds | None = None
    seconds_of_rollback: Seconds | None = None
    whole: bool = True
    build: Inner | None = None
    odd: float = Field(default=0.0, title="something odd")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.231, "231 ms"),
        (1.94, "1.9 s"),
        (59.4, "59.4 s"),
        (60, "1 min"),
        (750, "12 min 30 s"),
        (11_520, "3 h 12 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 90, "90 d"),
    ],
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    """Times are shown in the unit that people use for them."""
    assert TIME.format(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (812, "812 B"), (1234, "1.2 kB"), (999_960, "1.0 MB"), (1_234_567_890, "1.2 GB"), (5e12, "5.0 TB")],
)
def test_sizes(size: float, text: str) -> None:
    """Sizes are shown in decimal units, with one digit after the point."""
    assert SIZE.format(size) == text


def test_a_model_is_described_by_its_annotations() -> None:
    """Each field that has a value is shown with its unit, and its name does not repeat that."""
    figures = Figures(
        blocked_seconds=1.94,
        copied_bytes=1_234_567_890,
        copied_records=957_073,
        records=1,
        rate=81_234.5,
        speed_bytes=12_400_000,
        rounds=3,
        by_kind={"schema": 1, "cursor": 1200},
        seconds_of_rollback=75,
        build=Inner(copied_ledgers=1, compared_entries=20_000, seconds=45.04),
        odd=0.12345,
    )
    assert [str(field) for field in describe(figures)] == [
        "blocked 1.9 s",
        "copied 1.2 GB",
        "copied 957,073 records",
        "records 1",
        "rate 81,234 records/s",
        "speed 12.4 MB/s",
        "rounds 3",
        "by kind: schema 1 ledger, cursor 1,200 ledgers",
        "of rollback 1 min 15 s",
        "whole: yes",
        "build: copied 1 ledger, compared 20,000 entries, 45.0 s",
        "something odd 0.123",
    ]


def test_zeros_can_be_left_out() -> None:
    """Zeros can be left out while nothing was measured yet, also in inner models."""
    nothing = Figures(blocked_seconds=0, rounds=1, build=Inner(copied_ledgers=0, compared_entries=0))
    assert [str(field) for field in describe(nothing, zeros=False)] == ["rounds 1", "by kind: none", "whole: yes"]


def test_json_is_exact_and_its_schema_names_the_unit() -> None:
    """Units change nothing in what is sent, and are documented in the JSON schema."""
    figures = Figures(blocked_seconds=1.9421)
    assert figures.model_dump(mode="json")["blocked_seconds"] == 1.9421
    fields = Figures.model_json_schema()["properties"]
    assert (fields["blocked_seconds"]["unit"], fields["rate"]["unit"]) == ("seconds", "records/s")
    assert fields["rounds"]["unit"] == "number"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "yes"),
        ([], "none"),
        (("a", "b"), "a, b"),
        (("a: 1, 2", "b"), "a: 1, 2; b"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
        (timedelta(minutes=90), "1 h 30 min"),
        (datetime(2026, 3, 1, 13, 0, tzinfo=timezone(timedelta(hours=1))), "2026-03-01 12:00:00Z"),
        (datetime(2026, 3, 1, 12, 0, tzinfo=UTC), "2026-03-01 12:00:00Z"),
        (12345, "12,345"),
        ("as it is", "as it is"),
    ],
)
def test_values_without_units(value: object, text: str) -> None:
    """Values without a unit are shown by their type."""
    assert format_value(value) == text


@given(st.sampled_from([TIME, SIZE, Unit(), Unit(noun="entries")]), st.floats(0, 1e15) | st.integers(0, 10**15))
def test_every_number_is_short(unit: Unit, value: float) -> None:
    """No number needs more than a glance."""
    assert 1 <= len(unit.format(value)) <= 30
