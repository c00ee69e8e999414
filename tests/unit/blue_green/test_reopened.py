"""What a topic has after the position at which it was ended, and topics that brokers have fenced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.reopened import after_end, end_again
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.admin.topics import InternalInfo, InternalStats, LedgerStats, Position
from clients.pulsar.names import TopicName
from models.releases import parse_release


@pytest.mark.parametrize(
    ("ledgers", "end", "told"),
    [
        ([(3, 5)], None, ""),
        ([(2, 9), (3, 0)], (3, 4), ""),
        ([(2, 9), (3, 5)], (3, 4), ""),
        ([(3, 7)], (3, 4), "2 entries in ledger 3"),
        ([(3, 5), (4, 2), (5, 0)], (3, 4), "2 entries in ledger 4, perhaps entries in ledger 5"),
        ([(3, 5)], (3, -1), "5 entries in ledger 3"),
    ],
)
def test_entries_after_the_end(ledgers: list[tuple[int, int]], end: tuple[int, int] | None, told: str) -> None:
    """Ledgers after the end are named; what an open ledger has is not stored."""
    position = None if end is None else Position(ledger_id=end[0], entry_id=end[1])
    stored = tuple(LedgerStats(ledger_id=ledger, entries=entries) for ledger, entries in ledgers)
    assert after_end(InternalInfo(ledgers=stored, terminated_position=position)) == told


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
    """It is unloaded once, so that it can be loaded and ended, and named."""
    topic, topics = TopicName.parse("persistent://t/n/x"), _FencedTopic()

    def each(items: Sequence[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return list(map(work, items))

    task = SimpleNamespace(blue=SimpleNamespace(topics=topics), blue_release=parse_release("4.0.8"), each=each)
    guard = SimpleNamespace(require=lambda: None)
    ended = end_again(cast("BlueGreenTask", task), cast("NamespaceGuard", guard), cast("CasStore", None), [topic])
    assert topics.unloaded == 1
    assert ended == {topic: f"{topic} was fenced by its broker, which could not store its end, and unloaded"}
