"""From runs to the figures of the benchmark of topics that become scalable."""

from __future__ import annotations

import pytest

from bench.lifecycle.results import SIDES, Side
from bench.scalable_topic.results import LABELS, TopicFlip, TopicResults, TopicRun


def _run(side: Side, lost: float, *flips: tuple[float, float]) -> TopicRun:
    measured = [TopicFlip(f"t{number}", call, whole, whole) for number, (call, whole) in enumerate(flips)]
    # The brokers' own call follows from the flips.
    figures = dict.fromkeys(set(LABELS) - {"call_seconds"}, 0.0) | {"lost": lost}
    return TopicRun(side, figures, (f"{lost:g} lost",) if lost else (), tuple(measured))


def _results() -> TopicResults:
    ours = _run(Side.OURS, 0, (0.3, 0.8), (0.4, 1.2), (2.0, 2.6))
    peer = _run(Side.PEER, 1234, (0.5, 0.5), (0.7, 0.7), (0.6, 0.6))
    return TopicResults({}, [ours, peer], 3)


def test_the_summary_has_all_figures() -> None:
    """The file has the figures for which it is read, also where a side was left out."""
    summary = _results().summary()
    assert summary["topics"] == 3
    named = {"lost", "order_violations", "pruned_unread"}
    assert all(named <= summary[side.value].keys() for side in SIDES)
    assert (summary["ours"]["lost"], summary["peer"]["lost"]) == (0, 1234)
    assert summary["peer"]["call_seconds"] == pytest.approx(0.6)
    alone = TopicResults({}, [_run(Side.PEER, 1, (1.0, 1.0))], 3).summary()
    assert (alone["ours"], alone["overhead_seconds"]) == (None, None)


def test_the_overhead_is_the_median_time_per_topic_without_the_call() -> None:
    """A single slow call of a broker does not change our overhead."""
    assert _results().overhead_seconds == pytest.approx(0.6)
    assert _results().overhead_alone_seconds == pytest.approx(0.5)


def test_the_table_has_both_sides() -> None:
    """Each line has a figure of either side."""
    table = _results().table().splitlines()
    assert table[0] == "| 3 topics | ours | peer |"
    assert "| lost | 0 | 1,234 |" in table
    assert table[-1] == (
        "Beyond the brokers' own call, ours takes 0.60 s for a topic (median), and 0.50 s for one by itself."
    )
