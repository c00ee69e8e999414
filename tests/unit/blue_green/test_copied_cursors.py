"""Placing of cursors on green by attempts that may be late."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.copy import copied_cursors
from activities.blue_green.copy.subscription_copy import SubscriptionCopy
from clients.errors import Superseded
from clients.pulsar.admin.topics import CursorStats
from clients.pulsar.names import TopicName
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.tasks import Recorded

_TOPIC = TopicName.parse("persistent://t/space/topic")
_RECORD = Recorded(CopyRecord(start=(1, -1), runs=((1, 0, 5, 0, 3),)), 1)


class _Subscription:
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> None:
            self._events.append(name)

        return call


def test_the_fence_is_checked_while_the_subscription_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late attempt acknowledges nothing: no other one can have placed the cursor after the check."""
    events: list[str] = []

    def open_subscription(*_: object, **_notes: object) -> _Subscription:
        events.append("open")
        return _Subscription(events)

    def fence() -> None:
        events.append("fence")
        if "open" in events:
            raise Superseded("another attempt has started")

    def read_managed_ledger(*_: object) -> tuple[object, tuple[()]]:
        cursor = CursorStats.model_validate({"markDeletePosition": "5:-1"})
        return SimpleNamespace(cursors={"s": cursor}), ()

    def connect(*_: object) -> Any:
        return nullcontext()

    monkeypatch.setattr(copied_cursors, "RawSubscription", open_subscription)
    monkeypatch.setattr(copied_cursors, "read_managed_ledger", read_managed_ledger)
    monkeypatch.setattr(copied_cursors, "connect", connect)

    def names(_topic: TopicName) -> list[str]:
        return ["s"]

    def stats(_topic: TopicName) -> object:
        return SimpleNamespace(durable_subscriptions={"s": None})

    def record(_topic: TopicName) -> Recorded:
        return _RECORD

    admin = SimpleNamespace(subscriptions=SimpleNamespace(names=names), topics=SimpleNamespace(stats=stats))
    ends = SimpleNamespace(green_url="", green_access=None, notes={})
    copy = SimpleNamespace(blue=admin, green=admin, ends=ends, record=record, fence=fence, check=lambda: None)
    with pytest.raises(Superseded):
        copied_cursors.place_cursors(cast("SubscriptionCopy", copy), {_TOPIC: ()})
    assert events == ["fence", "open", "fence"]
