"""Properties of every layout: arithmetic, lineage, JSON and detection of damage."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from models.segments.layout import SegmentLayout, key_hash
from models.segments.layout_check import layout_faults
from models.segments.segment import FULL, HASHES, HashRange, LayoutError, SegmentInfo, SegmentState
from tests.support.scalable_topic.layouts import random_steps

_DERIVED = ("sealed", "active", "root", "leaf", "legacy")

hashes = st.integers(0, HASHES - 1)
ranges = st.tuples(hashes, hashes).map(lambda ends: HashRange(start=min(ends), end=max(ends)))
choosers = st.randoms(use_true_random=False)


def _topics(count: int) -> list[str]:
    return [f"persistent://t/n/x-partition-{number}" for number in range(count)]


@st.composite
def layouts(draw: st.DrawFn, fewest: int = 0) -> SegmentLayout:
    """Return layouts of new and of migrated topics, after some valid changes."""
    count = draw(st.integers(1, 20))
    start = SegmentLayout.migrated(_topics(count), 999) if draw(st.booleans()) else SegmentLayout.initial(count, 999)
    steps = random_steps(start, draw(choosers), draw(st.integers(fewest, 12)))
    return [start, *(after for _, after in steps)][-1]


@given(st.integers(1, 500) | st.sampled_from([HASHES // 2 + 1, HASHES - 1, HASHES]))
def test_the_space_is_divided_equally(count: int) -> None:
    """Ranges have equal sizes except the last, which takes the remainder; they cover each hash exactly once."""
    parts = HashRange.divided(count)
    assert (len(parts), parts[0].start, parts[-1].end) == (count, 0, HASHES - 1)
    assert all(first.precedes(second) for first, second in pairwise(parts))
    assert {range_.size for range_ in parts[:-1]} <= {HASHES // count}
    assert parts[-1].size == HASHES // count + HASHES % count


@given(ranges)
def test_halves(range_: HashRange) -> None:
    """A range is split in its middle; the first half has one more hash if the size is odd."""
    assume(range_.size > 1)
    first, second = range_.split()
    assert (first.start, second.end) == (range_.start, range_.end)
    assert first.precedes(second)
    assert first.size - second.size in (0, 1)


@given(ranges, st.integers(0, 10**9))
def test_names_of_segments(range_: HashRange, number: int) -> None:
    """A descriptor contains the range and the id in the format of brokers, and is unique."""
    segment = SegmentInfo(segment_id=number, hash_range=range_, created_at_epoch=0, created_at_ms=0)
    match = re.fullmatch(r"([0-9a-f]{4})-([0-9a-f]{4})-(\d+)", segment.descriptor)
    assert match
    assert (int(match[1], 16), int(match[2], 16), int(match[3])) == (range_.start, range_.end, number)
    assert segment.topic("t/n/x") == f"segment://t/n/x/{segment.descriptor}"


@given(st.integers(1, 30), st.integers(0, 30), choosers)
def test_each_change_counts_once(count: int, steps: int, chooser: random.Random) -> None:
    """Each change raises the epoch by one; ids are assigned in order, and never reused."""
    layout, used_ids = SegmentLayout.initial(count, 999), set(range(count))
    for step, after in random_steps(layout, chooser, steps):
        new = after.segments.keys() - layout.segments.keys()
        assert after.epoch == layout.epoch + 1
        assert new == set(range(layout.next_segment_id, after.next_segment_id))
        assert not new & used_ids
        assert len(new) == {"split": 2, "merge": 1, "rebucket": 1, "prune": 0}[step.what]
        layout, used_ids = after, used_ids | new


@given(layouts(), st.data())
def test_a_split_gives_each_hash_to_one_child(layout: SegmentLayout, data: st.DataObject) -> None:
    """The children of a split have the hashes of their parent, and no other segment changes."""
    parent = data.draw(st.sampled_from([segment for segment in layout.active if segment.hash_range.size > 1]))
    after = layout.split(parent.segment_id, 5000)
    value = data.draw(hashes)
    before, now = layout.find(value), after.find(value)
    assert (now.segment_id == before.segment_id) is (before.segment_id != parent.segment_id)
    sealed = after.segments[parent.segment_id]
    assert (sealed.state, sealed.sealed_at_epoch, sealed.sealed_at_ms) == (SegmentState.SEALED, after.epoch, 5000)
    assert [after.segments[number].parent_ids for number in sealed.child_ids] == 2 * [(parent.segment_id,)]


@given(layouts(), st.data())
def test_only_neighbours_can_be_merged(layout: SegmentLayout, data: st.DataObject) -> None:
    """A merge takes two neighbours in either order, and names its parents in that order; others are refused."""
    assume(len(layout.active) > 1)
    first, second = data.draw(st.permutations(layout.active))[:2]
    ids = (first.segment_id, second.segment_id)
    if not (first.hash_range.precedes(second.hash_range) or second.hash_range.precedes(first.hash_range)):
        with pytest.raises(LayoutError, match="not neighbours"):
            layout.merge(*ids, 5000)
        return
    child = layout.merge(*ids, 5000).segments[layout.next_segment_id]
    assert child.parent_ids == ids
    assert child.hash_range.size == first.hash_range.size + second.hash_range.size


@given(layouts(), st.data())
def test_only_sealed_segments_can_be_pruned(layout: SegmentLayout, data: st.DataObject) -> None:
    """No segment refers to a pruned one any more, and the active segments are the same."""
    segment = data.draw(st.sampled_from([*layout.segments.values()]))
    if segment.active:
        with pytest.raises(LayoutError, match="is active and cannot be pruned"):
            layout.prune(segment.segment_id)
        return
    after = layout.prune(segment.segment_id)
    named = {number for segment in after.segments.values() for number in (*segment.parent_ids, *segment.child_ids)}
    assert segment.segment_id not in {*named, *after.segments}
    assert after.active == [after.segments[other.segment_id] for other in layout.active]
    with pytest.raises(LayoutError, match="is sealed"):
        layout.split(segment.segment_id, 5000)


@given(layouts(), hashes)
def test_one_segment_takes_a_hash(layout: SegmentLayout, value: int) -> None:
    """Each hash belongs to one active segment, which `find` returns."""
    assert [segment for segment in layout.active if value in segment.hash_range] == [layout.find(value)]


@given(layouts(), st.text(max_size=30))
def test_keys_go_by_their_hash(layout: SegmentLayout, key: str) -> None:
    """The high 16 bits of a key's hash choose the segment."""
    assert 0 <= key_hash(key) < 2**32
    assert layout.route(key) == layout.find(key_hash(key) >> 16)


