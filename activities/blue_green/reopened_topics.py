"""Topics on blue that a rollback opens again: where they ended, and the subscriptions that start there."""

from __future__ import annotations

from collections.abc import Mapping

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.pulsar.late_subscriptions import create_subscription
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import Position
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients


def noted_ends(store: CasStore, guard: NamespaceGuard) -> dict[TopicName, Position]:
    """Return the ends of topics whose termination an earlier attempt started to remove."""
    ends = ((topic, clients.ended) for topic, clients in saved_clients(store, guard.namespace).items())
    return {TopicName.parse(topic): Position(ledger_id=end[0], entry_id=end[1]) for topic, end in ends if end}


def note_ends(store: CasStore, guard: NamespaceGuard, ends: Mapping[TopicName, Position]) -> None:
    """Save the ends of topics before their termination is removed: restored subscriptions start there."""
    saved = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
    noted = {topic: (at.ledger_id, at.entry_id) for topic, at in ends.items()}
    after = {
        topic: saved.get(topic, TopicClients()).model_copy(update={"ended": noted.get(topic)})
        for topic in {**saved, **noted}
    }
    if after != saved:
        save_clients(store, guard, after)


def complete_lost_undo(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore) -> None:
    """Create subscriptions again whose topics serve blue's clients, where the run that rolled back was terminated.

    Call it while writes are still held back, if that run has left them so.
    """
    ended = noted_ends(store, guard)
    for topic, position in ended.items():
        info = stored(task.blue.admin, topic)
        # Other topics of the namespace may still be terminated, and then its flip continues.
        if info is not None and info.terminated_position is None:
            restore_subscriptions(task, guard, store, topic, position)
    if ended:
        note_ends(store, guard, {})


def restore_subscriptions(
    task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName, ended: Position
) -> None:
    """Create subscriptions again that brokers deleted because they were drained; none if clients delete the topic."""
    before = saved_clients(store, guard.namespace).get(str(topic), TopicClients())
    try:
        there = task.blue.admin.subscriptions.names(topic)
    except AdminNotFound:
        return
    for name in sorted(set(before.consumers) - set(there)):
        create_subscription(
            task.blue,
            topic,
            name,
            after=ended,
            fence=guard.require,
            replicated=name in before.replicated,
            properties=before.properties.get(name),
        )
