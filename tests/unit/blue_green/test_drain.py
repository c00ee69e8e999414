"""Reports of the watch of a batch about consumers that stay on blue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.batch import drain
from activities.blue_green.batch.drain import (
    CLIENTS_WITHIN,
    DrainWatch,
    UndrainedTopic,
    are_too_many,
    why_attached,
    why_unread,
)
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.topics import TopicState
from activities.lifecycle.context import ActivityContext
from clients.cas.store import CasStore
from clients.pulsar.admin.topics import Client, CursorStats, InternalStats, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import Stage, TopicClients
from models.blue_green.input import BlueGreenInput
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import Recorded
from tests.support.blue_green.sides import side


class _Guard:
    """The record of a namespace."""

    namespace = "t/n"

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def note(self, *, stage: Stage) -> None:
        self.stages.append(stage)


_TOPIC = "persistent://t/n/orders"


def _waiting(backlog: int = 0, **more: Any) -> TopicStats:
    return TopicStats(subscriptions={"s": SubscriptionStats(msg_backlog=backlog, **more)})


_WAITING = _waiting()
_CAME = TopicStats(subscriptions={"s": SubscriptionStats(msg_backlog=4, last_consumed_flow_timestamp=1)})
_ARRIVED = TopicStats(subscriptions={"s": SubscriptionStats(consumers=(Client(),))})
_BOTH = TopicStats(subscriptions={"s": SubscriptionStats(consumers=(Client(), Client()))})


def test_a_broker_that_hangs_is_reported() -> None:
    """Consumers that read all, and are not sent away, are waited for; after a minute the cure is named."""
    assert why_attached("s", 1) == "subscription s has 0 messages left, and its consumers are not redirected"
    assert why_attached("s", CLIENTS_WITHIN).endswith("for 60 s. Its broker may hang: restart that broker")


def test_consumers_that_left_their_backlog_are_reported() -> None:
    """The cure is named if a subscription had consumers before the flip."""
    idle = "subscription s has 7,000 messages left, and no consumer"
    assert why_unread("s", 7000, 0, "prod") == idle
    assert why_unread("s", 7000, 2, "prod") == f"{idle}; it had 2: restart them, with the address of prod"


@pytest.mark.parametrize(
    ("missing", "clients", "limit", "too_many"),
    [
        (0, 0, 0.0, False),
        (0, 5, 0.0, False),
        (1, 5, 0.0, True),
        (1, 5, 0.2, False),
        (2, 5, 0.2, True),
        (5, 5, 1.0, True),
    ],
)
def test_how_many_clients_may_be_missing(missing: int, clients: int, limit: float, too_many: bool) -> None:
    """More than the share that the input allows are too many, and so are all; none are never too many."""
    assert are_too_many(missing, clients, limit) is too_many


def _draining(monkeypatch: pytest.MonkeyPatch, green: list[TopicStats], consumers: dict[str, int]) -> BlueGreenTask:
    """Return a step after whose flip green's topic is like this in look after look; consumers are those of blue."""
    looks: Iterator[TopicStats] = iter(green)

    def stats(_: TopicName) -> TopicStats:
        return next(looks, green[-1])

    def names(_: str) -> list[str]:
        return []

    def clients(*_: object) -> dict[str, TopicClients]:
        return {_TOPIC: TopicClients(consumers=consumers)}

    def opened(*_: object) -> dict[TopicName, str]:
        return {}

    def each(items: Iterable[Any], work: Any) -> list[Any]:
        return [work(item) for item in items]

    monkeypatch.setattr(drain, "saved_clients", clients)
    monkeypatch.setattr(drain, "terminate_again", opened)
    now, context = 0.0, ActivityContext()

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    # Time passes between two rounds only: a busy machine is not taken for clients that stay away.
    monkeypatch.setattr(drain, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(context, "pause", pause)
    needed: dict[str, object] = {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    double = SimpleNamespace(
        input=BlueGreenInput.model_validate(needed),
        blue=SimpleNamespace(admin=SimpleNamespace(topics=SimpleNamespace(names=names))),
        green=SimpleNamespace(admin=SimpleNamespace(topics=SimpleNamespace(stats=stats))),
        each=each,
        context=context,
    )
    return cast("BlueGreenTask", double)


@pytest.mark.parametrize(
    ("green", "consumers", "lost"),
    [
        ([_WAITING, _ARRIVED], {"s": 1}, ""),
        ([_WAITING, TopicStats(), _ARRIVED], {"s": 1}, "deleted the subscription s"),
        ([_waiting(5), _waiting(3), _ARRIVED], {"s": 1}, "dropped messages of the subscription s"),
        ([_waiting(5), _waiting(7), _ARRIVED], {"s": 1}, ""),
        # Consumers of another cluster have read it.
        ([_waiting(5), _waiting(3, isReplicated=True), _ARRIVED], {"s": 1}, ""),
        # Its consumers have come, and read or even ended it.
        ([_waiting(5), _CAME, _waiting(3), _ARRIVED], {"s": 1}, ""),
        ([_WAITING, _ARRIVED, TopicStats(), _BOTH], {"s": 2}, ""),
        # No client used it on blue.
        ([TopicStats()], {"s": 0}, ""),
    ],
)
def test_messages_that_green_gives_up(
    monkeypatch: pytest.MonkeyPatch, green: list[TopicStats], consumers: dict[str, int], lost: str
) -> None:
    """Messages that green gives up before their consumers come are lost to these, so their namespace has not moved."""
    task = _draining(monkeypatch, green, consumers)
    guard = _Guard()
    drained = DrainWatch(task, [cast("NamespaceGuard", guard)], cast("CasStore", None)).run()
    assert [item.reason for item in drained.abandoned] == ([f"g {lost} before its consumers connected"] if lost else [])
    assert guard.stages == ([] if lost else [Stage.MOVED])


def test_consumers_have_their_time_after_blue_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that reads on blue for long is not missing on green in the moment after its last message."""
    task, guard = _draining(monkeypatch, 100 * [_WAITING] + [_ARRIVED], {"s": 1}), _Guard()
    rounds = iter(range(80))

    def check(_watch: DrainWatch, _guard: NamespaceGuard) -> list[UndrainedTopic]:
        reading = next(rounds, None) is not None
        return [UndrainedTopic(TopicState(TopicName.parse(_TOPIC), None), "it is read")] if reading else []

    monkeypatch.setattr(DrainWatch, "check", check)
    drained = DrainWatch(task, [cast("NamespaceGuard", guard)], cast("CasStore", None)).run()
    assert drained.seconds > CLIENTS_WITHIN
    assert (drained.missing, drained.abandoned, guard.stages) == ((), (), [Stage.MOVED])


def test_what_needs_help_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic without a consumer is named before those that are read, and a loss on green as soon as it is seen."""
    task, guard = _draining(monkeypatch, [TopicStats(), _ARRIVED], {"s": 1}), _Guard()
    reading = _waiting(3, consumers=(Client(),))
    rounds = iter([(_waiting(2), "it has no consumer"), (reading, "it is read too")])
    waits: list[str] = []

    def check(_watch: DrainWatch, _guard: NamespaceGuard) -> list[UndrainedTopic]:
        waits.append(task.context.report().summary)
        there = [(reading, "it is read"), last] if (last := next(rounds, None)) else []
        return [UndrainedTopic(TopicState(TopicName.parse(_TOPIC), stats), why) for stats, why in there]

    monkeypatch.setattr(DrainWatch, "check", check)
    DrainWatch(task, [cast("NamespaceGuard", guard)], cast("CasStore", None)).run()
    lost = f"failed: {_TOPIC}: g deleted the subscription s before its consumers connected"
    assert [wait.partition("waits for ")[2] for wait in waits] == [
        "",
        f"{_TOPIC}: it has no consumer and 1 more topics; {lost}",
        f"{_TOPIC}: it is read and 1 more topics; {lost}",
    ]


_COPY = CopyRecord(start=(1, -1), runs=((1, 0, 5, 0, 3),), copied_subscriptions=("s",), copied_in="run")
_AT_WORK = SubscriptionStats(consumers=(Client(),))
_TOOK_MESSAGES = SubscriptionStats(last_consumed_flow_timestamp=1)


class _CopyGuard:
    """The record of a namespace whose backlogs were copied."""

    namespace = "t/n"

    def __init__(self) -> None:
        self.skipped = False

    def require(self) -> SimpleNamespace:
        return SimpleNamespace(copied_in="run", skipped=self.skipped)

    def note(self, *, skipped: bool) -> None:
        self.skipped = skipped


def _cursor(mark_delete: str, single: str = "[]") -> CursorStats:
    return CursorStats.model_validate({"markDeletePosition": mark_delete, "individuallyDeletedMessages": single})


@pytest.mark.parametrize(
    ("green", "sub", "dropped"),
    [
        (_cursor("5:-1", "[(5:0..5:1]]"), SubscriptionStats(), 0),
        (_cursor("5:-1"), SubscriptionStats(), 0),
        (_cursor("5:1"), SubscriptionStats(), 1),
        (_cursor("5:2"), SubscriptionStats(), 2),
        (None, None, 2),
        # Its consumers came to green, and read there.
        (_cursor("5:2"), _AT_WORK, 0),
        (_cursor("5:2"), _TOOK_MESSAGES, 0),
    ],
)
def test_nothing_is_skipped_that_green_gave_up(
    monkeypatch: pytest.MonkeyPatch, green: CursorStats | None, sub: SubscriptionStats | None, dropped: int
) -> None:
    """Blue alone has copied entries that green dropped: they stay there for a consumer, and their topic is named."""
    topic, skipped = TopicName.parse(_TOPIC), list[str]()
    blue = InternalStats(cursors={"s": _cursor("1:-1", "[(1:0..1:1]]")})
    there = InternalStats(cursors={} if green is None else {"s": green})
    task = _draining(monkeypatch, [TopicStats(subscriptions={} if sub is None else {"s": sub})], {})

    def skip_all(_watch: DrainWatch, _guard: NamespaceGuard, _topic: TopicName, name: str) -> None:
        skipped.append(name)

    monkeypatch.setattr(task.green.admin.topics, "internal_stats", _always(there), raising=False)
    answers: dict[str, object] = {
        "saved_clients": {},
        "topics_of": [topic],
        "check_topic": TopicState(topic, _waiting(3)),
        "is_terminated": True,
        "not_replicated": "",
        "read_record": Recorded(_COPY, 1),
        "read_managed_ledger": (blue, (LedgerLength(1, 3),)),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(drain, name, _always(answer))
    monkeypatch.setattr(DrainWatch, "_skip_all", skip_all)
    guard = _CopyGuard()
    guards = [cast("NamespaceGuard", guard)]
    reasons = [undrained.why for undrained in DrainWatch(task, guards, cast("CasStore", None)).check(guards[0])]
    why = f"subscription s has {dropped} entries left that g dropped from its copy"
    assert reasons == ([f"{why}; a consumer with the address of b gets them, or skip them there"] if dropped else [])
    assert (skipped, guard.skipped) == (([], False) if dropped else (["s"], True))


def _always(answer: object) -> Callable[..., object]:
    def give(*_: object) -> object:
        return answer

    return give
