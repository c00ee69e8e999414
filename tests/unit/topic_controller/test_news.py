"""When the layout topic is compacted, and of whom nothing is left there then."""

from __future__ import annotations

from models.topic_controller.sessions import AssignmentChanges, Coordinator, SubscriptionChanges
from models.topic_controller.state import MOST, News


def changes(*ended: str, assigned: int = 0) -> AssignmentChanges:
    """So many consumers got segments, and these left."""
    assignments = {f"c{number}": (0,) for number in range(assigned)}
    told = SubscriptionChanges(subscription="bill", assignments=assignments, ended=ended)
    return AssignmentChanges(generation=1, epoch=0, subscriptions=(told,))


def test_who_ended_long_ago_is_forgotten() -> None:
    """With the second compaction behind the end of its session, and not where it has come back."""
    news, nobody = News().added(changes("gone", "back", assigned=MOST)), dict[str, Coordinator]()
    first = news.compacting(changes("later"), nobody)
    assert (first.compact, first.forgotten) == (True, ())
    news = news.added(first)
    assert not news.compacting(changes(), nobody).compact
    news = news.added(changes(assigned=MOST))
    returned = Coordinator()
    returned.join(["back"])
    second = news.compacting(changes(), {"bill": returned})
    assert (second.compact, second.forgotten) == (True, ("bill/gone",))
    assert news.added(second).ended_before == ("bill/later",)


def test_many_consumers_are_told_together() -> None:
    """A change of all segments of more consumers than that does not compact the topic each time."""
    crowd = Coordinator()
    crowd.join([f"c{number}" for number in range(2 * MOST)])
    news = News().added(changes(assigned=2 * MOST - 1))
    assert not news.compacting(changes(), {"bill": crowd}).compact
    assert news.added(changes(assigned=1)).compacting(changes(), {"bill": crowd}).compact
