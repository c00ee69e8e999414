"""Copies that an attempt left on green without a record, at the rollback."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.copy import backlogs
from activities.blue_green.topics import TopicState
from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.positions import LedgerLength
from spark.blue_green.spec import TopicCopy
from spark.blue_green.tasks import Recorded

_TOPIC = TopicName.parse("persistent://t/space/topic")
_THEIRS: dict[str, object] = {}
_OURS: dict[str, object] = {"metadata": {"pulsar-migrate": "blue-green/blue"}}
_RECORD = CopyRecord(start=(1, -1), runs=((1, 0, 5, 0, 3),), copied_subscriptions=("idle",), copied_in="run-1")


def _adopted(
    monkeypatch: pytest.MonkeyPatch, *, producers: Sequence[object] = (), entries: int = 3, skipped: bool = False
) -> tuple[list[TopicCopy], dict[str, object]]:
    """Run it for a topic of green; return what was compared, and what its record got."""
    compared: list[TopicCopy] = []
    noted: dict[str, object] = {}

    def note(_topic: TopicName, _recorded: Recorded, **fields: object) -> None:
        noted.update(fields)

    def check_topic(_admin: object, topic: TopicName) -> TopicState:
        return TopicState(topic, TopicStats.model_validate({"publishers": producers}))

    def read_managed_ledger(_admin: object, _topic: TopicName) -> tuple[object, tuple[LedgerLength, ...]]:
        return SimpleNamespace(ledgers=()), (LedgerLength(5, entries),)

    def copy_unit(_ends: object, copy: TopicCopy, _check: object) -> None:
        compared.append(copy)
        raise StoreConflict("it has messages that are not copies")

    def each(items: Sequence[TopicName], work: Any) -> list[object]:
        return [work(item) for item in items]

    def record(_topic: TopicName) -> Recorded:
        return Recorded(_RECORD, 1)

    def copy_of(*_: object, **_more: object) -> SimpleNamespace:
        return SimpleNamespace(ends=None, check=None, fence=lambda: None, note=note, record=record)

    def recorded_copies(*_: object) -> list[TopicName]:
        return [_TOPIC]

    monkeypatch.setattr(backlogs, "_copy_of", copy_of)
    for name, double in (
        ("recorded_copies", recorded_copies),
        ("check_topic", check_topic),
        ("read_managed_ledger", read_managed_ledger),
        ("copy_unit", copy_unit),
    ):
        monkeypatch.setattr(backlogs, name, double)
    side = SimpleNamespace(admin=None)
    task = cast("AnyBlueGreenTask", SimpleNamespace(blue=side, green=side, each=each))
    claim = SimpleNamespace(skipped=skipped)
    guard = cast("NamespaceGuard", SimpleNamespace(namespace="t/space", require=lambda: claim))
    backlogs.adopt_copies(task, guard, cast("CasReader", None))
    return compared, noted


@pytest.mark.parametrize(("producers", "entries"), [((), 4), ((_OURS,), 3)])
def test_copies_without_a_record_are_compared(
    monkeypatch: pytest.MonkeyPatch, producers: Sequence[object], entries: int
) -> None:
    """Nothing more is copied; entries that are not copies do not end the rollback."""
    compared, _ = _adopted(monkeypatch, producers=producers, entries=entries)
    assert [(copy.topic, copy.most) for copy in compared] == [(_TOPIC, 0)]


@pytest.mark.parametrize(("producers", "entries"), [((), 3), ((_THEIRS,), 4), ((_OURS, _THEIRS), 4)])
def test_producers_of_clients_are_not_closed(
    monkeypatch: pytest.MonkeyPatch, producers: Sequence[object], entries: int
) -> None:
    """The copy closes all other producers of its topic, so it is never opened next to those of clients."""
    compared, _ = _adopted(monkeypatch, producers=producers, entries=entries)
    assert compared == []


def test_a_record_names_no_subscription_after_the_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No subscription continues with a copy of a batch that was rolled back before its flip."""
    _, noted = _adopted(monkeypatch)
    assert noted == {"copied_subscriptions": (), "copied_in": ""}


def test_a_record_stays_once_backlogs_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green alone has these messages then, so the record still says which subscriptions continue there."""
    assert _adopted(monkeypatch, skipped=True) == ([], {})
