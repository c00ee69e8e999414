"""Layouts: the arithmetic is the one by which this project checks brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.segments.layout import SegmentLayout
from models.segments.layout import key_hash as expected_hash
from pulsar_scalable.errors import LayoutError
from pulsar_scalable.layout import (
    Layout,
    RoundRobin,
    Segment,
    bucket_hash,
    key_hash,
    partition_hash,
    segment_hash,
    synthetic,
)
from tests.support.key_vectors import (
    GENERATED_DIGEST,
    KEYS,
    VECTORS,
    KeyVector,
    digest,
    generated_keys,
)

TOPIC = "topic://public/default/orders"
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=8)


def as_layout(model: SegmentLayout) -> Layout:
    """Return the same layout in the client's types."""
    return Layout(
        TOPIC,
        model.epoch,
        tuple(
            Segment(
                segment.segment_id,
                segment.hash_range.start,
                segment.hash_range.end,
                segment.active,
                segment.parent_ids,
                segment.child_ids,
                segment.legacy_topic_name,
            )
            for segment in model.segments.values()
        ),
    )


def changed(count: int, changes: list[tuple[bool, int]]) -> SegmentLayout:
    """Return a layout after splits and merges."""
    model = SegmentLayout.initial(count, 0)
    for split, turn in changes:
        active = model.active
        at = turn % len(active)
        if split and active[at].hash_range.size > 1:
            model = model.split(active[at].segment_id, 0)
        elif len(active) > 1:
            pair = active[at % (len(active) - 1) :][:2]
            model = model.merge(pair[0].segment_id, pair[1].segment_id, 0)
    return model


def vector_of(key: str) -> KeyVector:
    """Return the client's hashes of a key."""
    raw = key_hash(key)
    return KeyVector(key, raw, segment_hash(raw), bucket_hash(raw), partition_hash(raw))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.key.encode().hex()[:20])
def test_hashes_are_those_of_the_java_client(vector: KeyVector) -> None:
    """A key has the segment hash, the bucket hash and the partition hash of the Java client 5.0.1."""
    assert vector_of(vector.key) == vector
    assert key_hash(vector.key.encode()) == vector.raw
    assert expected_hash(vector.key) == vector.raw


def test_hashes_of_many_keys_are_those_of_the_java_client() -> None:
    """10,000 keys, empty, of one byte, long and not ASCII, have the hashes of the Java client 5.0.1."""
    keys = generated_keys()
    assert len({*keys}) > KEYS * 0.9
    assert digest(map(vector_of, keys)) == GENERATED_DIGEST


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.key.encode().hex()[:20])
def test_the_high_half_chooses_the_segment(vector: KeyVector) -> None:
    """A segment that takes exactly the high 16 bits of a key's hash takes the key, in the client and in the model."""
    model = SegmentLayout.initial(1, 0)
    for _ in range(5):
        model = model.split(
            next(segment.segment_id for segment in model.active if vector.segment in segment.hash_range), 0
        )
    segment = as_layout(model).segment_for(vector.key)
    assert segment.start <= vector.segment <= segment.end
    assert model.route(vector.key).segment_id == segment.id


@given(st.text())
def test_hashes_are_those_of_the_project(key: str) -> None:
    """Two implementations, one hash."""
    assert key_hash(key) == expected_hash(key)


@given(st.integers(1, 9), CHANGES, st.text())
def test_routes_are_those_of_the_project(count: int, changes: list[tuple[bool, int]], key: str) -> None:
    """After any splits and merges, a key finds the segment that the project's model names."""
    model = changed(count, changes)
    layout = as_layout(model)
    expected = model.route(key)
    segment = layout.segment_for(key)
    assert segment == layout.segment_for(key_hash(key))
    assert (segment.id, layout.topic_of(segment)) == (expected.segment_id, expected.topic("public/default/orders"))


