"""A request that a broker still has cannot make a withdrawn topic scalable."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.cluster import (
    TopicRefused,
    _complete_topic,  # pyright: ignore[reportPrivateUsage]
    retry_for_topic,
)
from activities.scalable_topic.conversion.segments import Withdrawal
from activities.scalable_topic.conversion.topic import TopicConversion, _Call  # pyright: ignore[reportPrivateUsage]
from clients.cas.store import Check
from clients.errors import StoreContention, Superseded, VersionConflict
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.creation_locks import allow_creation, bar_creation, bar_path, creation_locks
from clients.pulsar.names import TopicName
from models.scalable_topic.claims import Stage
from models.segments.layout import SegmentLayout
from tests.support.clients.memory_store import MemoryStore

_TOPIC = TopicName("acme", "shop", "orders")
_BAR = "/topic-creation-locks/acme/shop/orders:pulsar-migrate"
_REQUEST = "/topic-creation-locks/acme/shop/orders:5f0c"
_LOAD = "/topics/acme/shop/orders/segments/1/load"


class _Guard:
    """A guard that an attempt can lose."""

    def __init__(self) -> None:
        self.notes: list[dict[str, object]] = []
        self.lost = False

    def require(self) -> None:
        """Raise if another attempt is in charge."""
        if self.lost:
            raise Superseded("another attempt")

    def check(self) -> Check:
        """Return the check as a part of a transaction."""
        self.require()
        return Check("/admin", -1)

    def note(self, **fields: object) -> None:
        """Store the fields."""
        self.notes.append(fields)


class _Cluster:
    """A regular topic whose migration is withdrawn, and the brokers that answer."""

    def __init__(self) -> None:
        self.store, self.guard = MemoryStore(), _Guard()
        self.store.create("/admin", b"")
        self.answering = {"a", "b"}
        self.deleted = 0
        self.after_wait: Callable[[], object] = lambda: None
        self.paused: Callable[[], object] = lambda: None

    def withdrawal(self) -> Withdrawal:
        """Return the withdrawal."""

        def delete(**_: Any) -> None:
            self.deleted += 1

        return Withdrawal(
            self.store,
            self.guard,
            delete,
            await_late_requests=self.after_wait,
            answering=lambda: {*self.answering},
            pause=lambda _seconds: self.paused(),
        )

    def run(self, *asked: str) -> str | None:
        """Withdraw the migration; these brokers were asked to make the topic scalable."""
        return self.withdrawal().run(_TOPIC, 2, asked)


@pytest.fixture
def cluster() -> _Cluster:
    """Two brokers that answer."""
    return _Cluster()


def test_brokers_that_answer_have_no_request(cluster: _Cluster) -> None:
    """Once all brokers have answered, and no late request can arrive, the name is free again."""
    cluster.after_wait = lambda: pytest.fail("not barred") if bar_path(_TOPIC) not in cluster.store.nodes else None
    assert cluster.run("a", "b") == ""
    assert bar_path(_TOPIC) == _BAR
    assert _BAR not in cluster.store.nodes
    assert cluster.guard.notes[-1] == {"stage": Stage.CLAIMED, "asked": ()}


@pytest.mark.parametrize("silent", ["before", "after"])
def test_a_broker_that_does_not_answer_may_have_it(cluster: _Cluster, silent: str) -> None:
    """The name stays barred, the record names the silent broker, and the result says so."""

    def thaw() -> None:
        cluster.answering = {"a", "b"} if silent == "before" else {"a"}

    cluster.answering = {"a"} if silent == "before" else {"a", "b"}
    cluster.after_wait = thaw
    note = cluster.run("a", "b")
    assert note
    assert note.startswith(
        f"b may still have a request to make {_TOPIC} scalable, and does not answer. The node {_BAR}"
    )
    assert _BAR in cluster.store.nodes
    assert cluster.guard.notes[-1] == {"stage": Stage.CLAIMED, "asked": ("b",)}


def test_segments_go_at_once(cluster: _Cluster) -> None:
    """Segments and the empty record are deleted before the wait, and late ones after it."""
    cluster.store.create("/topics/acme/shop/orders", b"")
    cluster.store.create("/topics/acme/shop/orders/segments", b"")
    cluster.store.create("/topics/acme/shop/orders/segments/1", b"")
    cluster.store.create(_LOAD, b"{}")
    before: list[tuple[int, bool]] = []
    cluster.after_wait = lambda: before.append((cluster.deleted, "/topics/acme/shop/orders" in cluster.store.nodes))
    assert cluster.run("a") == ""
    assert before == [(2, False)]
    assert cluster.deleted == 4


def test_a_load_report_that_arrives_late(cluster: _Cluster) -> None:
    """A record without a value that a broker creates after the segments' deletion is removed as well."""
    writes = iter(["/topics/acme/shop/orders", "/topics/acme/shop/orders/segments"])

    def report() -> None:
        if late := next(writes, None):
            cluster.store.create(late, b"")

    cluster.paused = report
    assert cluster.run("a") == ""
    assert next(writes, None) is None
    assert "/topics/acme/shop/orders" not in cluster.store.nodes


