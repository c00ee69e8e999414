"""Layouts after splits and merges by brokers, and with restored parents."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.segments.change import SegmentChange
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.repair import NEVER_DROPPED, comes_from, with_kept_parents
from models.segments.segment import LayoutError
from tests.support.scalable_topic.layouts import random_steps


def _names(partitions: int) -> list[str]:
    return [f"persistent://t/n/x-partition-{number}" for number in range(partitions)]


def _grown(layout: SegmentLayout, chooser: random.Random, steps: int) -> SegmentLayout:
    return [layout, *(after for _, after in random_steps(layout, chooser, steps))][-1]


@given(st.integers(1, 20), st.integers(0, 15), st.randoms(use_true_random=False))
def test_kept_parents_change_nothing_else(partitions: int, steps: int, chooser: random.Random) -> None:
    """Marked regular parents never expire, other segments are unchanged, and the layout stays valid."""
    before = _grown(SegmentLayout.migrated(_names(partitions), 999), chooser, steps)
    with_parents = with_kept_parents(before)
    assert layout_faults(with_parents) == []
    assert with_kept_parents(SegmentLayout.parse(with_parents.encode())) == with_parents
    for number, segment in with_parents.segments.items():
        was = before.segments[number]
        assert segment == (was.model_copy(update={"sealed_at_ms": NEVER_DROPPED}) if was.legacy else was)


@given(st.integers(1, 20), st.integers(0, 15), st.randoms(use_true_random=False))
def test_a_layout_knows_its_regular_topic(partitions: int, steps: int, chooser: random.Random) -> None:
    """A migrated layout is recognized after any changes and added partitions; a new one is not."""
    names = _names(partitions)
    grown = _grown(SegmentLayout.migrated(names, 999), chooser, steps)
    assert comes_from(grown, names)
    assert comes_from(grown, [*names, "persistent://t/n/x-partition-99"])
    if any(segment.legacy for segment in grown.segments.values()):
        assert not comes_from(grown, ["persistent://t/n/other"])
    new = SegmentLayout.initial(partitions, 999)
    for layout in (new, new.split(0, 1000), new.rebucket(0, 2, 1000)):
        assert not comes_from(layout, names)


@given(st.integers(2, 20), st.integers(0, 15), st.randoms(use_true_random=False))
def test_a_change_knows_its_children(count: int, steps: int, chooser: random.Random) -> None:
    """Children are found after the change, also if parents were pruned since, and not before it."""
    layout = _grown(SegmentLayout.initial(count, 999), chooser, steps)
    active = layout.active
    ids = [segment.segment_id for segment in (active[:2] if len(active) > 1 and chooser.random() < 0.5 else active[:1])]
    buckets = active[0].buckets + 1 if len(ids) == 1 and chooser.random() < 0.5 else None
    change = SegmentChange.of(layout, *ids, buckets=buckets)
    assert change.children(layout) == ()
    after = change.after(layout, 2000)
    children = change.children(after)
    assert tuple(child.hash_range for child in children) == change.ranges
    assert {child.segment_id for child in children} == after.segments.keys() - layout.segments.keys()
    for number in ids:
        after = after.prune(number)
    assert [child.segment_id for child in change.children(after)] == [child.segment_id for child in children]


def test_a_rebucket_to_the_same_number_is_done() -> None:
    """A rebucket that changes nothing counts as done."""
    layout = SegmentLayout.initial(2, 999).rebucket(0, 3, 1000)
    (parent,) = (segment for segment in layout.active if segment.buckets == 3)
    for buckets, children in ((3, (parent,)), (4, ())):
        assert SegmentChange((parent,), layout.next_segment_id, buckets).children(layout) == children


def test_another_change_is_no_success() -> None:
    """A parent that another client merged does not count as split, and vice versa."""
    layout = SegmentLayout.initial(2, 999)
    split, merge = SegmentChange.of(layout, 0), SegmentChange.of(layout, 1, 0)
    with pytest.raises(LayoutError, match=r"7fff-0 was changed in another way .*: 0 is SEALED, .* children \[2\]"):
        split.children(merge.after(layout, 1000))
    with pytest.raises(LayoutError, match="in another way"):
        merge.children(split.after(layout, 1000))
    with pytest.raises(LayoutError, match="0 is not there"):
        split.children(merge.after(layout, 1000).prune(0))
    rebucket = SegmentChange.of(layout, 0, buckets=3)
    for change, other in ((split, rebucket), (rebucket, split), (rebucket, SegmentChange.of(layout, 0, buckets=5))):
        with pytest.raises(LayoutError, match="in another way"):
            change.children(other.after(layout, 1000))
    for ids in ((9,), (0, 9)):
        with pytest.raises(LayoutError, match="there is no segment 9"):
            SegmentChange.of(layout, *ids)
