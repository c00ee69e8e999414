"""From single flips to the figures of the benchmark of the blue-green migration."""

from __future__ import annotations

import pytest

from bench.blue_green.benchmark import Flips
from bench.lifecycle.results import SIDES, Run, Side, order

_NONE = {
    "acknowledged": 100.0,
    "lost": 0.0,
    "order_violations": 0.0,
    "duplicates": 0.0,
    "duplicates_send_under_way": 0.0,
    "duplicates_acknowledgement_under_way": 0.0,
    "corrupt": 0.0,
    "dead_producers": 0.0,
    "dead_consumers": 0.0,
    "stuck_brokers": 0.0,
    "longest_gap_seconds": 1.0,
    "longest_send_seconds": 1.0,
}


def _results() -> Flips:
    flips = [
        Run(Side.OURS, _NONE, ()),
        Run(Side.PEER, {**_NONE, "lost": 3, "longest_gap_seconds": 60.0}, ("t0: 3 lost",)),
        Run(Side.OURS, {**_NONE, "longest_gap_seconds": 4.0}, ()),
        Run(Side.PEER, {**_NONE, "lost": 4, "dead_producers": 5}, ("t1: 4 lost",)),
    ]
    return Flips(machine={}, runs=flips)


def test_counts_add_up_and_times_are_the_longest() -> None:
    """Over several flips what is counted is a sum, and the longest gap is the longest of all."""
    summary = _results().summary()
    assert summary["flips"] == 2
    assert {name: summary["peer"][name] for name in ("lost", "dead_producers", "longest_gap_seconds")} == {
        "lost": 7,
        "dead_producers": 5,
        "longest_gap_seconds": 60.0,
    }
    assert summary["ours"]["longest_gap_seconds"] == 4.0
    assert summary["ours"]["median_gap_seconds"] == pytest.approx(2.5)
    assert (summary["ours"]["flips_with_faults"], summary["peer"]["flips_with_faults"]) == (0, 2)


def test_the_summary_has_all_figures() -> None:
    """Both sides have the figures for which the file is read, also where the peer was left out."""
    named = {"lost", "order_violations", "duplicates", "dead_producers", "longest_gap_seconds"}
    summary = _results().summary()
    assert all(named <= summary[side.value].keys() for side in SIDES)
    alone = Flips(machine={}, runs=[Run(Side.OURS, _NONE, ())]).summary()
    assert (alone["flips"], alone["peer"]) == (1, None)


def test_the_table_has_both_sides() -> None:
    """Each line has a figure of either side."""
    table = _results().table().splitlines()
    assert table[0] == "| | ours, 2 flips | peer, 2 flips |"
    assert "| lost | 0 | 7 |" in table
    assert "| longest gap (s) | 4.00 | 60.00 |" in table


def test_the_flips_of_the_peer_are_spread_over_ours() -> None:
    """Flips alternate, the fewer flips of the peer are spread between ours, and each has a number of its own."""
    ours, peer = Side.OURS, Side.PEER
    assert order({ours: 2, peer: 2}) == [(ours, 1), (peer, 1), (ours, 2), (peer, 2)]
    assert order({ours: 4, peer: 2}) == [(ours, 1), (ours, 2), (peer, 1), (ours, 3), (ours, 4), (peer, 2)]
    assert order({ours: 2, peer: 0}) == [(ours, 1), (ours, 2)]