def test_a_request_that_is_carried_out_is_waited_for(cluster: _Cluster) -> None:
    """A request that holds the lock may succeed; then the topic is scalable, and keeps its segments."""
    cluster.store.create(_REQUEST, b"")

    def commit() -> None:
        cluster.store.create("/topics/acme/shop/orders", b'{"newer": true}')
        cluster.store.delete(_REQUEST, 0)

    cluster.paused = commit
    assert cluster.run("a") is None
    assert cluster.deleted == 0
    assert _BAR not in cluster.store.nodes


def test_a_request_that_never_ends(cluster: _Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt fails, and the next one finds the name barred."""
    monkeypatch.setattr("activities.scalable_topic.conversion.segments._LONGEST_CREATION", 0.0)
    cluster.store.create(_REQUEST, b"")
    with pytest.raises(StoreContention, match=f"it holds {_REQUEST} in the metadata store. Restart"):
        cluster.run("a")
    assert _BAR in cluster.store.nodes


def test_a_request_that_never_ends_stops_no_other_topic(cluster: _Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic stays barred with its segments until the next start, and other topics continue."""
    monkeypatch.setattr("activities.scalable_topic.conversion.segments._LONGEST_REFUSAL", 0.0)
    bar_creation(cluster.store, _TOPIC, lambda: None)
    cluster.store.create(_REQUEST, b"")
    with pytest.raises(TopicRefused, match=_REQUEST):
        retry_for_topic(cast("Any", None), "complete it", lambda: cluster.withdrawal().end(_TOPIC, 2, (), ()))
    assert _BAR in cluster.store.nodes
    assert cluster.deleted == 0


def test_locks_of_other_topics() -> None:
    """Locks of a topic with the same prefix, and our own node, do not count as requests for the topic."""
    store = MemoryStore()
    for name in ("orders-2:5f0c", "orders:pulsar-migrate"):
        store.create(f"/topic-creation-locks/acme/shop/{name}", b"")
    assert creation_locks(store, _TOPIC) == []
    store.create(_REQUEST, b"")
    assert creation_locks(store, _TOPIC) == [_REQUEST]


def test_a_late_attempt_bars_nothing() -> None:
    """A frozen attempt removes its node, unless the attempt in charge relies on it."""
    store, late = MemoryStore(), _Guard()

    def freeze() -> None:
        late.lost = True

    store.before_next_writes(freeze)
    with pytest.raises(Superseded):
        bar_creation(store, _TOPIC, late.require)
    assert _BAR not in store.nodes
    late.lost, asked = False, 0

    def require() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            bar_creation(store, _TOPIC, lambda: None)
            raise Superseded("another attempt")

    with pytest.raises(Superseded):
        bar_creation(store, _TOPIC, require)
    assert _BAR in store.nodes


def test_a_late_attempt_frees_nothing() -> None:
    """The node is deleted in one transaction with the fence, and only as it was read."""
    store, late = MemoryStore(), _Guard()
    store.create("/admin", b"")
    bar_creation(store, _TOPIC, lambda: None)
    late.lost = True
    with pytest.raises(Superseded):
        allow_creation(store, _TOPIC, late.check)

    def fence() -> Check:
        return Check("/gone", -1)

    with pytest.raises((VersionConflict, StoreContention)):
        allow_creation(store, _TOPIC, fence)
    assert _BAR in store.nodes


def _scalable(cluster: _Cluster) -> TopicInventory:
    """Make the topic scalable although it is barred, as a request does that holds the lock; return the regular one."""
    bar_creation(cluster.store, _TOPIC, lambda: None)
    cluster.store.create(_TOPIC.scalable_path, SegmentLayout.migrated([str(_TOPIC)], 1).encode())
    return TopicInventory(_TOPIC)


def _flip(cluster: _Cluster, topic: TopicInventory, change: Callable[..., object]) -> TopicConversion:
    return TopicConversion(
        cast("Any", None),
        cluster.store,
        lambda: topic,
        cluster.guard,
        change,
        registered=lambda: ["a", "b"],
        answering=lambda: {*cluster.answering},
    )


def test_a_topic_that_is_scalable_all_the_same_is_not_barred(
    cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own attempt removes the bar, so that the topic can be created again after a deletion."""
    monkeypatch.setattr("activities.scalable_topic.conversion.topic.foreign_layout", Mock(return_value=None))
    topic = _scalable(cluster)
    layout, _ = _flip(cluster, topic, Mock())._made_scalable(topic, force=False)  # pyright: ignore[reportPrivateUsage]
    assert len(layout.active) == 1
    assert _BAR not in cluster.store.nodes


def test_a_topic_that_another_run_completes_is_not_barred(cluster: _Cluster) -> None:
    """The next run removes the bar, even if the regular topic is gone."""
    _scalable(cluster)
    guard = SimpleNamespace(check=cluster.guard.check, release=lambda: None)
    task = SimpleNamespace(find_topic=Mock(return_value=None))
    notes = list(_complete_topic(cast("Any", task), cluster.store, cast("Any", guard), _TOPIC, cast("Any", None)))
    assert "its regular topic is gone now" in notes[0]
    assert _BAR not in cluster.store.nodes


@pytest.mark.parametrize(
    ("unreachable", "sent", "asked"),
    [("create_segment", True, ()), ("migrate", False, ()), ("migrate", True, ("a", "b"))],
)
def test_only_brokers_that_may_have_the_request_are_waited_for(
    cluster: _Cluster, unreachable: str, sent: bool, asked: tuple[str, ...]
) -> None:
    """The record names brokers to which the request was sent, and that did not answer."""
    error = AdminUnreachable("no answer", method="POST", url="http://a", sent=sent)
    broker = Mock(**{f"{unreachable}.side_effect": error})

    def change(*, fence: Callable[[], object], change: Callable[[Any], object], **_: object) -> None:
        fence()
        change(SimpleNamespace(scalable_topics=broker))

    topic = TopicInventory(_TOPIC)
    with pytest.raises(AdminUnreachable):
        _flip(cluster, topic, change)._made_scalable(topic, force=False)  # pyright: ignore[reportPrivateUsage]
    assert cluster.guard.notes[-1]["asked"] == asked


def test_a_report_of_load_right_before_the_call(cluster: _Cluster) -> None:
    """An empty record that appears during the fence is removed before the migration request."""
    reports = [b""]

    def require() -> None:
        while reports:
            cluster.store.create(_TOPIC.scalable_path, reports.pop())

    def change(*, fence: Callable[[], object], change: Callable[[Any], object], **_: object) -> None:
        fence()
        assert (reports, _TOPIC.scalable_path in cluster.store.nodes) == ([], False)
        change(Mock())

    cluster.guard.require = require
    call = _Call(set(), unclear=False)
    flip = _flip(cluster, TopicInventory(_TOPIC), change)
    flip._migrate(_TOPIC, call, force=False)  # pyright: ignore[reportPrivateUsage]
    assert call.sent
