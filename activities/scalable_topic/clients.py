"""CLIENTS: wait until nobody uses the regular topic who cannot follow (PIP-475, "Client readiness")."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from activities.lifecycle.step import step
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.census import census, chunking_producers, open_transactions, transactional_producers
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.regular import ordered_types, with_types
from activities.scalable_topic.topic_checks import undrained_streams
from models.lifecycle.failures import some
from models.lifecycle.status import WaitKind
from models.scalable_topic.results import ClientsGone

_LOOK_EVERY = 1.0
_LONGEST_PAUSE = 10.0
_LOOKS_PER_AGE = 60
_REPLACE = "end clients that cannot follow, and connect V5 clients instead"
_CONSUME = "have ordered subscriptions consumed to the end by the clients that they have"
_FORCE = '; or start again with "force": true'
_COMMIT = "commit or abort these transactions"
_WHOLE = "close producers that send messages in chunks until the topic is scalable"
_SILENCE = "close producers that use transactions until the topic is scalable"


@step(TopicTask, reads_only=True)
def await_clients(task: TopicTask, until: datetime, known: Mapping[str, str] = MappingProxyType({})) -> ClientsGone:
    """Watch the topic until it can become scalable, or the time is up.

    Args:
        task: an attempt of the migration.
        until: when clients are waited for no longer.
        known: types of ordered subscriptions, as they were seen so far.
    """
    begun = time.monotonic()
    # With those of an attempt that was lost: brokers may have forgotten them.
    seen = {**known, **task.context.noted}
    while True:
        topic = with_types(task.read_topic(task.name), seen)
        seen |= ordered_types(topic)
        task.context.noted = dict(seen)
        found = _obstacles(topic, force=task.input.force)
        if not found or datetime.now(UTC) >= until:
            break
        action = f"{', then '.join(found)}{'' if task.input.force else _FORCE}"
        task.context.waiting_for(WaitKind.CLIENTS, "; ".join(found.values()), action=action, until=until)
        task.context.pause(until_next_look(time.monotonic() - begun))
    task.context.waits_no_more()
    return ClientsGone(waiting="; ".join(found.values()), ordered=seen)


def until_next_look(age: float) -> float:
    """Seconds until a topic is looked at again: what has lasted for long need not be seen to end at once.

    Args:
        age: seconds that it has been waited for.
    """
    return min(max(age / _LOOKS_PER_AGE, _LOOK_EVERY), _LONGEST_PAUSE)


def waits_for(topic: TopicInventory, *, force: bool = False) -> str:
    """Return what the topic still has that a scalable one cannot serve, in words; empty for nothing.

    Args:
        topic: as it is.
        force: leave out clients that cannot follow, and ordered subscriptions with a backlog.
    """
    return "; ".join(_obstacles(topic, force=force).values())


def _obstacles(topic: TopicInventory, *, force: bool) -> dict[str, str]:
    """Return the same, by what the operator has to do about it."""
    obstacles: dict[str, str] = {}
    if transactions := open_transactions(topic):
        obstacles[_COMMIT] = f"open transactions: {some(transactions)}"
    elif producers := transactional_producers(topic):
        obstacles[_SILENCE] = f"producers on topics with transactions, which may begin another: {some(producers)}"
    if producers := chunking_producers(topic):
        obstacles[_WHOLE] = f"producers of messages in chunks, of which one would be cut in two: {some(producers)}"
    if force:
        return obstacles
    if waiting := undrained_streams(topic):
        backlogs = some([f"{name} ({backlog} messages)" for name, backlog in waiting.items()])
        obstacles[_CONSUME] = f"ordered subscriptions with a backlog: {backlogs}"
    if (found := census(topic)).legacy:
        obstacles[_REPLACE] = f"{found.legacy} connections of clients that cannot follow: {', '.join(found.named)}"
    return obstacles
