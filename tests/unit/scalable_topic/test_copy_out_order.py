"""No segment is copied before those from which it came, and what fails stops all."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scalable_topic.operations.copy_out.source import descendants_of, parents_of
from clients.errors import StoreUnreachable
from models.segments.layout import SegmentLayout
from spark.chains import run_chains
from tests.support.scalable_topic.layouts import random_steps


def _nothing() -> None:
    """Nothing to look for, or to stop."""


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_parents_come_first(topics: int, seed: int) -> None:
    """In any layout that brokers make: each segment begins when all before it have ended, and each runs once."""
    layout = SegmentLayout.migrated([f"persistent://a/b/c-partition-{number}" for number in range(topics)], 0)
    *_, (_, layout) = random_steps(layout, random.Random(seed), 8)
    parents = parents_of(layout)
    ended: list[int] = []
    lock = threading.Lock()

    def work(segment: int) -> None:
        with lock:
            assert set(parents[segment]) <= {*ended}
            ended.append(segment)

    run_chains(parents, work, width=3, check=_nothing, give_up=_nothing)
    assert sorted(ended) == sorted(layout.segments)


@given(st.integers(0, 10_000))
def test_descendants_are_those_that_have_it_as_an_ancestor(seed: int) -> None:
    """Over any number of changes, and as the layout itself says."""
    *_, (_, layout) = random_steps(SegmentLayout.initial(3, 0), random.Random(seed), 10)
    found = descendants_of(parents_of(layout))
    for number in layout.segments:
        mine = {
            other
            for other in layout.segments
            if number in {ancestor.segment_id for ancestor in layout.ancestors(other)}
        }
        assert found[number] == mine


def test_items_run_side_by_side() -> None:
    """Two that wait for nobody run at once."""
    meeting = threading.Barrier(2, timeout=10)
    run_chains({1: (), 2: ()}, lambda _: (meeting.wait(), None)[1], width=2, check=_nothing, give_up=_nothing)


def test_a_failure_stops_the_rest() -> None:
    """Whoever waits for the failed one never begins, who runs is told to stop, and the failure is raised."""
    stopped = threading.Event()
    begun: list[str] = []

    def work(item: str) -> None:
        begun.append(item)
        if item == "fails":
            raise StoreUnreachable("gone")
        assert stopped.wait(10)

    with pytest.raises(StoreUnreachable, match="gone"):
        run_chains({"long": (), "fails": (), "child": ("fails",)}, work, width=2, check=_nothing, give_up=stopped.set)
    assert sorted(begun) == ["fails", "long"]


def test_who_waits_is_asked_whether_to_go_on() -> None:
    """What the check raises ends all, as a cancelled activity does."""
    stopped = threading.Event()
    begun = time.monotonic()

    def check() -> None:
        if time.monotonic() > begun + 0.1:
            raise StoreUnreachable("cancelled")

    with pytest.raises(StoreUnreachable, match="cancelled"):
        run_chains({1: ()}, lambda _: (stopped.wait(10), None)[1], width=1, check=check, give_up=stopped.set)
