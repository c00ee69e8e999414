"""CLIENTS: wait until all clients of the regular topic can follow it (PIP-475, "Client readiness")."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from activities.lifecycle.step import step
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.regular_topic import next_poll_delay, obstacles, ordered_types, with_types
from models.lifecycle.status import WaitKind
from models.scalable_topic.results import ClientsGone

_FORCE = '; or start again with "force": true'


@step(TopicTask, reads_only=True)
def await_clients(task: TopicTask, until: datetime, ordered: Mapping[str, str] = MappingProxyType({})) -> ClientsGone:
    """Watch the topic until it can become scalable, or the time is up.

    Args:
        task: an attempt of the migration.
        until: when clients are waited for no longer.
        ordered: types of ordered subscriptions, as they were seen so far.
    """
    if task.input.parent is not None:
        until += task.wait_while_stopped()
    begun = time.monotonic()
    # Includes the types that a lost attempt has seen: brokers may have forgotten them.
    seen = {**ordered, **task.context.noted}  # mutant: scalable-topic/types-are-forgotten-with-an-attempt
    while True:
        topic = with_types(task.read_topic(task.name), seen)  # mutant: scalable-topic/types-are-what-brokers-say-now
        seen |= ordered_types(topic)
        task.context.noted = dict(seen)
        remaining = obstacles(topic, force=task.input.force)
        if not remaining or task.context.server_time >= until:
            break
        action = f"{', then '.join(remaining)}{'' if task.input.force else _FORCE}"
        task.context.waiting_for(WaitKind.CLIENTS, "; ".join(remaining.values()), action=action, until=until)
        task.context.pause(next_poll_delay(time.monotonic() - begun))
    task.context.clear_waiting()
    return ClientsGone(waiting="; ".join(remaining.values()), ordered=seen)
