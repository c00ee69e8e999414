"""Topics that were unloaded after their flip, which brokers do not load again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import termination, write_limit
from activities.blue_green.batch import drain, undo
from activities.blue_green.batch import verify as verifying
from activities.blue_green.batch.drain import DrainWatch
from activities.blue_green.batch.verify import verify
from activities.blue_green.context import BatchTask, BlueGreenTask, NamespaceGuard
from activities.blue_green.termination import NotTerminated
from activities.lifecycle.context import ActivityContext
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.admin.topics import InternalInfo, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import NamespaceClaim, Stage
from models.blue_green.input import BlueGreenInput
from models.lifecycle.claim import Changed
from models.releases import parse_release
from tests.support.blue_green.sides import side

_SPACE = "t/n"
_TOPIC = TopicName.parse(f"{_SPACE}/orders")
_ENDED: dict[str, object] = {
    "terminatedPosition": {"ledgerId": 5, "entryId": 3},
    "properties": {"migrated": "true"},
}
_BY_A_CLIENT: dict[str, object] = {**_ENDED, "properties": {}}
_UNREPLICATED = {"pulsar.repl.west": {"markDelete": {"ledgerId": 5, "entryId": 1}}}
_REPLICATED = {"pulsar.repl.west": {"markDelete": {"ledgerId": 5, "entryId": 3}}, "pulsar.dedup": {}}


def _task(cursors: dict[str, object], end: dict[str, object] = _ENDED) -> BlueGreenTask:
    """Return both clusters; blue has a topic with these cursors, and refuses to load it."""

    def refuse(_: TopicName) -> TopicStats:
        raise AdminServerError("the topic is already migrated", method="GET", url="http://blue", status=500)

    def names(_: str) -> list[str]:
        return [str(_TOPIC)]

    def info(_: TopicName) -> InternalInfo:
        return InternalInfo.model_validate({"ledgers": [{"ledgerId": 5}], **end, "cursors": cursors})

    def subscriptions(_: TopicName) -> list[str]:
        return []

    def each(items: Iterable[Any], work: Any) -> list[Any]:
        return [work(item) for item in items]

    needed: dict[str, object] = {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    double = SimpleNamespace(
        input=BlueGreenInput.model_validate(needed),
        attempt=SimpleNamespace(run_id="run"),
        blue=SimpleNamespace(
            admin=SimpleNamespace(topics=SimpleNamespace(stats=refuse, names=names, internal_info=info)),
            release=parse_release("5.0.1"),
        ),
        green=SimpleNamespace(admin=SimpleNamespace(subscriptions=SimpleNamespace(names=subscriptions))),
        each=each,
        context=ActivityContext(),
    )
    return cast("BlueGreenTask", double)


class _Guard:
    """The record of the namespace, which was drained."""

    namespace = _SPACE
    store = None

    def __init__(self) -> None:
        self.record = NamespaceClaim.model_construct(stage=Stage.MOVED)

    def require(self) -> NamespaceClaim:
        return self.record

    def note(self, *, stage: Stage) -> None:
        self.record = self.record.model_copy(update={"stage": stage})


_ENDS = pytest.mark.parametrize("end", [_ENDED, _BY_A_CLIENT])
_NEEDS = pytest.mark.parametrize(
    ("cursors", "needs"),
    [
        (_UNREPLICATED, "replication to west"),
        ({"orders": {}}, "subscriptions orders"),
        (_REPLICATED, ""),
        ({}, ""),
    ],
)


@_ENDS
@_NEEDS
def test_topics_that_are_loaded_again(
    monkeypatch: pytest.MonkeyPatch, cursors: dict[str, object], needs: str, end: dict[str, object]
) -> None:
    """A topic is loaded again while a subscription or another cluster needs it, and only then."""
    repaired: list[TopicName] = []

    def repair(_watch: DrainWatch, _guard: NamespaceGuard, topics: Sequence[TopicName]) -> None:
        repaired.extend(topics)

    monkeypatch.setattr(DrainWatch, "_repair", repair)
    watch = DrainWatch(_task(cursors, end), [], cast("CasStore", None))
    assert watch.check(cast("NamespaceGuard", _Guard())) == []
    assert repaired == ([_TOPIC] if needs else [])


@_ENDS
@_NEEDS
def test_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, cursors: dict[str, object], needs: str, end: dict[str, object]
) -> None:
    """VERIFY names who needs a topic that cannot be loaded, and its namespace does not count as moved."""

    def nothing(*_: object) -> dict[str, object]:
        return {}

    for name in ("saved_clients", "scalable_topics", "terminate_again"):
        monkeypatch.setattr(verifying, name, nothing)
    guard = _Guard()
    task: Any = _task(cursors, end)
    task.guards, task.store = [guard], None
    check = verify(task)
    by_a_client = (
        "a client terminated it on blue right before the flag, and it takes messages on green: terminate it there, and "
        "delete it on blue"
    )
    wrong = [by_a_client] if end is _BY_A_CLIENT else []
    wrong += [f"it cannot be loaded on blue, and its messages there are needed by {needs}"] if needs else []
    assert [fault.reason for fault in check.faults] == (["; ".join(wrong)] if wrong else [])
    assert guard.record.stage is (Stage.FLIPPED if wrong else Stage.MOVED)


class _HeldBack(_Guard):
    """The record of a namespace that was flipped, and whose writes are held back."""

    def __init__(self) -> None:
        limit = Changed(before=None, ours={"publishThrottlingRateInByte": 1})
        self.record = NamespaceClaim.model_construct(stage=Stage.FLIPPED, publish_rate=limit)

    def take(self) -> NamespaceClaim:
        return self.record


def _unended(monkeypatch: pytest.MonkeyPatch, held: _HeldBack, *, minutes: float) -> BatchTask:
    """Return a step that has taken some minutes, in which brokers do not end the topic."""

    def terminate_topics(*_: object) -> None:
        raise NotTerminated("1 topics are not terminated")

    def flag(*_: object) -> bool:
        return True

    def clients(*_: object) -> dict[str, object]:
        return {}

    def redirected_namespaces(*_: object) -> set[str]:
        return {_SPACE}

    def lift_publish_limit(*_: object) -> str:
        raise AssertionError("writes are released")

    monkeypatch.setattr(termination, "terminate_topics", terminate_topics)
    for module in (drain, write_limit, undo):
        monkeypatch.setattr(module, "rewrite_flag" if module is undo else "read_flag", flag)
        monkeypatch.setattr(module, "lift_publish_limit", lift_publish_limit)
    monkeypatch.setattr(drain, "saved_clients", clients)
    monkeypatch.setattr(drain, "_exists", flag)
    monkeypatch.setattr(undo, "redirected_namespaces", redirected_namespaces)
    monkeypatch.setattr(undo, "holds_claim", flag)
    task: Any = _task({}, end={})
    task.guards, task.store = [held], None
    task.context = ActivityContext(waited=60.0 * minutes)
    return task


def test_a_topic_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At `drain_timeout` DRAIN ends: the topic is named with its cure, its writes wait, and nothing counts as moved."""
    held = _HeldBack()
    with pytest.raises(NotTerminated):
        drain.drain(_unended(monkeypatch, held, minutes=30))
    drained = drain.drain(_unended(monkeypatch, held, minutes=61))
    (topic,) = drained.remaining
    assert topic.path == str(_TOPIC)
    assert topic.reason.startswith("it is not terminated, and writes to it stay held back")
    assert "Restart its broker, and start the migration again: 1 topics are not terminated" in topic.reason
    assert held.record.stage is Stage.FLIPPED


