"""The order in which LOAD asks of topics, and makes room on green."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.batch import load
from activities.blue_green.context import BatchTask, NamespaceGuard
from activities.blue_green.topics import TopicState
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName


def _task(guards: Sequence[NamespaceGuard]) -> BatchTask:
    return cast(
        "BatchTask",
        SimpleNamespace(
            blue=SimpleNamespace(admin=None), input=None, guards=guards, store=None, wait_while_stopped=lambda: None
        ),
    )


def test_a_batch_that_is_refused_deletes_nothing_of_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that cannot be moved as they are used are refused before topics of green that were ended are deleted."""
    names = [TopicName.parse(f"persistent://t/{space}/x") for space in ("a", "b")]
    stats = {names[0]: TopicStats(), names[1]: TopicStats(msg_chunk_published=True)}

    def topics_of(_admin: object, namespace: str) -> list[TopicName]:
        return [name for name in names if name.namespace_path == namespace]

    def load_topics(_task: object, topics: list[TopicName]) -> list[TopicState]:
        return [TopicState(topic, stats[topic]) for topic in topics]

    def nothing(*_: object, **_more: object) -> set[str]:
        return set()

    def reopen_namespace(*_: object) -> None:
        raise AssertionError("topics of green are deleted")

    for name, double in (
        ("topics_of", topics_of),
        ("load_topics", load_topics),
        ("reopen_namespace", reopen_namespace),
    ):
        monkeypatch.setattr(load, name, double)

    def was_blue(_: object) -> bool:
        return True

    monkeypatch.setattr(load, "was_blue", was_blue)
    for name in ("require_covered", "lift_limit_if_terminated", "redirected_namespaces", "recheck_namespaces"):
        monkeypatch.setattr(load, name, nothing)
    guards = [cast("NamespaceGuard", SimpleNamespace(namespace=f"t/{space}", note=nothing)) for space in ("a", "b")]
    with pytest.raises(StoreConflict, match="in chunks"):
        load.load(_task(guards))


def test_a_batch_is_asked_again_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """A use that began after PRECHECK is refused before green gets anything; moved namespaces are not checked."""
    asked: list[str] = []

    class RefusedError(Exception):
        """The batch is refused."""

    def ask(_task: object, guards: list[NamespaceGuard], **_: object) -> None:
        asked.extend(guard.namespace for guard in guards)
        raise RefusedError

    def nothing(*_: object, **_more: object) -> None:
        return None

    def redirected_namespaces(*_: object) -> set[str]:
        return {"t/moved"}

    monkeypatch.setattr(load, "require_covered", nothing)
    monkeypatch.setattr(load, "lift_limit_if_terminated", nothing)
    monkeypatch.setattr(load, "redirected_namespaces", redirected_namespaces)
    monkeypatch.setattr(load, "recheck_namespaces", ask)

    def record() -> SimpleNamespace:
        return SimpleNamespace(stage="CLAIMED")

    guards = [
        cast("NamespaceGuard", SimpleNamespace(namespace=name, require=record, note=nothing))
        for name in ("t/moved", "t/stays")
    ]
    with pytest.raises(RefusedError):
        load.load(_task(guards))
    assert asked == ["t/stays"]
