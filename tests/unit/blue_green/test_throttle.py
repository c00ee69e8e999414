"""The limit that holds writes back where brokers read connections late again."""

from __future__ import annotations

import pytest

from activities.blue_green.throttle import limit_that_ends
from models.defects import has_defect
from models.releases import parse_release


@pytest.mark.parametrize(
    ("rounds", "limit"),
    [
        ([], 1),
        ([0.0, 0.0], 1),
        ([9.0], 1),
        ([150.0, 0.0, 3000.0], 10),
        ([1_500_000.0], 100_000),
    ],
)
def test_limit_by_sizes(rounds: list[float], limit: int) -> None:
    """The topic with the smallest messages is held back for the whole time; without traffic the limit is the lowest."""
    assert limit_that_ends(rounds, 15.0) == limit


def test_releases_that_unblock_producers_at_once() -> None:
    """Only blue of an old release needs that limit (#25502)."""
    versions = ("4.0.8", "4.0.10", "4.2.0", "4.2.4", "5.0.1")
    late = [version for version in versions if has_defect(parse_release(version), "LIMIT_LIFTED_LATE")]
    assert late == ["4.0.8", "4.2.0"]
