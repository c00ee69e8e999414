"""The record of a topic: what changes make of it, and what clients are told."""

from __future__ import annotations

import json

import pytest

from models.segment import LayoutError
from models.topic_controller.record import Change, ControlledLayout, Mutation, PublishedLayout
from pulsar_scalable.controlled.layout import parse_layout
from pulsar_scalable.names import TopicName

URLS = ("https://one:8443", "https://two:8443")


def new(*urls: str) -> ControlledLayout:
    """A new topic of two segments."""
    return ControlledLayout.created(2, {"owner": "shop"}, 1000, urls)


def test_addresses_are_kept_and_published() -> None:
    """A topic keeps the addresses with which it is created, through a change, and clients read them."""
    record = new(*URLS).begun(Mutation(change=Change.SPLIT, segments=(0,), epoch=0)).done(2000)
    assert ControlledLayout.parse(record.encode()) == record
    told = PublishedLayout.of(record).encode()
    assert parse_layout(TopicName("public/default/orders"), told).controller_urls == URLS
    assert "controllerUrls" not in json.loads(new().encode())


def test_other_addresses_have_an_epoch() -> None:
    """Clients ignore a message of an epoch that they have, so other addresses raise it, and the same ones do not."""
    record = new().directed(URLS)
    assert (record.epoch, record.controller_urls, record.segments) == (1, URLS, new().segments)
    assert record.directed(URLS) == record
    before, after = (parse_layout(TopicName("a/b/c"), PublishedLayout.of(one).encode()) for one in (new(), record))
    assert after.supersedes(before)
    assert not before.supersedes(after)


def test_addresses_wait_for_a_change() -> None:
    """A change that is under way is one of its epoch: nothing else raises that."""
    record = new().begun(Mutation(change=Change.SPLIT, segments=(0,), epoch=0))
    with pytest.raises(LayoutError, match="the split of 0 is under way"):
        record.directed(URLS)
    assert record.directed(()) == record
