"""Messages in chunks that arrive while the ends of topics are read, right before a flag."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import write_limit
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.write_limit import require_quiet
from activities.lifecycle.context import ActivityContext
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import Client, EntryHead, InternalStats, TopicStats
from clients.pulsar.names import TopicName

_TOPIC = TopicName.parse("persistent://t/n/x")


class _Topic:
    """A topic with a producer, to which something is sent just as its end was read.

    Args:
        heads: what is stored, oldest first.
        late: what comes then.
        counter: messages that its broker has taken since it loaded the topic.
    """

    def __init__(self, heads: Iterable[EntryHead], late: EntryHead | None = None, counter: int = 1) -> None:
        self.heads = list(heads)
        self.late, self.counter = late, counter
        self.pending = -1

    def names(self, _namespace: str) -> list[str]:
        return [str(_TOPIC)]

    def stats(self, _topic: TopicName) -> TopicStats:
        return TopicStats(msg_in_counter=self.counter, publishers=(Client(producer_name="p"),))

    def internal_stats(self, _topic: TopicName) -> InternalStats:
        waiting = self.pending
        self.pending -= 1
        if waiting == 0:
            self.heads.append(_first_chunk())
        return InternalStats.model_validate(
            {
                "lastConfirmedEntry": f"3:{len(self.heads) - 1}",
                "ledgers": [{"ledgerId": 3}],
                "pendingAddEntriesCount": max(waiting, 0),
            }
        )

    def entry_head(self, _topic: TopicName, position: tuple[int, int]) -> EntryHead:
        head = self.heads[position[1]]
        if self.late is not None:
            self.heads.append(self.late)
            self.counter += 1
            self.late = None
        return head


class _Space:
    """The namespace of the topic."""

    namespace = "t/n"


def _flip(monkeypatch: pytest.MonkeyPatch, topic: _Topic) -> None:
    """Check a batch as a flip does right before it sets the flag."""

    def held(*_: object) -> bool:
        return True

    def each(items: Iterable[Any], work: Any) -> list[Any]:
        return [work(item) for item in items]

    monkeypatch.setattr(write_limit, "is_overridden", held)
    double = SimpleNamespace(
        blue=SimpleNamespace(admin=SimpleNamespace(topics=topic)),
        context=ActivityContext(),
        each=each,
        input=SimpleNamespace(quiesce_timeout=timedelta(minutes=10), cluster="b"),
    )
    require_quiet(cast("BlueGreenTask", double), [cast("NamespaceGuard", _Space())])


def _whole() -> EntryHead:
    return EntryHead("p", datetime.now(UTC))


def _first_chunk() -> EntryHead:
    return EntryHead("p", datetime.now(UTC), 0, 2)


def test_a_chunk_that_comes_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first chunk that comes after the end of its topic was read is found: the counters have changed since."""
    with pytest.raises(StoreConflict, match="1 of 2 by p"):
        _flip(monkeypatch, _Topic([_whole()], late=_first_chunk()))
    _flip(monkeypatch, _Topic([_whole()], late=_whole()))


def test_a_chunk_that_was_stored_before_its_topic_was_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose counter is 0 is read as well."""
    with pytest.raises(StoreConflict, match="1 of 2 by p"):
        _flip(monkeypatch, _Topic([_first_chunk()], counter=0))


def test_a_chunk_that_bookies_have_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends are read once bookies have confirmed what is counted: what they have not cannot be read."""
    topic = _Topic([_whole()])
    topic.pending = 2
    with pytest.raises(StoreConflict, match="1 of 2 by p"):
        _flip(monkeypatch, topic)
