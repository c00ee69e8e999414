"""Deletions of ended topics in LOAD, of which a lost attempt may have sent some late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green import failback
from activities.blue_green import topics as topic_rules
from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.failback import TerminatedTopic, delete_terminated, terminated_topics
from clients.errors import StoreUnreachable
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName

_TOPIC = TopicName.parse("persistent://t/space/topic")


class _Attempts:
    """Attempts at the deletion, and what they did in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.topics = [_TOPIC]
        self.is_lost = False
        self._record = SimpleNamespace(deleting=False)

        def terminated_topics(*_: object) -> dict[TopicName, TerminatedTopic]:
            return dict.fromkeys(self.topics, TerminatedTopic("", ""))

        monkeypatch.setattr(failback, "terminated_topics", terminated_topics)

    def run(self) -> None:
        """Run the next attempt."""
        green = SimpleNamespace(
            change_or_never=self._delete, await_late_requests=lambda: self.events.append("wait for late requests")
        )

        def each(topics: Iterable[TopicName], work: Callable[[TopicName], None]) -> None:
            for topic in topics:
                work(topic)

        task = SimpleNamespace(green=SimpleNamespace(admin=None, **vars(green)), each=each, blue=None)
        task.input = SimpleNamespace(cluster="blue", green_cluster="green", discard_retained=False)
        guard = SimpleNamespace(namespace="t/space", note=self._note, require=lambda: self._record)
        delete_terminated(cast("AnyBlueGreenTask", task), cast("NamespaceGuard", guard))

    def _note(self, **fields: bool) -> None:
        self.events.append(f"note {fields}")
        vars(self._record).update(fields)

    def _delete(self, **_: object) -> None:
        self.events.append("delete")
        if self.is_lost:
            raise StoreUnreachable("no answer")


def test_a_first_attempt_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record says that it deletes, until all answers are there."""
    attempts = _Attempts(monkeypatch)
    attempts.run()
    attempts.run()
    deletion = ["note {'deleting': True}", "delete", "note {'deleting': False}"]
    assert attempts.events == [*deletion, *deletion]


@pytest.mark.parametrize("topics", [[_TOPIC], []])
def test_an_attempt_after_a_lost_one_waits(monkeypatch: pytest.MonkeyPatch, topics: list[TopicName]) -> None:
    """A late deletion arrives before the topics are created again, also if none is left to be deleted."""
    attempts = _Attempts(monkeypatch)
    attempts.is_lost = True
    with pytest.raises(StoreUnreachable):
        attempts.run()
    lost = len(attempts.events)
    attempts.is_lost, attempts.topics = False, topics
    attempts.run()
    assert attempts.events[lost] == "wait for late requests"
    assert attempts.events[-1] == "note {'deleting': False}"
    attempts.topics = []
    attempts.run()
    assert attempts.events.count("wait for late requests") == 1


@pytest.mark.parametrize("by_a_client", [False, True])
def test_what_a_client_terminated_is_not_deleted(monkeypatch: pytest.MonkeyPatch, *, by_a_client: bool) -> None:
    """It is known, since clients could not send to it; only what an earlier migration terminated is created again."""
    properties = {} if by_a_client else {"migrated": "true"}
    info = InternalInfo.model_validate(
        {"terminatedPosition": {"ledgerId": 5, "entryId": 3}, "properties": properties, "cursors": {}}
    )

    def topics_of(*_: object) -> list[TopicName]:
        return [_TOPIC]

    def stored(*_: object) -> InternalInfo:
        return info

    def nothing(*_: object) -> str:
        return ""

    def each(names: Iterable[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return [work(name) for name in names]

    for module in (failback, topic_rules):
        monkeypatch.setattr(module, "stored", stored)
        monkeypatch.setattr(module, "users_of", nothing)
    monkeypatch.setattr(failback, "topics_of", topics_of)
    monkeypatch.setattr(failback, "recorded_copies", nothing)
    side = SimpleNamespace(admin=None, store=nullcontext)
    task = SimpleNamespace(blue=side, green=side, each=each)
    task.input = SimpleNamespace(cluster="blue", discard_retained=True)
    terminated = terminated_topics(cast("AnyBlueGreenTask", task), "t/space")
    assert terminated == {_TOPIC: TerminatedTopic("", "a client has terminated it" if by_a_client else "")}
