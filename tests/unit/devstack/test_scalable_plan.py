"""Clients that use a topic before, while and after it becomes scalable."""

from __future__ import annotations

from pulsar_devstack.traffic.plan import Subscribed
from pulsar_devstack.traffic.scalable_plan import RETURNS, STAYS, WAITS, ordered_of, scalable_topics

_COUNT = 8


def test_every_kind_of_topic_is_used() -> None:
    """Each of four topics has another pair of partitions and order, and the names of all clients differ."""
    topics = scalable_topics("acme/orders", _COUNT, rate=10)
    assert len({(plan.partitions, plan.ordered) for plan in topics[:4]}) == 4
    assert [plan.segments for plan in topics[:2]] == [1, 3]
    assert len(ordered_of(topics)) == _COUNT // 2
    consumers = [
        consumer
        for plan in topics
        for consumer in (
            *plan.regular_consumers,
            *plan.streams,
            plan.queue(STAYS),
            plan.queue(RETURNS),
            plan.queue(RETURNS, 2),
            plan.queue(WAITS),
        )
    ]
    names = [consumer.name for consumer in consumers]
    assert len(set(names)) == len(names)
    # Brokers take the name of a stream's consumer for a part of a path.
    assert not any("/" in name for name in names)
    assert {regular_consumer.type for regular_consumer in topics[2].regular_consumers} == set(Subscribed)


def test_each_subscription_has_consumers_before_and_after() -> None:
    """V5 clients use the subscriptions that regular ones made, and no others."""
    for plan in scalable_topics("acme/orders", _COUNT):
        made = {regular_consumer.subscription for regular_consumer in plan.regular_consumers}
        used = {stream.subscription for stream in plan.streams} | {STAYS, RETURNS, WAITS}
        assert made == used
        assert {stream.stored_topic for stream in (*plan.streams, plan.queue(STAYS))} == {plan.topic}
