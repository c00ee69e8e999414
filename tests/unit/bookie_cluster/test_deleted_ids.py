"""How ids that were deleted are kept."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from activities.bookie_cluster.deleted_ids import id_ranges


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_all_ids_and_no_other(ids: set[int]) -> None:
    """Rows of consecutive ids are kept by their ends, and together they are what went in."""
    ranges = list(id_ranges(ids))

    assert {ledger_id for first, last in ranges for ledger_id in range(first, last + 1)} == ids
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))
