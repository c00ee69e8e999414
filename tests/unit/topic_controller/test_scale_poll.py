"""Rates and consumers of a topic's segments, as auto scale sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from activities.topic_controller.context import ObserverTask
from activities.topic_controller.scale import await_scale
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.names import TopicName
from models.topic_controller.auto_scale import AutoScale
from models.topic_controller.record import ControlledLayout
from models.topic_controller.scale_decision import ScaledSegment, ScaleWatch


def task_with(readers: Iterable[str]) -> ObserverTask:
    """Return an attempt at a topic that has an ordered subscription `bill`, and these readers of its layout."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(".layout/stats"):
            consumers = [{"consumerName": name} for name in readers]
            return httpx.Response(200, json={"subscriptions": {"reader": {"consumers": consumers}}})
        return httpx.Response(200, json={"subscriptions": {"bill": {"type": "Exclusive", "durable": True}}})

    def each(items: Iterable[Any], do: Callable[[Any], Any]) -> list[Any]:
        return [do(item) for item in items]

    admin = PulsarAdminReader(HttpSession(AdminAccess(), transport=httpx.MockTransport(answer)), ["http://broker:8080"])
    name, context = TopicName.parse("persistent://acme/shop/orders"), SimpleNamespace(memory=None)
    return cast("ObserverTask", SimpleNamespace(name=name, context=context, admin=admin, each=each))


@pytest.mark.parametrize(
    ("readers", "splits"),
    [
        (["bill/a"], False),
        (["bill/a", "bill/b"], True),
        (["tool/a", "tool/b", "layout-1", "layout-2"], False),
        (["bill/a", "tool/a", "bill"], False),
    ],
)
def test_readers_of_the_layout(readers: list[str], splits: bool) -> None:
    """Only readers that are named after a subscription of the segments are consumers that want a segment each."""
    watch = ScaleWatch(policy=AutoScale(), segments=ScaledSegment.all_of(ControlledLayout.created(1, {}, 0)))
    result = await_scale(task_with(readers), watch)
    assert (result.answer is not None) is splits, result.why
