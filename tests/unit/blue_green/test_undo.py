"""The rollback of a batch of which DRAIN has begun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green import reopened_topics
from activities.blue_green.batch import undo
from activities.blue_green.context import BatchTask, NamespaceGuard

_RUN = "run-1"


@pytest.mark.parametrize("skipped", [False, True])
def test_skipped_backlogs_keep_a_batch_from_its_rollback(monkeypatch: pytest.MonkeyPatch, skipped: bool) -> None:
    """Subscriptions whose backlog is skipped on blue must continue on green, which has the copies."""
    staying: list[NamespaceGuard] = []
    record = SimpleNamespace(flipped_in=_RUN, skipped=skipped)
    guard = cast("NamespaceGuard", SimpleNamespace(namespace="t/space", take=lambda: record, require=lambda: record))

    def holds_claim(*_: object) -> bool:
        return True

    def nothing(*_: object, **_more: object) -> tuple[()]:
        return ()

    def no_clients(*_: object) -> dict[str, object]:
        return {}

    def no_names(*_: object) -> set[str]:
        return set()

    def keep_on_blue(_task: object, guard: NamespaceGuard) -> None:
        staying.append(guard)

    monkeypatch.setattr(undo, "_keep_on_blue", keep_on_blue)
    monkeypatch.setattr(undo, "holds_claim", holds_claim)
    monkeypatch.setattr(undo, "redirected_namespaces", no_names)
    monkeypatch.setattr(reopened_topics, "saved_clients", no_clients)
    for name in ("topics_of", "set_flag", "wait_until_seen", "terminate_or_give_up", "restore_redirect"):
        monkeypatch.setattr(undo, name, nothing)
    side = SimpleNamespace(admin=None)
    input = SimpleNamespace(cluster="blue", green_cluster="green", unterminate=True)
    task = SimpleNamespace(guards=[guard], store=None, blue=side, green=side, input=input, each=nothing)
    task.attempt, task.context = SimpleNamespace(run_id=_RUN), SimpleNamespace(pause=nothing)
    undone = undo.undo(cast("BatchTask", task))
    assert (undone.undone, staying) == ((False, []) if skipped else (True, [guard]))
    assert undone.why.startswith("t/space: backlogs that were copied to green are skipped on blue" if skipped else "")
