"""Topics that brokers have fenced while they were ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.termination import terminate_again
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.admin.topics import InternalStats
from clients.pulsar.names import TopicName
from models.releases import parse_release


class _FencedTopic:
    """A topic whose broker has fenced it, until it is unloaded."""

    def __init__(self) -> None:
        self.unloaded = 0

    def internal_stats(self, _topic: TopicName) -> InternalStats:
        if self.unloaded:
            raise AdminServerError("already migrated", method="GET", url="http://blue", status=500)
        return InternalStats(state="Fenced")

    def unload(self, _topic: TopicName) -> None:
        self.unloaded += 1


def test_a_topic_that_its_broker_has_fenced_is_unloaded() -> None:
    """A fenced topic is unloaded once, so that it can be loaded and terminated, and is named."""
    topic, topics = TopicName.parse("persistent://t/n/x"), _FencedTopic()

    def each(items: Sequence[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return list(map(work, items))

    def change(*, connect: object, fence: Callable[[], object], change: Callable[[object], object]) -> object:
        del connect
        fence()
        return change(blue)

    blue = SimpleNamespace(topics=topics)
    cluster = SimpleNamespace(admin=blue, change_or_never=change, release=parse_release("4.0.8"))
    task = SimpleNamespace(blue=cluster, each=each)
    guard = SimpleNamespace(require=lambda: None)
    ended = terminate_again(cast("BlueGreenTask", task), cast("NamespaceGuard", guard), cast("CasStore", None), [topic])
    assert topics.unloaded == 1
    assert ended == {topic: f"{topic} was fenced by its broker, which could not store the termination; it was unloaded"}