@given(st.integers(1, 9), CHANGES)
def test_parents_come_before_their_children(count: int, changes: list[tuple[bool, int]]) -> None:
    """In the order in which segments are drained."""
    layout = as_layout(changed(count, changes))
    seen: set[int] = set()
    for segment in layout.drain_order():
        assert seen.issuperset(segment.parents)
        seen.add(segment.id)
    assert seen == set(layout.by_id)


def test_pruned_parents_delay_no_segment() -> None:
    """A parent that is not there any more is drained."""
    layout = Layout(TOPIC, 3, (Segment(4, 0, 0xFFFF, parents=(1,)),))
    assert [segment.id for segment in layout.drain_order()] == [4]


def test_a_ring_of_parents_is_refused() -> None:
    """A layout that no broker makes."""
    layout = Layout(TOPIC, 0, (Segment(0, 0, 9, parents=(1,)), Segment(1, 0, 9, parents=(0,))))
    with pytest.raises(LayoutError):
        layout.drain_order()


@given(st.integers(1, 9), st.text())
def test_regular_topics_route_as_before(count: int, key: str) -> None:
    """A regular topic routes by the remainder of the hash, as partitioned topics do."""
    parts = [f"persistent://public/default/orders-partition-{number}" for number in range(count)]
    layout = synthetic(TOPIC, parts)
    model = SegmentLayout.synthetic(parts, 0)
    assert layout == as_layout(model)
    segment = layout.segment_for(key)
    assert (segment.id, layout.topic_of(segment)) == (
        partition_hash(key_hash(key)) % count,
        model.route(key).legacy_topic_name,
    )


@given(st.integers(1, 5), st.text())
def test_migrated_topics_route_by_range(count: int, key: str) -> None:
    """A migrated topic routes by hash range; its parents are sealed, and accept no messages."""
    parts = [f"persistent://public/default/orders-partition-{number}" for number in range(count)]
    model = SegmentLayout.migrated(parts, 0)
    layout = as_layout(model)
    assert layout.segment_for(key).id == model.route(key).segment_id
    assert layout.topic_of(layout.by_id[0]) == parts[0]


def test_messages_without_a_key_take_turns() -> None:
    """Over active segments only, also where their number changes."""
    model = SegmentLayout.initial(3, 0)
    turns = RoundRobin()
    assert [turns.segment(as_layout(model)).id for _ in range(4)] == [0, 1, 2, 0]
    split = as_layout(model.split(0, 0))
    assert {turns.segment(split).id for _ in range(4)} == {1, 2, 3, 4}


def test_no_segment() -> None:
    """A hole in the hashes, or no active segment at all."""
    hole = Layout(TOPIC, 0, (Segment(0, 0, 9), Segment(1, 20, 0xFFFF, active=False)))
    with pytest.raises(LayoutError, match="covers hash"):
        hole.segment_for(15 << 16)
    with pytest.raises(LayoutError):
        RoundRobin().segment(Layout(TOPIC, 0, ()))


def test_epochs_never_decrease() -> None:
    """A later layout counts, and at the same epoch only the scalable topic that a regular one became."""
    regular = synthetic(TOPIC, ["persistent://public/default/orders"])
    migrated = as_layout(SegmentLayout.migrated(["persistent://public/default/orders"], 0))
    later = as_layout(SegmentLayout.initial(2, 0).split(0, 0))
    assert regular.supersedes(None)
    assert migrated.supersedes(regular)
    assert not regular.supersedes(migrated)
    assert later.supersedes(migrated)
    assert not migrated.supersedes(later)
    assert not later.supersedes(later)


def test_descriptors() -> None:
    """Four digits for each hash, lower case, and the id."""
    segment = Segment(12, 0xAB, 0xFFFF)
    assert segment.descriptor == "00ab-ffff-12"
    assert (
        segment.topic("public/default/x")
        == segment.topic("topic://public/default/x")
        == "segment://public/default/x/00ab-ffff-12"
    )