def test_a_rollback_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """At `drain_timeout` ROLLBACK leaves topics that cannot be ended to DRAIN, with the reason."""
    held = _HeldBack()
    with pytest.raises(NotTerminated):
        undo.undo(_unended(monkeypatch, held, minutes=30))
    undone = undo.undo(_unended(monkeypatch, held, minutes=61))
    assert not undone.undone
    assert undone.notes == ("1 topics are not terminated",)


def test_writes_wait_while_a_flag_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are loaded again, with the flag off, only after writes were held back, whatever had set the flag."""
    steps: list[str] = []

    def note(name: str) -> Callable[..., None]:
        def step(*_: object, migrated: bool | None = None) -> None:
            steps.append(name if migrated is None else f"{name} {migrated}")

        return step

    names = (
        "hold_writes",
        "override_policies",
        "wait_until_known",
        "set_flag",
        "wait_until_seen",
        "load_topics",
        "restore_policy",
    )
    for name in names:
        monkeypatch.setattr(termination, name, note(name))
    task = _task({})
    task.blue.brokers = list[Any]
    termination.reload_topics(task, cast("NamespaceGuard", _Guard()), cast("CasStore", None), [_TOPIC])
    assert steps[0] == "hold_writes"
    assert [step for step in steps if step.startswith("set_flag")] == ["set_flag False", "set_flag True"]
