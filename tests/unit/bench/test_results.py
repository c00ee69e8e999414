"""The benchmark's arithmetic: medians, ratios, the table and the JSON."""

from __future__ import annotations

import json

import pytest

from bench.lifecycle.results import Side, Spread, order
from bench.metadata_store.results import SizedResults, SizedRun, ratio


def _results() -> SizedResults:
    results = SizedResults(machine={"cores": 2})
    results.datasets = {50: {"records": 95_722, "value_bytes": 50_000_000}, 500: {"records": 957_073, "value_bytes": 1}}
    for mb, factor in ((50, 1.0), (500, 10.0)):
        for extra in (0.0, 1.0, 5.0):
            blocked = {"blocked_seconds": 1.0 + extra, "peak_rss_bytes": 900e6, "total_seconds": 20.0}
            results.runs += [
                SizedRun(Side.OURS, blocked, mb=mb),
                SizedRun(Side.JOBS, {"copy_seconds": factor + extra, "compare_seconds": 2 * factor}, mb=mb),
                SizedRun(Side.PEER, {"blocked_seconds": 4 * factor + extra, "copy_seconds": 3 * factor + extra}, mb=mb),
            ]
    return results


def test_spread_is_median_and_range() -> None:
    """A spread holds the middle, the least and the largest value of the runs of its side and size."""
    assert _results().spread(Side.JOBS, 500, "copy_seconds") == Spread(11.0, 10.0, 15.0, 3)


def test_figure_that_no_run_has_is_missing() -> None:
    """A figure that was not measured has no spread and no median."""
    results = _results()
    assert results.spread(Side.PEER, 500, "compare_seconds") is None
    assert results.median(Side.JOBS, 100, "copy_seconds") is None


@pytest.mark.parametrize(
    ("ours", "peer", "shown"),
    [
        (Spread(2.0, 1.0, 3.0, 3), Spread(9.0, 9.0, 9.0, 1), "4.50×"),
        (Spread(2.0, 1.0, 3.0, 3), Spread(1.0, 1.0, 1.0, 1), "0.50×"),
        (Spread(0.0, 0.0, 0.0, 1), Spread(1.0, 1.0, 1.0, 1), "–"),
        (None, Spread(1.0, 1.0, 1.0, 1), "–"),
        (Spread(1.0, 1.0, 1.0, 1), None, "–"),
    ],
)
def test_ratio_is_peer_over_ours(ours: Spread | None, peer: Spread | None, shown: str) -> None:
    """The ratio says how many times ours the peer took, and a dash where it cannot be said."""
    assert ratio(ours, peer) == shown


def test_table_has_a_part_for_each_size_and_the_growth() -> None:
    """The table shows medians with ranges and ratios for each size, and how much the figures grow with the data."""
    table = _results().table()
    assert "### 50 MB: 95,722 records" in table
    assert "| metadata writes blocked (s) | 2.00 (1.00–6.00) | 41.00 (40.00–45.00) | 20.50× |" in table
    assert "| compare of everything (s) | 20.00 (20.00–20.00) | – | – |" in table
    assert "| peak memory (MB) | 900 (900–900) | – | – |" in table
    assert (
        "From 50 to 500 MB (10.0× the records): our copy 5.5×, our blocked time 1.0×, "
        "the peer's copy 7.8×, the peer's blocked time 8.2×."
    ) in table


def test_summary_shows_the_largest_size_at_its_top() -> None:
    """The JSON has exactly the promised keys, with the medians of the largest size."""
    summary = json.loads(json.dumps(_results().summary()))
    detail = summary.pop("detail")
    assert summary == {
        "blocked_seconds": {"ours": 2.0, "peer": 41.0},
        "copy_seconds": {"ours": 11.0, "peer": 31.0},
        "compare_seconds": 20.0,
        "peak_rss_bytes": 900e6,
    }
    assert set(detail) == {"machine", "datasets", "medians", "runs"}
    assert detail["medians"]["50"]["peer"] == {"blocked_seconds": 5.0, "copy_seconds": 4.0}
    assert len(detail["runs"]) == 18


def test_summary_without_a_peer_keeps_its_shape() -> None:
    """With the peer left out its figures are null, and the others are unchanged."""
    results = _results()
    results.runs = [run for run in results.runs if run.side is not Side.PEER]
    summary = results.summary()
    assert summary["blocked_seconds"] == {"ours": 2.0, "peer": None}
    assert "| 2.00 (1.00–6.00) | – | – |" in results.table()


def test_runs_alternate_between_the_sides() -> None:
    """Every side has had its turn before any has its next one."""
    ours, peer = Side.OURS, Side.PEER
    assert order({ours: 2, peer: 2}) == [(ours, 1), (peer, 1), (ours, 2), (peer, 2)]
