"""Subscriptions that come to blue between the flag and the termination of their topics."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.provisioning import late_topics
from activities.blue_green.provisioning.late_topics import MissingOnGreen, create_late
from activities.blue_green.saved_clients import save_clients, saved_clients
from clients.pulsar.admin.topics import EARLIEST, Position, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.tasks import Recorded
from tests.support.clients.memory_store import MemoryStore

_TOPIC = TopicName.parse("persistent://t/space/topic")
_NEW_TOPIC = TopicName.parse("persistent://t/space/newcomer")
_COPIES = CopyRecord(start=(1, -1), runs=((1, 0, 5, 0, 3),), copied_subscriptions=("idle",))


def _create(
    monkeypatch: pytest.MonkeyPatch, subscriptions: list[str], record: CopyRecord | None
) -> tuple[dict[str, Position], list[object]]:
    """Return what is created on green, with its position, and the topics whose clients are saved."""
    created: dict[str, Position] = {}
    saved: list[object] = []
    stats = TopicStats.model_construct(subscriptions={name: SubscriptionStats() for name in subscriptions})

    def missing(*_: object) -> list[MissingOnGreen]:
        return [MissingOnGreen(_TOPIC, stats, subscriptions, exists=False, lacks_schema=False)]

    def read_record(*_: object) -> Recorded | None:
        return Recorded(record, 1) if record else None

    def save(_store: object, _guard: object, topics: list[object]) -> None:
        saved.extend(topics)

    def create(_topic: object, name: str, position: Position, **_: object) -> None:
        created[name] = position

    monkeypatch.setattr(late_topics, "_missing_topics", missing)
    monkeypatch.setattr(late_topics, "read_record", read_record)
    monkeypatch.setattr(late_topics, "_save_new_clients", save)
    admin = SimpleNamespace(subscriptions=SimpleNamespace(create=create))

    def change_or_never(*, change: Callable[[Any], None], **_: object) -> None:
        change(admin)

    green: Any = SimpleNamespace(admin=admin, change_or_never=change_or_never)
    guard = cast("NamespaceGuard", SimpleNamespace(namespace="t/space", require=lambda: None))
    create_late(cast("AnyBlueGreenTask", SimpleNamespace(green=green)), [guard], MemoryStore())
    return created, saved


def test_they_start_after_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their backlog is on blue; a copied subscription that green has lost starts at the first copy."""
    after = Position(ledger_id=5, entry_id=3)
    assert _create(monkeypatch, ["new"], _COPIES)[0] == {"new": after}
    assert _create(monkeypatch, ["new"], None)[0] == {"new": EARLIEST}
    assert _create(monkeypatch, ["idle", "new"], _COPIES)[0] == {"idle": EARLIEST, "new": after}


def test_they_are_saved_as_late() -> None:
    """A new application may not have consumed from its subscription yet: its backlog is not one to skip."""
    store = MemoryStore()
    guard = cast("NamespaceGuard", SimpleNamespace(namespace="t/space", require=lambda: None))
    save_clients(store, guard, {_TOPIC: TopicClients(consumers={"idle": 0})})
    for names in (["idle", "new"], ["idle", "newest"]):
        stats = TopicStats.model_construct(subscriptions={name: SubscriptionStats() for name in names})
        for topic in (_TOPIC, _NEW_TOPIC):
            late_topics._save_new_clients(  # pyright: ignore[reportPrivateUsage]
                store, guard, [MissingOnGreen(topic, stats, names, exists=True, lacks_schema=False)]
            )
    late = {topic: clients.late for topic, clients in saved_clients(store, "t/space").items()}
    assert late == {str(_TOPIC): ("new", "newest"), str(_NEW_TOPIC): ("idle", "new", "newest")}


def test_a_topic_without_subscriptions_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may have deleted it on green after an earlier migration had moved it, and VERIFY must not miss it."""
    assert _create(monkeypatch, [], None) == ({}, [])
