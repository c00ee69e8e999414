"""Subscriptions of green start to expire again right before writes are held back; green is a double here."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import expiration
from activities.blue_green.batch import quiesce
from activities.blue_green.checks import readiness
from activities.blue_green.context import BatchTask, BlueGreenTask, NamespaceGuard
from activities.blue_green.expiration import restart_expiration
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from clients.errors import StoreContention, StoreUnsupported, Superseded
from clients.pulsar.admin.topics import Client, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.subscription import TYPES
from models.blue_green.claims import Stage
from tests.unit.blue_green.test_differences import namespace
from tests.unit.blue_green.test_topic_use import IN_USE, READY, TOPIC, task, topic

_OPENED = ("open", "close")


def _sub(**fields: Any) -> SubscriptionStats:
    return SubscriptionStats.model_validate(fields)


class _Green:
    """Green's broker of the topic, with what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **subscriptions: SubscriptionStats) -> None:
        self.events: list[tuple[str, ...]] = []
        self.busy: set[str] = set()
        self.types: tuple[str, ...] = TYPES
        self._subscriptions = subscriptions

        def open_subscription(_connection: object, _topic: TopicName, name: str, kind: str, **_: object) -> Any:
            if name in self.busy:
                raise StoreContention(f"{name} has a consumer")
            if kind not in self.types:
                raise StoreUnsupported(f"doesn't support {kind} sub type!")
            self.events.append(("open", name, kind))
            return SimpleNamespace(close=lambda: self.events.append(("close", name)))

        def connect(*_: object) -> Any:
            self.events.append(("connect",))
            return nullcontext()

        monkeypatch.setattr(expiration, "RawSubscription", open_subscription)
        monkeypatch.setattr(expiration, "connect", connect)

    def task(self) -> BlueGreenTask:
        """Return a step."""

        def stats(_: TopicName) -> TopicStats:
            return TopicStats(subscriptions=self._subscriptions)

        def each(items: Iterable[Any], work: Any) -> list[Any]:
            return [work(item) for item in items]

        def wire_of(_: str) -> None:
            return None

        double = SimpleNamespace(
            input=task().input,
            attempt=SimpleNamespace(workflow_id="w"),
            runtime=SimpleNamespace(wire_of=wire_of),
            green=SimpleNamespace(admin=SimpleNamespace(topics=SimpleNamespace(stats=stats))),
            each=each,
        )
        return cast("BlueGreenTask", double)

    def guard(self) -> NamespaceGuard:
        """Return a guard that notes when it is asked."""
        return cast("NamespaceGuard", SimpleNamespace(require=lambda: self.events.append(("fence",))))


def test_a_consumer_connects_to_each_unused_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence is checked on an open connection; what green's clients use, or brokers never delete, is left alone."""
    green = _Green(
        monkeypatch,
        shared=_sub(),
        fresh=_sub(),
        used=SubscriptionStats(consumers=(Client(),)),
        replicated=_sub(isReplicated=True),
        reader=_sub(isDurable=False),
    )
    blue = topic(TopicStats(subscriptions={"shared": _sub(type="Key_Shared"), "fresh": _sub()}))
    restart_expiration(green.task(), green.guard(), [blue])
    assert green.events == [
        ("connect",),
        ("fence",),
        ("open", "shared", "Key_Shared"),
        ("close", "shared"),
        ("fence",),
        ("open", "fresh", "Exclusive"),
        ("close", "fresh"),
    ]


