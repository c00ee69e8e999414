"""The rollback of a batch of which DRAIN has begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green import reopened_topics
from activities.blue_green.batch import undo
from activities.blue_green.context import BatchTask, NamespaceGuard
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName
from models.blue_green.results import Undone

_RUN = "run-1"
_TOPIC = TopicName.parse("persistent://t/space/orders")


def _undo(
    monkeypatch: pytest.MonkeyPatch,
    topics: dict[TopicName, InternalInfo],
    *,
    skipped: bool = False,
    unterminate: bool = True,
) -> tuple[Undone, list[str]]:
    """Roll back a batch of one namespace; return the result, and the namespaces that stay on blue."""
    staying: list[str] = []
    record = SimpleNamespace(flipped_in=_RUN, skipped=skipped)
    guard = cast("NamespaceGuard", SimpleNamespace(namespace="t/space", take=lambda: record, require=lambda: record))

    def holds_claim(*_: object) -> bool:
        return True

    def nothing(*_: object, **_more: object) -> frozenset[str]:
        return frozenset()

    def no_clients(*_: object) -> dict[str, object]:
        return {}

    def topics_of(*_: object) -> list[TopicName]:
        return [*topics]

    def stored(_: object, topic: TopicName) -> InternalInfo:
        return topics[topic]

    def each(items: Iterable[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return [work(item) for item in items]

    def keep_on_blue(_task: object, guard: NamespaceGuard) -> None:
        staying.append(guard.namespace)

    monkeypatch.setattr(undo, "_keep_on_blue", keep_on_blue)
    monkeypatch.setattr(undo, "holds_claim", holds_claim)
    monkeypatch.setattr(undo, "topics_of", topics_of)
    monkeypatch.setattr(undo, "stored", stored)
    monkeypatch.setattr(reopened_topics, "saved_clients", no_clients)
    for name in (
        "redirected_namespaces",
        "used_on_green",
        "set_flag",
        "wait_until_seen",
        "terminate_or_give_up",
        "restore_redirect",
    ):
        monkeypatch.setattr(undo, name, nothing)
    side = SimpleNamespace(admin=None)
    input = SimpleNamespace(cluster="blue", green_cluster="green", unterminate=unterminate)
    task = SimpleNamespace(guards=[guard], store=None, blue=side, green=side, input=input, each=each)
    task.attempt, task.context = SimpleNamespace(run_id=_RUN), SimpleNamespace(pause=nothing)
    return undo.undo(cast("BatchTask", task)), staying


@pytest.mark.parametrize("skipped", [False, True])
def test_skipped_backlogs_keep_a_batch_from_its_rollback(monkeypatch: pytest.MonkeyPatch, skipped: bool) -> None:
    """Subscriptions whose backlog is skipped on blue must continue on green, which has the copies."""
    undone, staying = _undo(monkeypatch, {}, skipped=skipped)
    assert (undone.undone, staying) == ((False, []) if skipped else (True, ["t/space"]))
    assert undone.why.startswith("t/space: backlogs that were copied to green are skipped on blue" if skipped else "")


@pytest.mark.parametrize("by_a_client", [False, True])
def test_only_what_the_flip_terminated_keeps_a_batch_from_its_rollback(
    monkeypatch: pytest.MonkeyPatch, *, by_a_client: bool
) -> None:
    """A topic that a client has terminated stays as it is, and does not hold writes until the flip is complete."""
    properties = {} if by_a_client else {"migrated": "true"}
    end = {"terminatedPosition": {"ledgerId": 5, "entryId": 3}, "properties": properties}
    undone, staying = _undo(monkeypatch, {_TOPIC: InternalInfo.model_validate(end)}, unterminate=False)
    assert (undone.undone, staying) == ((True, ["t/space"]) if by_a_client else (False, []))
