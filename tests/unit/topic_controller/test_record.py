"""The record of a topic: how changes modify it, and how it is published."""

from __future__ import annotations

import json

import pytest

from models.segments.segment import LayoutError
from models.topic_controller.record import Change, ControlledLayout, Mutation, PublishedLayout
from pulsar_scalable.controlled.layout import parse_layout
from pulsar_scalable.names import TopicName

URLS = ("https://one:8443", "https://two:8443")


def new(*urls: str) -> ControlledLayout:
    """Return a new topic of two segments."""
    return ControlledLayout.created(2, {"owner": "shop"}, 1000, urls)


def test_addresses_are_kept_and_published() -> None:
    """A topic keeps the addresses with which it is created, through a change, and clients read them."""
    record = new(*URLS).with_pending(Mutation(change=Change.SPLIT, segments=(0,), epoch=0)).with_commit(2000)
    assert ControlledLayout.parse(record.encode()) == record
    encoded = PublishedLayout.of(record).encode()
    assert parse_layout(TopicName("public/default/orders"), encoded).controller_urls == URLS
    assert "controllerUrls" not in json.loads(new().encode())


def test_other_addresses_have_an_epoch() -> None:
    """Clients ignore a message of an epoch that they have, so other addresses raise it, and the same ones do not."""
    record = new().with_controller_urls(URLS)
    assert (record.epoch, record.controller_urls, record.segments) == (1, URLS, new().segments)
    assert record.with_controller_urls(URLS) == record
    before, after = (
        parse_layout(TopicName("a/b/c"), PublishedLayout.of(layout).encode()) for layout in (new(), record)
    )
    assert after.supersedes(before)
    assert not before.supersedes(after)


def test_addresses_wait_for_a_change() -> None:
    """A change that is under way is one of its epoch: nothing else raises that."""
    record = new().with_pending(Mutation(change=Change.SPLIT, segments=(0,), epoch=0))
    with pytest.raises(LayoutError, match="the split of 0 is in progress"):
        record.with_controller_urls(URLS)
    assert record.with_controller_urls(()) == record


def test_ids_whose_topics_are_taken() -> None:
    """A change passes over them, deletes only what it made itself, and continues with the next ids."""
    split = Mutation(change=Change.SPLIT, segments=(0,), epoch=0)
    record = new().with_pending(split).with_skipped_ids(split, 5, {3})
    assert ([segment.segment_id for segment in record.retired], record.pending) == ([2], split)
    assert split.first_segment(record) == 4
    assert [segment.segment_id for segment in record.with_commit(6).active] == [4, 5, 1]
    other = Mutation(change=Change.MERGE, segments=(0, 1), epoch=0)
    assert record.with_skipped_ids(other, 7, ()) == record
    assert [segment.segment_id for segment in new().with_pending(split).without_pending(split, 5, {2}).retired] == [3]


def test_ids_of_a_change_that_was_given_up() -> None:
    """They come no more, and what was made is deleted later where it is not at once; another change stays."""
    split = Mutation(change=Change.SPLIT, segments=(0,), epoch=0)
    merge = Mutation(change=Change.MERGE, segments=(0, 1), epoch=0)
    record = new().with_pending(split)
    assert record.without_pending(merge, 5) == record
    record = record.without_pending(split, 5)
    assert [(segment.segment_id, segment.removed_at_ms) for segment in record.retired] == [(2, 5), (3, 5)]
    assert record.without_retired({2, 3}) == new().with_next_segment(4)
    record = record.with_pending(split)
    assert (split.first_segment(record), split.first_segment(record.with_commit(6))) == (4, 4)
    assert [segment.segment_id for segment in record.with_commit(6).active] == [4, 5, 1]
    done = record.with_commit(6)
    refused = Mutation(change=Change.SPLIT, segments=(1,), epoch=1)
    assert split.first_segment(done.with_pending(refused).without_pending(refused, 7)) == 4
    merged = new().with_pending(merge)
    assert (merge.first_segment(merged), merge.first_segment(merged.with_commit(6))) == (2, 2)
