"""Compactions of the layout topic, and the sessions that each of them removes."""

from __future__ import annotations

from models.topic_controller.sessions import AssignmentChanges, Coordinator, SubscriptionChanges
from models.topic_controller.state import MAX_UNCOMPACTED, CompactionState


def changes(*ended: str, assigned: int = 0) -> AssignmentChanges:
    """Return changes in which some consumers got segments, and these left."""
    assignments = {f"c{number}": (0,) for number in range(assigned)}
    changed = SubscriptionChanges(subscription="bill", assignments=assignments, ended=ended)
    return AssignmentChanges(generation=1, epoch=0, subscriptions=(changed,))


def test_sessions_that_ended_long_ago_are_forgotten() -> None:
    """A session is forgotten with the second compaction after its end, and not if its consumer has come back."""
    news, absent = (
        CompactionState().with_published(changes("gone", "back", assigned=MAX_UNCOMPACTED)),
        dict[str, Coordinator](),
    )
    first = news.with_compaction(changes("later"), absent)
    assert (first.compact, first.forgotten) == (True, ())
    news = news.with_published(first)
    assert not news.with_compaction(changes(), absent).compact
    news = news.with_published(changes(assigned=MAX_UNCOMPACTED))
    returned = Coordinator()
    returned.join(["back"])
    second = news.with_compaction(changes(), {"bill": returned})
    assert (second.compact, second.forgotten) == (True, ("bill/gone",))
    assert news.with_published(second).ended_earlier == ("bill/later",)


def test_many_consumers_share_a_compaction() -> None:
    """A change of all segments of more consumers than that does not compact the topic each time."""
    crowd = Coordinator()
    crowd.join([f"c{number}" for number in range(2 * MAX_UNCOMPACTED)])
    news = CompactionState().with_published(changes(assigned=2 * MAX_UNCOMPACTED - 1))
    assert not news.with_compaction(changes(), {"bill": crowd}).compact
    assert news.with_published(changes(assigned=1)).with_compaction(changes(), {"bill": crowd}).compact
