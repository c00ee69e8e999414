"""The plans that benchmarks run: as valid as an operator's must be."""

from __future__ import annotations

from datetime import timedelta

from bench.bookie_cluster import pause
from bench.metadata_store import measure


def test_plans_are_valid() -> None:
    """Nothing waits in a benchmark: windows are empty."""
    moved = measure.plan("bench", "zk:127.0.0.1:2181", "oxia://127.0.0.1:6648/default")
    bookies = "zk+hierarchical://127.0.0.1:2181"
    switched = pause.plan("zk:127.0.0.1:2181", f"{bookies}/ledgersA", f"{bookies}/ledgersB")
    assert (moved.validation_window, switched.rollback_window) == (timedelta(0), timedelta(0))
