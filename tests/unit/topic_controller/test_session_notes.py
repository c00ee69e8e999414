"""Notes of sessions: many at a time, after the fence, and harmless when done twice."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from activities.lifecycle.parallel import map_sequential
from activities.topic_controller.lease import LeaderLease
from activities.topic_controller.records import Records, coordinator_path, record_path
from clients.cas.store import Part
from clients.errors import StoreUnsupported, Superseded
from clients.pulsar.names import TopicName
from models.lifecycle.claim import Attempt
from models.segments.segment import SubscriptionKind
from tests.support.clients.memory_store import MemoryStore

TOPIC = TopicName.parse("persistent://acme/shop/orders")
CONSUMERS = f"{record_path(TOPIC)}/subscriptions/bill/consumers"


class CountingStore(MemoryStore):
    """Counts transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions = 0

    def transaction(self, parts: Sequence[Part]) -> None:
        """Apply all parts or none."""
        self.transactions += 1
        super().transaction(parts)


class OneByOneStore(MemoryStore):
    """Has no transactions of several records, as Oxia."""

    def transaction(self, parts: Sequence[Part]) -> None:
        """Take one record at a time."""
        if len(parts) > 1:
            raise StoreUnsupported("no transactions")
        super().transaction(parts)


def attempt(number: int) -> Attempt:
    """Return an attempt of the controller."""
    return Attempt(
        workflow_id="scalable-topic/acme/shop/orders",
        run_id="run",
        started_ms=0,
        epoch=1,
        attempt=number,
    )


def records(store: MemoryStore, number: int = 1) -> Records:
    """Return records on behalf of an attempt that assigns segments to consumers."""
    keeper = LeaderLease(store, attempt(number), path=coordinator_path(TOPIC))
    keeper.take()
    return Records(store, TOPIC, keeper)


def noted(store: MemoryStore) -> dict[str, list[int]]:
    """Return the noted segments, by consumer."""
    return {
        name: json.loads(store.nodes[f"{CONSUMERS}/{name}"].value)["segments"] for name in store.children(CONSUMERS)
    }


@pytest.mark.parametrize("kind", [MemoryStore, OneByOneStore])
def test_sessions_begin_change_and_end(kind: type[MemoryStore]) -> None:
    """A note has what was published last, also when that is published twice, with transactions or without."""
    store = kind()
    ours = records(store)
    ours.register("bill", SubscriptionKind.STREAM)
    for _ in range(2):
        ours.note_sessions("bill", {"a": (0, 1), "b": ()}, (), map_sequential)
        assert noted(store) == {"a": [0, 1], "b": []}
    for _ in range(2):
        ours.note_sessions("bill", {"b": (0, 1)}, ("a", "never-there"), map_sequential)
        assert noted(store) == {"b": [0, 1]}
    assert ours.consumers("bill") == ["b"]


def test_a_thousand_sessions_take_few_transactions() -> None:
    """A thousand consumers that come at once are noted in five transactions, and leave in five."""
    store = CountingStore()
    ours = records(store)
    ours.register("bill", SubscriptionKind.STREAM)
    names = [f"consumer-{number}" for number in range(1000)]
    for assigned, ended, remaining in ((dict.fromkeys(names, ()), (), 1000), ({}, names, 0)):
        store.transactions = 0
        ours.note_sessions("bill", assigned, ended, map_sequential)
        assert (store.transactions, len(noted(store))) == (5, remaining)


@pytest.mark.parametrize("kind", [MemoryStore, OneByOneStore])
def test_a_superseded_attempt_notes_nothing(kind: type[MemoryStore]) -> None:
    """An attempt that has lost the lease changes no note, also if it has checked the fence before."""
    store = kind()
    late = records(store)
    late.register("bill", SubscriptionKind.STREAM)
    late.note_sessions("bill", {"a": (0,)}, (), map_sequential)

    def overtake() -> None:
        store.before_write = lambda: None
        newer = records(store, 2)
        newer.note_sessions("bill", {"a": (1,)}, (), map_sequential)

    store.before_write = overtake
    with pytest.raises(Superseded):
        late.note_sessions("bill", {"a": (2,), "b": (3,)}, (), map_sequential)
    assert noted(store) == {"a": [1]}


def test_a_deleted_subscription_stays_deleted() -> None:
    """Sessions of a deleted subscription do not create any part of it again."""
    store = MemoryStore()
    ours = records(store)
    ours.note_sessions("bill", {"a": (0,)}, (), map_sequential)
    assert not [path for path in store.nodes if "/bill" in path]
