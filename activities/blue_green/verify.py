"""VERIFY: a batch on both sides, after its topics were drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.drain import those_that_move
from activities.blue_green.load import saved_clients
from activities.blue_green.topics import cursors_of, look_at, named, stored, subscriptions_of, topics_of
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients
from models.blue_green.results import BatchCheck
from models.lifecycle.failures import FailedItem


def verify(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> BatchCheck:
    """Compare each namespace: nothing is left on blue, and green has every topic with its subscriptions."""
    faults: list[FailedItem] = []
    topics = subscriptions = 0
    for guard in those_that_move(guards):
        known = saved_clients(store, guard.namespace)
        names = sorted({*known, *map(str, topics_of(task.blue, guard.namespace))})
        checked = task.each(names, lambda name, known=known: _check(task, TopicName.parse(name), known))
        faults += [FailedItem(path=name, reason=why) for name, (why, _) in zip(names, checked, strict=True) if why]
        topics += len(names)
        subscriptions += sum(count for _, count in checked)
    return BatchCheck(topics=topics, subscriptions=subscriptions, faults=named(faults))


def _check(task: BlueGreenTask, topic: TopicName, known: Mapping[str, TopicClients]) -> tuple[str, int]:
    """What is wrong with a topic, and how many subscriptions it has on green."""
    wrong: list[str] = []
    blue = stored(task.blue, topic)
    look = look_at(task.blue, topic) if blue else None
    if blue and not blue.migrated:
        wrong.append("it is not terminated on blue")
    if look and look.stats:
        busy = [name for name, sub in subscriptions_of(look.stats).items() if sub.msg_backlog or sub.consumers]
        wrong += [f"blue still has {len(look.stats.publishers)} producers"] if look.stats.publishers else []
        wrong += [f"blue still has subscriptions with messages or consumers: {', '.join(busy)}"] if busy else []
    elif look and look.blocked and blue and cursors_of(blue):
        wrong.append("it cannot be loaded on blue, and has subscriptions there")
    try:
        there = set(task.green.subscriptions.names(topic))
    except AdminNotFound:
        return "; ".join([*wrong, "green has no such topic"]), 0
    lacking = sorted(set(known.get(str(topic), TopicClients()).consumers) - there)
    wrong += [f"green lacks the subscriptions {', '.join(lacking)}"] if lacking else []
    return "; ".join(wrong), len(there)