@given(st.integers(1, 50), st.text(max_size=30))
def test_keys_of_a_regular_topic_go_as_before(count: int, key: str) -> None:
    """While a topic is regular, keys go to the partitions to which its producers send them."""
    topics = _topics(count)
    wanted = (key_hash(key) & 0x7FFF_FFFF) % count
    assert SegmentLayout.synthetic(topics, 999).route(key).topic("t/n/x") == topics[wanted]


@given(layouts(3), st.data())
def test_lineage(layout: SegmentLayout, data: st.DataObject) -> None:
    """Ancestors have lower ids, come parents first and once each, and are exactly those that parents lead to."""
    segment = data.draw(st.sampled_from([*layout.segments.values()]))
    ancestors = [ancestor.segment_id for ancestor in layout.ancestors(segment.segment_id)]
    assert ancestors == sorted({*ancestors})
    assert all(number < segment.segment_id for number in ancestors)
    assert {*ancestors} == _reached(layout, segment.segment_id)
    for gone in ancestors[:1]:
        remaining = [ancestor.segment_id for ancestor in layout.prune(gone).ancestors(segment.segment_id)]
        assert {*remaining} == _reached(layout, segment.segment_id, without=gone)


def _reached(layout: SegmentLayout, number: int, without: int = -1) -> set[int]:
    parents = {parent for parent in layout.segments[number].parent_ids if parent != without}
    return parents.union(*(_reached(layout, parent, without) for parent in parents))


@given(layouts())
def test_json_says_the_same(layout: SegmentLayout) -> None:
    """A stored layout is read back equal, and written again in the same bytes."""
    stored = layout.encode()
    assert SegmentLayout.parse(stored) == layout
    assert SegmentLayout.parse(stored).encode() == stored


@given(layouts())
def test_derived_fields_follow_from_the_others(layout: SegmentLayout) -> None:
    """Derived fields may be missing or wrong in the JSON without an effect."""
    stored = json.loads(layout.encode())
    for number, segment in stored["segments"].items():
        parsed = layout.segments[int(number)]
        derived = (
            parsed.sealed,
            not parsed.sealed,
            not parsed.parent_ids,
            not parsed.child_ids,
            bool(parsed.legacy_topic_name),
        )
        assert tuple(segment[name] for name in _DERIVED) == derived
        assert ("legacyTopicName" in segment) is parsed.legacy
    wrong, short = json.loads(json.dumps(stored)), json.loads(json.dumps(stored))
    for number in stored["segments"]:
        wrong["segments"][number] |= {name: not wrong["segments"][number][name] for name in _DERIVED}
        for name in _DERIVED:
            del short["segments"][number][name]
    for other in (wrong, short):
        assert SegmentLayout.parse(json.dumps(other).encode()).encode() == layout.encode()


