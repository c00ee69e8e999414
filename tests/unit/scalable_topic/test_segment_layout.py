"""Layouts of scalable topics stay valid under every change."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from clients.pulsar.key_hashes import partition_of
from models.scalable_topic.copies import KeyHash
from models.segments.layout import SegmentLayout, key_hash
from models.segments.layout_check import layout_faults, migration_faults
from models.segments.segment import HASHES, HashRange, LayoutError, LayoutFault
from models.topic_controller.record import Change, Mutation
from tests.support.key_vectors import GENERATED_DIGEST, KEYS, VECTORS, KeyVector, digest, generated_keys
from tests.support.scalable_topic.layouts import random_steps

_TOPICS = ("persistent://t/n/x-partition-0", "persistent://t/n/x-partition-1", "persistent://t/n/x-partition-2")


def _grown(layout: SegmentLayout, chooser: random.Random, steps: int) -> SegmentLayout:
    """Return a layout after some valid changes."""
    return [layout, *(after for _, after in random_steps(layout, chooser, steps))][-1]


@given(st.integers(1, 300), st.integers(0, 40), st.randoms(use_true_random=False))
def test_layout_stays_whole(count: int, steps: int, chooser: random.Random) -> None:
    """After any sequence of changes each hash has one active segment, and the JSON says the same."""
    layout = _grown(SegmentLayout.initial(count, 999), chooser, steps)
    assert layout_faults(layout) == []
    assert sum(segment.hash_range.size for segment in layout.active) == HASHES
    value = chooser.randrange(HASHES)
    assert value in layout.find(value).hash_range
    assert SegmentLayout.parse(layout.encode()) == layout


@given(st.integers(1, 40), st.integers(0, 20), st.randoms(use_true_random=False))
def test_migrated_layout_stays_whole(partitions: int, steps: int, chooser: random.Random) -> None:
    """The layout of a migrated topic stays valid, and its partitions are ancestors of all segments."""
    names = [f"persistent://t/n/x-partition-{number}" for number in range(partitions)]
    layout = SegmentLayout.migrated(names, 999)
    assert (layout.epoch, layout.next_segment_id) == (0, 2 * partitions)
    assert [segment.topic("t/n/x") for segment in layout.segments.values() if segment.legacy] == names
    layout = _grown(layout, chooser, steps)
    assert layout_faults(layout) == []


def test_layout_of_a_migrated_topic() -> None:
    """Sealed parents have the whole range, and each active segment has all of them as parents."""
    layout = SegmentLayout.migrated(_TOPICS, 1000)
    assert [str(segment.hash_range) for segment in layout.active] == ["0000-5554", "5555-aaa9", "aaaa-ffff"]
    assert [segment.parent_ids for segment in layout.active] == 3 * [(0, 1, 2)]
    assert [
        (str(segment.hash_range), segment.child_ids, segment.sealed_at_epoch)
        for segment in map(layout.segments.get, range(3))
        if segment
    ] == (3 * [("0000-ffff", (3, 4, 5), 0)])
    assert layout.active[0].topic("t/n/x") == "segment://t/n/x/0000-5554-3"


def test_layout_equals_the_plan_of_a_migration() -> None:
    """A layout equals the plan regardless of its times; later changes and omissions are reported."""
    made = SegmentLayout.migrated(_TOPICS, 1_234)
    assert migration_faults(made, _TOPICS) == []
    assert migration_faults(made, _TOPICS[:2])[-2:] == ["segment 4 is unexpected", "segment 5 is unexpected"]
    merged = made.merge(3, 4, 2_000)
    assert migration_faults(merged, _TOPICS)[:2] == ["epoch is 1, not 0", "next_segment_id is 7, not 6"]
    assert "segment 0 is missing" in migration_faults(made.prune(0), _TOPICS)


def test_ranges_of_many_segments() -> None:
    """The last segment takes the remainder."""
    assert [str(range_) for range_ in HashRange.divided(5)][-2:] == ["9999-cccb", "cccc-ffff"]
    assert HashRange.divided(7)[-1].size == 9364
    assert len(HashRange.divided(HASHES)) == HASHES
    for count in (0, HASHES + 1):
        with pytest.raises(LayoutError, match="cannot be divided"):
            HashRange.divided(count)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector.raw:08x}")
def test_segments_of_keys(vector: KeyVector) -> None:
    """A key goes to the segment, or to the partition, that the Java client 5.0.1 chooses for it."""
    layout = SegmentLayout.initial(5, 1000)
    assert layout.route(vector.key) == layout.find(vector.segment)
    assert SegmentLayout.synthetic(_TOPICS, 1000).route(vector.key).segment_id == vector.legacy % 3
    assert partition_of(vector.key, 3, KeyHash.MURMUR3) == vector.legacy % 3


def test_hashes_of_many_keys() -> None:
    """The hashes of 10,000 generated keys have the digest of those that the Java client 5.0.1 computes."""
    keys = generated_keys()
    hashes = map(key_hash, keys)
    vectors = [
        KeyVector(key, raw, raw >> 16, raw & 0xFFFF, raw & 0x7FFF_FFFF) for key, raw in zip(keys, hashes, strict=True)
    ]
    assert len(vectors) == KEYS
    assert digest(vectors) == GENERATED_DIGEST


def test_routing() -> None:
    """Keys are routed by remainder while all segments are partitions, and by ranges afterwards."""
    synthetic = SegmentLayout.synthetic(_TOPICS, 1000)
    assert synthetic.route("hello").topic("t/n/x") == _TOPICS[613153351 % 3]
    assert synthetic.epoch == 0
    assert SegmentLayout.migrated(_TOPICS, 1000).route("hello").descriptor == "0000-5554-3"


def test_entry_buckets() -> None:
    """A split halves the number of entry buckets, a merge adds them up, a rebucket sets it; none changes the hashes."""
    layout = SegmentLayout.initial(1, 0).rebucket(0, 4, 1)
    assert layout.segments[1].entry_bucket_splits == (0x4000, 0x8000, 0xC000)
    assert (layout.segments[1].hash_range, layout.segments[1].parent_ids) == (layout.segments[0].hash_range, (0,))
    layout = layout.split(1, 2)
    assert [segment.entry_bucket_splits for segment in layout.active] == 2 * [(0x8000,)]
    assert layout.merge(2, 3, 3).segments[4].buckets == 4
    assert layout.merge(2, 3, 3, max_buckets=3).segments[4].entry_bucket_splits == (0x5555, 0xAAAA)
    assert layout.split(2, 3).split(4, 4).segments[6].entry_bucket_splits == ()
    with pytest.raises(LayoutError, match="has 2 equal entry buckets already"):
        layout.rebucket(2, 2, 3)
    with pytest.raises(LayoutError, match="cannot have 0 entry buckets"):
        layout.rebucket(2, 0, 3)


def test_lineage() -> None:
    """Ancestors are listed once each, parents first, unless they are pruned."""
    layout = SegmentLayout.initial(2, 0).split(0, 1).merge(3, 2, 2)
    assert [ancestor.segment_id for ancestor in layout.ancestors(4)] == [0, 2, 3]
    assert layout.segments[4].parent_ids == (3, 2)
    assert [ancestor.segment_id for ancestor in layout.prune(0).ancestors(4)] == [2, 3]


def test_what_cannot_be_done() -> None:
    """Each refused change names the segment."""
    layout = SegmentLayout.initial(4, 0).split(1, 1)
    with pytest.raises(LayoutError, match="segment 1 is sealed"):
        layout.split(1, 2)
    with pytest.raises(LayoutError, match="there is no segment 9"):
        layout.split(9, 2)
    with pytest.raises(LayoutError, match="not neighbours"):
        layout.merge(0, 3, 2)
    with pytest.raises(LayoutError, match="segment 0 is active"):
        layout.prune(0)
    with pytest.raises(LayoutError, match="only one hash"):
        SegmentLayout.initial(HASHES, 0).split(7, 1)
    with pytest.raises(LayoutError, match="no active segment has the hash 0007"):
        layout.model_copy(update={"segments": {}}).find(7)


def test_unknown_fields_survive() -> None:
    """Unknown fields of newer brokers are written back."""
    stored = SegmentLayout.initial(1, 5).encode()
    later = stored.replace(b'{"epoch"', b'{"migratedFrom":{"partitions":3},"epoch"').replace(
        b'"state"', b'"tier":"hot","state"'
    )
    layout = SegmentLayout.parse(later).split(0, 6)
    for field in (b'"migratedFrom":{"partitions":3}', b'"tier":"hot"'):
        assert field in layout.encode()
    for broken in (b"", b"null", b"{}", stored.replace(b'"end":65535', b'"end":65536')):
        with pytest.raises(ValidationError):
            SegmentLayout.parse(broken)


@pytest.mark.parametrize(
    ("number", "changes", "fault"),
    [
        (2, {"hash_range": HashRange(start=0, end=9)}, "a gap between them"),
        (3, {"hash_range": HashRange(start=0x9000, end=0x9009)}, "has no hash of its parent 0"),
        (2, {"hash_range": HashRange(start=0x4000, end=0x8000)}, "overlap"),
        (1, {"segment_id": 7}, "segment 1 is called 7"),
        (1, {"created_at_epoch": 5}, "created at epoch 5"),
        (1, {"child_ids": (0,)}, "is active, and has children"),
        (1, {"sealed_at_ms": 5}, "a time at which it was sealed"),
        (1, {"legacy_topic_name": "persistent://t/n/x"}, "its messages are in persistent://t/n/x"),
        (3, {"parent_ids": ()}, "has the child 3, which does not have it as a parent"),
        (3, {"parent_ids": (0, 0)}, "names a parent twice"),
        (3, {"parent_ids": (9,)}, "has the parent 9, which is not there"),
        (3, {"parent_ids": (0, 1)}, "has the parent 1, which does not have it as a child"),
        (0, {"child_ids": (2,)}, "which does not have it as a child"),
        (0, {"child_ids": (2, 3, 9)}, "has the child 9, which is not there"),
        (0, {"sealed_at_epoch": -1}, "was sealed at epoch -1"),
        (0, {"sealed_at_ms": -1}, "was sealed before it was created"),
    ],
)
def test_faults_are_named(number: int, changes: dict[str, Any], fault: str) -> None:
    """Each kind of damage to a valid layout is reported."""
    whole = SegmentLayout.initial(2, 0).split(0, 1)
    assert layout_faults(whole) == []
    segments = {**whole.segments, number: whole.segments[number].model_copy(update=changes)}
    assert fault in "; ".join(layout_faults(whole.model_copy(update={"segments": segments})))


def test_faults_of_the_whole() -> None:
    """No active segment, gaps in the hash range and reused ids are reported."""
    whole = SegmentLayout.initial(3, 0)

    def without(number: int) -> SegmentLayout:
        rest = {key: segment for key, segment in whole.segments.items() if key != number}
        return whole.model_copy(update={"segments": rest})

    assert layout_faults(whole.model_copy(update={"segments": {}})) == ["no segment is active"]
    assert layout_faults(without(0)) == ["no active segment has the hashes before 5555"]
    assert layout_faults(without(2)) == ["no active segment has the hashes after aaa9"]
    assert layout_faults(whole.model_copy(update={"next_segment_id": 2})) == ["segment 2 is not below the next id, 2"]


@pytest.mark.parametrize(
    ("segments", "fault"),
    [
        ((9,), LayoutFault.SEGMENT_NOT_FOUND),
        ((3,), LayoutFault.SEGMENT_SEALED),
        ((0, 9), LayoutFault.SEGMENT_NOT_FOUND),
        ((3, 9), LayoutFault.SEGMENT_NOT_FOUND),
        ((2, 3), LayoutFault.SEGMENT_SEALED),
        ((0, 2), LayoutFault.NOT_NEIGHBOURS),
    ],
)
def test_why_a_change_does_not_fit(segments: tuple[int, ...], fault: LayoutFault) -> None:
    """A missing segment is reported before a sealed one, and that before segments that are not neighbours."""
    layout = SegmentLayout.initial(4, 0).split(3, 0)
    change = Change.SPLIT if len(segments) == 1 else Change.MERGE
    with pytest.raises(LayoutError) as refused:
        Mutation(change=change, segments=segments, epoch=layout.epoch).apply(layout, 0)
    assert refused.value.fault is fault


def test_one_hash_cannot_be_split() -> None:
    """The fault of a segment that is too small says so."""
    with pytest.raises(LayoutError) as refused:
        HashRange(start=7, end=7).split()
    assert refused.value.fault is LayoutFault.TOO_SMALL
