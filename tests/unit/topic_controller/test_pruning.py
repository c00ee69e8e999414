"""Sealed segments that must stay, and the rest of a layout when others are removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.segments.layout_check import layout_faults
from models.segments.segment import LayoutError
from models.topic_controller.pruning import (
    PruneRequest,
    PruneWatch,
    Pruning,
    SegmentContents,
    keep_reason,
    removable_segments,
)
from models.topic_controller.record import Change, ControlledLayout, Mutation

MINUTE = 60_000
AT_ONCE = Pruning(after=timedelta())
SUBSCRIBED = SegmentContents(entries=5, unacknowledged={"bill": 0}, retention_minutes=0)


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (SUBSCRIBED, None),
        (None, None),
        (SUBSCRIBED._replace(unacknowledged={"bill": 0, "audit": 1}), "audit has 1 unacknowledged messages"),
        (SUBSCRIBED._replace(entries=0, unacknowledged={"audit": 1}), "audit has 1 unacknowledged messages"),
        (SUBSCRIBED._replace(retention_minutes=-1), "retention keeps it indefinitely"),
        (SUBSCRIBED._replace(retention_minutes=11), "retention keeps it for 11 minutes"),
        (SUBSCRIBED._replace(retention_minutes=10), None),
        (SUBSCRIBED._replace(unacknowledged={}), "it has neither a subscription nor retention"),
        (SUBSCRIBED._replace(unacknowledged={}, retention_minutes=10), None),
        (SUBSCRIBED._replace(unacknowledged={}, retention_minutes=-1), "retention keeps it indefinitely"),
        (SUBSCRIBED._replace(entries=0, unacknowledged={}, retention_minutes=-1), None),
    ],
)
def test_segments_that_must_stay(contents: SegmentContents | None, why: str | None) -> None:
    """A segment stays while a subscription has messages left in it, or retention keeps it."""
    stays = keep_reason(0, contents, AT_ONCE, 10 * MINUTE)
    assert (stays.why if stays else None) == why


def test_the_time_of_the_next_check() -> None:
    """A reason that time ends says when; other reasons do not, and no force removes unconsumed messages."""
    fresh = keep_reason(1000, None, Pruning(after=timedelta(minutes=5)), 1000)
    assert fresh is not None
    assert (fresh.until_ms, fresh.always) == (1000 + 5 * MINUTE, False)
    lasting = keep_reason(1000, SUBSCRIBED._replace(retention_minutes=7), AT_ONCE, 1000)
    assert lasting is not None
    assert (lasting.until_ms, lasting.always) == (1000 + 7 * MINUTE, False)
    unread = keep_reason(1000, SUBSCRIBED._replace(unacknowledged={"bill": 1}), AT_ONCE, 1000)
    assert unread is not None
    assert (unread.until_ms, unread.always) == (None, True)


def split(record: ControlledLayout, segment: int) -> ControlledLayout:
    """Return the record after a split."""
    return record.with_pending(Mutation(change=Change.SPLIT, segments=(segment,), epoch=record.epoch)).with_commit(2000)


def test_parents_go_before_their_children() -> None:
    """A child that went first would let grandchildren be read before what their grandparents have left."""
    record = split(split(ControlledLayout.created(1, {}, 1000), 0), 1)
    with pytest.raises(LayoutError, match="segment 1 still has parents"):
        record.without_segments([1], 3000)
    pruned = record.without_segments([1, 0], 3000)
    assert (pruned.epoch, [*pruned.segments]) == (4, [2, 3, 4])
    assert [(segment.descriptor, segment.removed_at_ms) for segment in pruned.retired] == [
        ("0000-ffff-0", 3000),
        ("0000-7fff-1", 3000),
    ]
    assert [segment.segment_id for segment in pruned.without_retired([0]).retired] == [1]
    assert ControlledLayout.parse(pruned.encode()) == pruned


def test_segments_that_cannot_be_pruned() -> None:
    """An active segment cannot be pruned, and none while a change is under way."""
    record = split(ControlledLayout.created(1, {}, 1000), 0)
    with pytest.raises(LayoutError, match="segment 1 is active"):
        record.without_segments([1], 3000)
    with pytest.raises(LayoutError, match="the split of 1 is in progress"):
        record.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=1)).without_segments([0], 3000)


def test_candidates_for_pruning() -> None:
    """Candidates are sealed segments without parents, and topics of removed segments."""
    new = ControlledLayout.created(1, {}, 1000)
    assert PruneWatch.of(new, Pruning()) is None
    record = split(split(new, 0), 1)
    watch = PruneWatch.of(record, Pruning())
    assert watch is not None
    assert [candidate.descriptor for candidate in watch.candidates] == ["0000-ffff-0"]
    pruned = record.without_segments([0, 1], 3000)
    watch = PruneWatch.of(pruned, Pruning())
    assert watch is not None
    assert (watch.candidates, watch.retired) == ((), {"0000-ffff-0": 3000, "0000-7fff-1": 3000})
    assert PruneWatch.of(pruned, Pruning(delete_after=None)) is None
    assert [segment.segment_id for segment in removable_segments(record, PruneRequest())] == [0, 1]
    assert [segment.segment_id for segment in removable_segments(record, PruneRequest(segments=(1, 2, 9)))] == [1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=25))
def test_every_history_of_changes_can_be_pruned(steps: list[tuple[bool, int]]) -> None:
    """After any splits and prunings the layout is complete, and no range of hashes is lost."""
    record = ControlledLayout.created(2, {}, 1000)
    for prune, choice in steps:
        roots = [segment for segment in record.segments.values() if segment.sealed and segment.root]
        if prune and roots:
            record = record.without_segments([roots[choice % len(roots)].segment_id], 3000)
        else:
            record = split(record, record.active[choice % len(record.active)].segment_id)
        assert layout_faults(record.plain) == []
    sealed = [number for number, segment in record.segments.items() if segment.sealed]
    assert layout_faults(record.without_segments(sealed, 3000).plain) == []
