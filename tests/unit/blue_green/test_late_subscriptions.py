"""Subscriptions that come to blue, or that clients delete there, before the termination of their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.provisioning import late_topics
from activities.blue_green.provisioning.late_topics import MissingOnGreen, create_late, provision_late
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.blue_green.topics import TopicState
from clients.pulsar.admin.topics import EARLIEST, InternalInfo, Position, SubscriptionStats, TopicStats
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

    def missing(*_: object, **__: object) -> list[MissingOnGreen]:
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


def _each(items: Iterable[TopicName], work: Callable[[TopicName], object]) -> list[object]:
    return [work(item) for item in items]


_SAVED = TopicClients(consumers={"kept": 1, "go/ne": 2}, properties={"go/ne": {"team": "billing"}}, late=("go/ne",))
_KEPT = InternalInfo(cursors={"kept": {}})


def _provision(
    monkeypatch: pytest.MonkeyPatch,
    *,
    here: list[str] | None,
    info: InternalInfo | None = _KEPT,
    flagged: bool = False,
) -> tuple[TopicClients, list[dict[str, object]]]:
    """Return the saved clients of a topic and the notes of its namespace after the last listing before the flag."""
    store = MemoryStore()
    stats = TopicStats.model_construct(subscriptions={name: SubscriptionStats() for name in here or ()})
    answers: dict[str, object] = {
        "topics_of": [_TOPIC],
        "check_topic": TopicState(_TOPIC, None if here is None else stats),
        "stored": info,
        "read_flag": flagged,
        "provision_batch": None,
        "has_terminated_topics": False,
        "_schema_version": 0,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(late_topics, name, mock.Mock(return_value=answer))
    task, guard = mock.Mock(), mock.Mock(namespace="t/space")
    task.each = _each
    task.green.admin.subscriptions.names.return_value = ["kept", "go/ne", "back"]
    save_clients(store, guard, {_TOPIC: _SAVED})
    provision_late(task, [guard], store)
    return saved_clients(store, "t/space")[str(_TOPIC)], [note.kwargs for note in guard.note.call_args_list]


def test_those_that_clients_deleted_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No consumer of them comes to green, and a rollback must not create them; their topics are not compared."""
    assert _provision(monkeypatch, here=["kept"]) == (TopicClients(consumers={"kept": 1}), [])
    assert not cast("mock.Mock", late_topics.provision_batch).called


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"flagged": True}, id="an earlier attempt has set the flag"),
        pytest.param({"info": InternalInfo(properties={"migrated": "true"})}, id="brokers end the topic"),
        pytest.param({"info": InternalInfo(cursors={"kept": {}, "go%2Fne": {}})}, id="the store has it"),
        pytest.param({"info": None}, id="the store lacks the topic"),
        pytest.param({"here": None}, id="no broker has loaded the topic"),
    ],
)
def test_those_that_clients_did_not_delete_stay(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]) -> None:
    """Brokers delete drained ones, and a broker may not know all."""
    arguments: dict[str, Any] = {"here": ["kept"], **state}
    assert _provision(monkeypatch, **arguments) == (_SAVED, [])


def test_those_that_came_back_are_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green still has the one of the same name, whose cursor must be placed again."""
    clients, notes = _provision(monkeypatch, here=["kept", "go/ne", "back"])
    assert clients.consumers == {"kept": 1, "go/ne": 2, "back": 0}
    assert clients.late == ("back", "go/ne")
    assert notes == [{"copied_in": ""}]


def test_one_that_comes_back_after_the_flag_is_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green still has it, so nothing is created; a rollback must know it."""
    store, guard = MemoryStore(), mock.Mock(namespace="t/space")
    save_clients(store, guard, {_TOPIC: TopicClients(consumers={"kept": 1})})
    stats = TopicStats.model_construct(subscriptions={name: SubscriptionStats() for name in ("kept", "back")})
    topic = MissingOnGreen(_TOPIC, stats, [], exists=True, lacks_schema=False)
    monkeypatch.setattr(late_topics, "_missing_topics", mock.Mock(return_value=[topic]))
    create_late(mock.Mock(), [guard], store)
    assert saved_clients(store, "t/space")[str(_TOPIC)].consumers == {"kept": 1, "back": 0}
