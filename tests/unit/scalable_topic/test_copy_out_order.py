"""Each segment is copied after its parents, and a failure stops the copy."""

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
from tests.support.waiting import timeout_for


def _nothing() -> None:
    """Ignore the call."""


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_parents_come_first(topics: int, seed: int) -> None:
    """In any layout, each segment starts after its parents have ended, and runs once."""
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
    """Descendants agree with the ancestors of the layout after any number of changes."""
    *_, (_, layout) = random_steps(SegmentLayout.initial(3, 0), random.Random(seed), 10)
    descendants = descendants_of(parents_of(layout))
    for number in layout.segments:
        mine = {
            other
            for other in layout.segments
            if number in {ancestor.segment_id for ancestor in layout.ancestors(other)}
        }
        assert descendants[number] == mine


def test_items_run_side_by_side() -> None:
    """Two items without dependencies run concurrently."""
    meeting = threading.Barrier(2, timeout=10)
    run_chains({1: (), 2: ()}, lambda _: (meeting.wait(), None)[1], width=2, check=_nothing, give_up=_nothing)


def test_a_failure_stops_the_rest() -> None:
    """Dependants of a failed item never start, running items are stopped, and the failure is raised."""
    stopped = threading.Event()
    begun: list[str] = []

    def work(item: str) -> None:
        begun.append(item)
        if item == "fails":
            raise StoreUnreachable("gone")
        assert stopped.wait(timeout_for(10))

    with pytest.raises(StoreUnreachable, match="gone"):
        run_chains({"long": (), "fails": (), "child": ("fails",)}, work, width=2, check=_nothing, give_up=stopped.set)
    assert sorted(begun) == ["fails", "long"]


def test_an_error_of_the_check_stops_all() -> None:
    """An error of the check stops all items, like a cancelled activity."""
    stopped = threading.Event()
    begun = time.monotonic()

    def check() -> None:
        if time.monotonic() > begun + 0.1:
            raise StoreUnreachable("cancelled")

    with pytest.raises(StoreUnreachable, match="cancelled"):
        run_chains(
            {1: ()}, lambda _: (stopped.wait(timeout_for(10)), None)[1], width=1, check=check, give_up=stopped.set
        )