@given(layouts(), st.dictionaries(st.text("abcxyz", min_size=3), st.integers() | st.text() | st.none(), max_size=3))
def test_fields_of_later_brokers_survive_changes(layout: SegmentLayout, unknown: dict[str, Any]) -> None:
    """Unknown fields of the topic and of segments are preserved by a change."""
    unknown = {f"later{name}": value for name, value in unknown.items()}
    stored = json.loads(layout.encode()) | unknown
    first = min(stored["segments"], key=int)
    stored["segments"][first] |= unknown
    layout = SegmentLayout.parse(json.dumps(stored).encode())
    wide = next(segment for segment in layout.active if segment.hash_range.size > 1)
    after = json.loads(layout.split(wide.segment_id, 5000).encode())
    assert unknown.items() <= after.items()
    assert unknown.items() <= after["segments"][first].items()


Damage = Callable[[SegmentLayout, SegmentInfo], dict[str, Any]]
"""Returns the changed fields of one damaged segment."""

_OF_ACTIVE: dict[str, Damage] = {
    "lost hashes": lambda _, segment: {
        "hash_range": HashRange(start=segment.hash_range.start, end=segment.hash_range.end - 1)
    },
    "sealed alone": lambda _, __: {"state": SegmentState.SEALED},
    "a child": lambda layout, _: {"child_ids": (layout.next_segment_id - 1,)},
    "a seal": lambda _, __: {"sealed_at_epoch": 0, "sealed_at_ms": 0},
    "in a regular topic": lambda _, __: {"legacy_topic_name": "persistent://t/n/x"},
    "another id": lambda layout, _: {"segment_id": layout.next_segment_id},
    "of the future": lambda layout, _: {"created_at_epoch": layout.epoch + 1},
    "a parent that is not there": lambda layout, segment: {"parent_ids": (*segment.parent_ids, layout.next_segment_id)},
}
_OF_SEALED: dict[str, Damage] = {
    "active again": lambda _, __: {"state": SegmentState.ACTIVE},
    "sealed before it was made": lambda _, segment: {"sealed_at_ms": segment.created_at_ms - 1},
    "never sealed": lambda _, __: {"sealed_at_epoch": -1},
    "sealed in the future": lambda layout, _: {"sealed_at_epoch": layout.epoch + 1},
    "a child that is not there": lambda layout, segment: {"child_ids": (*segment.child_ids, layout.next_segment_id)},
    "a child twice": lambda layout, segment: {
        "child_ids": (*segment.child_ids, *segment.child_ids) or 2 * (layout.active[0].segment_id,)
    },
}


@given(layouts(2), st.data())
def test_damage_is_found(layout: SegmentLayout, data: st.DataObject) -> None:
    """Each kind of damage to one segment of a valid layout is reported."""
    segment = data.draw(st.sampled_from([*layout.segments.values()]))
    of_state = _OF_ACTIVE if segment.active else _OF_SEALED
    name = data.draw(st.sampled_from(sorted(of_state)))
    assume(name != "lost hashes" or segment.hash_range.size > 1)
    damaged = segment.model_copy(update=of_state[name](layout, segment))
    assert layout_faults(layout) == []
    assert layout_faults(layout.model_copy(update={"segments": {**layout.segments, segment.segment_id: damaged}}))


@given(layouts(2), st.data())
def test_a_segment_that_is_missing_is_found(layout: SegmentLayout, data: st.DataObject) -> None:
    """A missing segment leaves hashes without a segment, or references to it."""
    gone = data.draw(st.sampled_from([*layout.segments.values()]))
    assume(gone.active or gone.parent_ids or gone.child_ids)
    rest = {number: segment for number, segment in layout.segments.items() if number != gone.segment_id}
    assert layout_faults(layout.model_copy(update={"segments": rest}))


@given(layouts(2), st.data())
def test_an_edge_that_is_missing_is_found(layout: SegmentLayout, data: st.DataObject) -> None:
    """A fault is reported unless parents and children refer to each other."""
    linked = [segment for segment in layout.segments.values() if segment.parent_ids]
    assume(linked)
    child = data.draw(st.sampled_from(linked))
    parent = layout.segments[data.draw(st.sampled_from(child.parent_ids))]
    forgotten = tuple(child_id for child_id in parent.child_ids if child_id != child.segment_id)
    damaged = {**layout.segments, parent.segment_id: parent.model_copy(update={"child_ids": forgotten})}
    faults = layout_faults(layout.model_copy(update={"segments": damaged}))
    assert any(f"has the parent {parent.segment_id}, which does not have it as a child" in fault for fault in faults)


def test_the_smallest_and_the_largest() -> None:
    """A single segment has all hashes, and with the maximum number each segment has one."""
    assert SegmentLayout.initial(1, 0).active[0].hash_range == FULL
    whole = SegmentLayout.initial(HASHES, 0)
    assert all(segment.hash_range.size == 1 for segment in whole.active)
    assert whole.find(0xBEEF).descriptor == f"beef-beef-{0xBEEF}"
