"""Ledger ids of two clusters, without servers."""

from __future__ import annotations

import pytest

from activities.blue_green.checks.client_versions import is_of_cpp
from activities.blue_green.provisioning.ledger_ids import LedgerIds
from clients.bookkeeper.idgen import generator_state


@pytest.mark.parametrize(
    ("short", "highs", "next_id"),
    [
        (7, None, 7),
        (0x7FFF_FFFF, None, 1 << 32),
        (7, {}, 1 << 32),
        (7, {"HOB-0000000001": 5, "HOB-0000000003": 9, "other": 1}, (3 << 32) + 9),
        (7, {"HOB-0000000003": 0x7FFF_FFFF}, 4 << 32),
    ],
)
def test_next_id_of_the_generator(short: int, highs: dict[str, int] | None, next_id: int) -> None:
    """The next id comes from the highest of the upper halves, and from the one after it where that is used up."""
    names = None if highs is None else list(highs)
    assert generator_state(short, names, lambda name: (highs or {})[name]).next_id == next_id


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Pulsar-CPP-v3.7.1", True),
        ("Pulsar Python v3.13.0", True),
        ("Pulsar-Java-v5.0.1", False),
        ("Pulsar Go 0.14.0", False),
        ("", False),
    ],
)
def test_libraries_of_cpp(version: str, expected: bool) -> None:
    """Clients that remember their cumulative acknowledgements are identified by the version that they report."""
    assert is_of_cpp(version) is expected


def test_room_for_what_blue_still_creates() -> None:
    """Green must be ahead by more than what blue creates until its last topic has moved."""
    assert not LedgerIds(blue=100, green=1_000).enough
    assert LedgerIds(blue=100, green=1 << 32).enough
