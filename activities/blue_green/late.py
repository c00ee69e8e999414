"""Subscriptions that come to blue after LOAD: green gets them as well, so that they miss nothing that is sent there.

Who connects anew would create its subscription on green by itself, but at the end of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.load import provision_batch, save_clients, saved_clients
from activities.blue_green.topics import look_at, subscriptions_of, topics_of
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients

Lacking = Mapping[TopicName, Mapping[str, int]]
"""Durable subscriptions that green lacks, with the number of their consumers, by topic or partition."""


def provision_late(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> bool:
    """Right before the flag: create on green what came to blue since LOAD; returns whether there was anything.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    late = [(guard, lacking) for guard in guards if (lacking := _lacking(task, guard.namespace))]
    for guard, lacking in late:
        provision_batch(task, [guard], topics_alone=True)
        _remember(store, guard, lacking)
    return bool(late)


def create_late(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Once topics are terminated: the same for subscriptions that came between the flag and that."""
    for guard in guards:
        lacking = _lacking(task, guard.namespace)
        for topic, names in lacking.items():
            for name in names:
                guard.require()
                # Its consumer was faster; or there is no such topic on green, which VERIFY tells.
                with suppress(AdminConflict, AdminNotFound):
                    task.green.subscriptions.create(topic, name)
        if lacking:
            _remember(store, guard, lacking)


def _lacking(task: BlueGreenTask, namespace: str) -> Lacking:
    topics = topics_of(task.blue, namespace)
    found = zip(topics, task.each(topics, lambda topic: _lacking_of(task, topic)), strict=True)
    return {topic: names for topic, names in found if names}


def _lacking_of(task: BlueGreenTask, topic: TopicName) -> dict[str, int]:
    stats = look_at(task.blue, topic).stats
    if stats is None:
        return {}
    here = {name: len(sub.consumers) for name, sub in subscriptions_of(stats).items() if sub.is_durable}
    if not here:
        # Brokers of green create it for its first client, and may have deleted it as nobody used it.
        return {}
    try:
        there = task.green.subscriptions.names(topic)
    except AdminNotFound:
        return here
    return {name: count for name, count in here.items() if name not in there}


def _remember(store: CasStore, guard: NamespaceGuard, lacking: Lacking) -> None:
    """Add them to those who are looked for on green."""
    known = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
    for topic, names in lacking.items():
        before = known.get(topic, TopicClients())
        known[topic] = before.model_copy(update={"consumers": {**before.consumers, **names}})
    save_clients(store, guard, known)
