"""CLIENTS: wait until nobody uses the regular topic who cannot follow (PIP-475, "Client readiness")."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from activities.lifecycle.step import step
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.regular_topic import obstacles, ordered_types, until_next_look, with_types
from models.lifecycle.status import WaitKind
from models.scalable_topic.results import ClientsGone

_FORCE = '; or start again with "force": true'


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
    seen = {**known, **task.context.noted}  # mutant: scalable-topic/types-are-forgotten-with-an-attempt
    while True:
        topic = with_types(task.read_topic(task.name), seen)  # mutant: scalable-topic/types-are-what-brokers-say-now
        seen |= ordered_types(topic)
        task.context.noted = dict(seen)
        found = obstacles(topic, force=task.input.force)
        if not found or datetime.now(UTC) >= until:
            break
        action = f"{', then '.join(found)}{'' if task.input.force else _FORCE}"
        task.context.waiting_for(WaitKind.CLIENTS, "; ".join(found.values()), action=action, until=until)
        task.context.pause(until_next_look(time.monotonic() - begun))
    task.context.clear_waiting()
    return ClientsGone(waiting="; ".join(found.values()), ordered=seen)
