"""When the layout topic is compacted, and of whom nothing is left there then."""

from __future__ import annotations

from models.topic_controller.sessions import AssignmentChanges, Coordinator, SubscriptionChanges
from models.topic_controller.state import MAX_UNCOMPACTED, CompactionState


def changes(*ended: str, assigned: int = 0) -> AssignmentChanges:
    """So many consumers got segments, and these left."""
    assignments = {f"c{number}": (0,) for number in range(assigned)}
    told = SubscriptionChanges(subscription="bill", assignments=assignments, ended=ended)
    return AssignmentChanges(generation=1, epoch=0, subscriptions=(told,))


def test_who_ended_long_ago_is_forgotten() -> None:
    """With the second compaction behind the end of its session, and not where it has come back."""
    news, nobody = (
        CompactionState().with_published(changes("gone", "back", assigned=MAX_UNCOMPACTED)),
        dict[str, Coordinator](),
    )
    first = news.with_compaction(changes("later"), nobody)
    assert (first.compact, first.forgotten) == (True, ())
    news = news.with_published(first)
    assert not news.with_compaction(changes(), nobody).compact
    news = news.with_published(changes(assigned=MAX_UNCOMPACTED))
    returned = Coordinator()
    returned.join(["back"])
    second = news.with_compaction(changes(), {"bill": returned})
    assert (second.compact, second.forgotten) == (True, ("bill/gone",))
    assert news.with_published(second).ended_earlier == ("bill/later",)


def test_many_consumers_are_told_together() -> None:
    """A change of all segments of more consumers than that does not compact the topic each time."""
    crowd = Coordinator()
    crowd.join([f"c{number}" for number in range(2 * MAX_UNCOMPACTED)])
    news = CompactionState().with_published(changes(assigned=2 * MAX_UNCOMPACTED - 1))
    assert not news.with_compaction(changes(), {"bill": crowd}).compact
    assert news.with_published(changes(assigned=1)).with_compaction(changes(), {"bill": crowd}).compact
