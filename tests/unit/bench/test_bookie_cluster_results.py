"""From single copies of ledgers to the ratios that the benchmark reports."""

from __future__ import annotations

import pytest

from bench.bookie_cluster.results import KINDS, BookieResults, Copier, Pass

ONE_KB, _, SMALL = KINDS


def copy_pass(kind: str, copier: Copier, number: int, seconds: float, cpu: float) -> Pass:
    """Return a pass of 40,000 entries."""
    servers = {"zookeeper": 0.25, "source-1": 0.5}
    compare = (2.0, 1.0) if copier is Copier.OURS and number > 1 else None
    return Pass(kind, copier, number, seconds, 40_000, {"client": cpu, **servers}, compare)


@pytest.fixture
def results() -> BookieResults:
    """One pass to warm up, three that count."""
    measured = BookieResults({}, warm_up=1)
    for number, factor in enumerate((9.0, 1.0, 2.0, 1.5), 1):
        measured.passes += [
            copy_pass("1KB", Copier.OURS, number, factor, 0.2 * factor),
            copy_pass("1KB", Copier.PEER_SINGLE, number, 5 * factor, 3 * factor),
            copy_pass("1KB", Copier.PEER_BATCH, number, 3 * factor, factor),
            copy_pass("small_ledgers", Copier.OURS, number, factor, 1.0),
            copy_pass("small_ledgers", Copier.PEER_SINGLE, number, 4 * factor, 4.0),
            copy_pass("small_ledgers", Copier.PEER_BATCH, number, 7 * factor, 4.0),
        ]
    return measured


def test_ratios_are_those_of_medians_to_the_faster_peer(results: BookieResults) -> None:
    """Warm-up passes do not count, and of the peer's two ways the faster one does, for each kind."""
    assert results.summary() == {
        "throughput_ratio": {"1KB": 3.0, "small_ledgers": 4.0},
        "cpu_ratio": {"1KB": 0.2},
    }
    assert (results.peer(ONE_KB), results.peer(SMALL)) == (Copier.PEER_BATCH, Copier.PEER_SINGLE)
    assert results.throughput(SMALL, Copier.OURS) == pytest.approx(20_000 / 1.5)
    assert results.cpu(ONE_KB, Copier.OURS, "servers") == 0.75


def test_the_pause_is_reported_only_where_it_was_measured(results: BookieResults) -> None:
    """Without a measured switch there is no such key, rather than a zero."""
    assert "pause_seconds" not in results.summary()
    results.pause = {"pause_seconds": 7.5, "tail_recovered_ledgers": 20.0, "brokers_away_seconds": 15.0}
    assert results.summary()["pause_seconds"] == 7.5


def test_the_table_has_every_copier_and_the_cost_of_comparing(results: BookieResults) -> None:
    """A reader sees medians with their range, which peer counts, and what the ratios leave out."""
    results.scaling = {1: 10_000.0, 2: 19_000.0}
    table = results.table()
    assert "| ours | 26,667 (20,000–40,000) | 27.3 | 0.30 (0.20–0.40) | 0.75 (0.75–0.75) |" in table
    assert "| peer, batch reads (faster) | 8,889 (6,667–13,333)" in table
    assert "compares both sides in full in 2.00 s more, with 1.00 s of processor time" in table
    assert "Ours to peer: throughput 3.00, processor time 0.20." in table
    assert "Ours to peer: throughput 4.00." in table
    assert "| 2 | 19,000 |" in table