def test_nothing_is_asked_of_a_topic_without_unused_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers get no connection for it."""
    green = _Green(monkeypatch, used=SubscriptionStats(consumers=(Client(),)))
    restart_expiration(green.task(), green.guard(), [topic(IN_USE)])
    assert green.events == []


@pytest.mark.parametrize("loaded", [True, False])
def test_a_subscription_that_blue_lacks_is_left_alone(monkeypatch: pytest.MonkeyPatch, *, loaded: bool) -> None:
    """Clients that have read everything on blue use it on green. Only a loaded topic shows what they have not read."""
    green = _Green(monkeypatch, drained=_sub(), s=_sub())
    blue = topic(IN_USE)
    if not loaded:
        blue = replace(blue, parts=tuple(partition._replace(stats=None) for partition in blue.parts))
    restart_expiration(green.task(), green.guard(), [blue])
    opened = [event[1] for event in green.events if event[0] == "open"]
    assert opened == (["s"] if loaded else ["drained", "s"])


def test_a_partition_of_which_blue_has_read_everything_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients use its subscription on green, also while other partitions are not drained yet."""
    green = _Green(monkeypatch, s=_sub())
    drained, undrained = (topic(IN_USE).name.of_partition(number) for number in range(2))
    parts = (TopicPartition(drained, TopicStats()), TopicPartition(undrained, IN_USE))
    restart_expiration(green.task(), green.guard(), [replace(topic(IN_USE), partitions=2, parts=parts)])
    assert green.events.count(("connect",)) == 1


def test_a_consumer_of_a_client_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has connected since: its subscription is active, and the others follow."""
    green = _Green(monkeypatch, busy=_sub(), s=_sub())
    green.busy.add("busy")
    restart_expiration(green.task(), green.guard(), [topic(TopicStats(subscriptions={"busy": _sub(), "s": _sub()}))])
    assert [event for event in green.events if event[0] in _OPENED] == [("open", "s", "Exclusive"), ("close", "s")]


def test_a_consumer_has_a_type_that_brokers_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers do not know the type of a subscription without consumers since they loaded its topic."""
    green = _Green(monkeypatch, s=_sub())
    green.types = ("Failover",)
    restart_expiration(green.task(), green.guard(), [topic(TopicStats(subscriptions={"s": _sub(type="None")}))])
    assert [event for event in green.events if event[0] in _OPENED] == [("open", "s", "Failover"), ("close", "s")]
    green.types = ()
    with pytest.raises(StoreUnsupported):
        restart_expiration(green.task(), green.guard(), [topic(IN_USE)])


def test_a_late_attempt_connects_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may be on green by then, and an exclusive consumer would keep theirs out."""
    green = _Green(monkeypatch, s=_sub())

    def require() -> None:
        raise Superseded("another attempt has started")

    guard = cast("NamespaceGuard", SimpleNamespace(require=require))
    with pytest.raises(Superseded):
        restart_expiration(green.task(), guard, [topic(IN_USE)])
    assert green.events == [("connect",)]


@pytest.mark.parametrize(
    ("policies", "own", "stage", "expires"),
    [
        ({}, {}, Stage.CLAIMED, False),
        ({"subscription_expiration_time_minutes": 600}, {}, Stage.CLAIMED, True),
        ({}, {"subscriptionExpirationTime": 600}, Stage.CLAIMED, True),
        # An earlier run flipped it, and consumers may still read on blue.
        ({}, {"subscriptionExpirationTime": 600}, Stage.FLIPPED, True),
        ({}, {"subscriptionExpirationTime": 600}, Stage.MOVED, False),
        ({}, {}, Stage.FLIPPED, False),
    ],
)
def test_expiration_starts_again_before_writes_are_held_back(
    monkeypatch: pytest.MonkeyPatch, policies: dict[str, Any], own: dict[str, Any], stage: Stage, *, expires: bool
) -> None:
    """The step before writes are held back does it, for topics whose subscriptions expire, and for no others."""
    inventory = namespace(topic(READY, **own), **policies)
    restarted: list[TopicName] = []

    def read(*_: object) -> NamespaceInventory:
        return inventory

    def restart(_task: object, _guard: object, topics: list[TopicInventory]) -> None:
        restarted.extend(expiring.name for expiring in topics)

    def ignore(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(readiness, "read_namespace", read)
    monkeypatch.setattr(quiesce, "restart_expiration", restart)
    for name in ("provision_late", "provision_batch", "await_movable"):
        monkeypatch.setattr(quiesce, name, ignore)
    claim = SimpleNamespace(stage=stage)
    guards = [SimpleNamespace(namespace=inventory.name, require=lambda: claim)]
    quiesce.catch_up(cast("BatchTask", SimpleNamespace(**vars(task()), guards=guards, store=None)))
    assert restarted == ([TOPIC] if expires else [])
