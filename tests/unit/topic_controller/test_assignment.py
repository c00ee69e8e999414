"""Assignments of segments to consumers, over random histories of layouts."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from models.segments.layout import SegmentLayout
from models.topic_controller.assignment import Assignments, assign, changed

_NAMES = st.sets(st.sampled_from([f"consumer-{number}" for number in range(8)]), max_size=8)
_MOVES = st.lists(st.tuples(st.sampled_from(["split", "merge", "drain"]), st.integers(0, 100)), max_size=25)


def _changed_layout(moves: Iterable[tuple[str, int]]) -> tuple[SegmentLayout, set[int]]:
    """Return a layout after splits and merges, and the segments that were consumed during them, parents first."""
    layout, drained = SegmentLayout.initial(2, 0), set[int]()
    for move, choice in moves:
        active = layout.active
        if move == "split":
            layout = layout.split(active[choice % len(active)].segment_id, 0)
        elif move == "merge" and len(active) > 1:
            first = choice % (len(active) - 1)
            layout = layout.merge(active[first].segment_id, active[first + 1].segment_id, 0)
        elif move == "drain":
            ready = [
                number
                for number, segment in layout.segments.items()
                if segment.sealed
                and number not in drained
                and all(parent.segment_id in drained for parent in layout.ancestors(number))
            ]
            drained.update(ready[choice % len(ready) :][:1] if ready else [])
    return layout, drained


def _given_out(assignments: Assignments) -> list[int]:
    return [number for ids in assignments.values() for number in ids]


@given(_MOVES, _NAMES)
def test_each_readable_segment_has_one_reader(moves: list[tuple[str, int]], names: set[str]) -> None:
    """No segment is read twice, none whose parents are consumed is left out, and none is read before its parents."""
    layout, drained = _changed_layout(moves)
    assigned = assign(layout, drained, names)
    assert {*assigned} == names
    given_out = _given_out(assigned)
    assert len(given_out) == len({*given_out})
    for number in given_out:
        assert {ancestor.segment_id for ancestor in layout.ancestors(number)} <= drained
    wanted = {
        number
        for number in layout.segments
        if number not in drained and {ancestor.segment_id for ancestor in layout.ancestors(number)} <= drained
    }
    assert {*given_out} == (wanted if names else set())


@given(_MOVES, _NAMES)
def test_a_consumed_segment_moves_no_other(moves: list[tuple[str, int]], names: set[str]) -> None:
    """When a sealed segment is consumed, only its children are assigned; no consumer loses its segments."""
    layout, drained = _changed_layout(moves)
    before = assign(layout, drained, names)
    sealed = [number for number in _given_out(before) if layout.segments[number].sealed]
    for number in sealed:
        after = assign(layout, {*drained, number}, names)
        for name, ids in before.items():
            assert {*ids} - {number} <= {*after[name]}


@given(_MOVES, _NAMES, st.sampled_from([f"consumer-{number}" for number in range(8)]))
def test_a_consumer_that_returns_gets_its_segments_back(
    moves: list[tuple[str, int]], names: set[str], name: str
) -> None:
    """Assignments follow from the names alone: a consumer that leaves and returns changes no other in the end."""
    layout, drained = _changed_layout(moves)
    whole = assign(layout, drained, {*names, name})
    assert changed(whole, assign(layout, drained, [*sorted(names, reverse=True), name])) == {}


def test_turns_go_over_active_segments() -> None:
    """As the proposal says: active segments in the order of their hashes, consumers in the order of their names."""
    layout = SegmentLayout.initial(5, 0)
    assert assign(layout, (), ["b", "a"]) == {"a": (0, 2, 4), "b": (1, 3)}
    assert assign(layout, (), []) == {}
    # A consumer that waits for the first child of a sealed segment reads that first.
    split = layout.split(1, 0)
    assert assign(split, (), ["b", "a"]) == {"a": (0, 3), "b": (1, 2, 4)}
    assert assign(split, (1,), ["b", "a"]) == {"a": (0, 6, 3), "b": (5, 2, 4)}


def test_only_changes_are_published() -> None:
    """A consumer whose segments are the same gets no message."""
    assert changed({"a": (1,), "b": (2,)}, {"a": (1,), "b": (), "c": (2,)}) == {"b": (), "c": (2,)}
