"""The grace window: a regular topic stays, with its messages, until the window ends.

Brokers that lead a scalable topic look once a minute for regular parents that every subscription has consumed, and
whose retention has ended; they drop these from the layout, and delete the regular topic (5.0.1). A subscription that
nobody consumes keeps them from it, and costs no more than the regular topic itself; a retention that is held longer
would keep what the whole namespace consumes. Only the cleanup deletes it: where an operator keeps the regular topic, or
a run is terminated, it stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from activities.pulsar.namespace_guard import RecordGuard
from activities.scalable_topic.context import GRACE, ClusterTask
from activities.scalable_topic.regular import durable_of, regular_parts
from clients.cas.store import CasReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import controller_of, read_scalable, recorded_subscriptions
from models.lifecycle.status import WaitKind
from models.scalable_topic.claims import TopicClaim

DROP_LIMIT = 150.0
"""Seconds in which brokers drop what is consumed: they look every 60 s, from the moment when they lead a topic."""
_LOOK_EVERY = 2.0


def keep_regular(task: ClusterTask[Any], guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Have brokers keep a regular topic with its messages; harmless when done twice.

    What has no message is not kept.

    Raises:
        AdminError: a broker refuses.
    """
    if (topic := task.find_topic(name)) is None:
        return
    guard.note(held=True)

    def keep(part: TopicName) -> None:
        # A late request would make the subscription, or even the topic, again.
        with suppress(AdminConflict):
            task.cluster.change_or_never(
                look=lambda admin: admin.topics.internal_stats(part),
                fence=guard.require,
                change=lambda admin: admin.subscriptions.create(part, GRACE),
            )

    task.each([part.name for part in topic.parts], keep)


def release_regular(task: ClusterTask[Any], guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Let brokers delete a regular topic once it is consumed; harmless when done twice.

    Raises:
        AdminError: a broker refuses.
    """
    if (topic := task.find_topic(name)) is None:
        return

    def release(part: TopicName) -> None:
        # A late request would end the window of another topic of this name.
        with suppress(AdminNotFound):
            task.cluster.change_or_never(
                look=lambda admin: admin.topics.internal_stats(part),
                fence=guard.require,
                change=lambda admin: admin.subscriptions.delete(part, GRACE, force=True),
            )

    task.each([part.name for part in topic.parts], release)


def await_dropped(task: ClusterTask[Any], store: CasReader, names: Iterable[TopicName]) -> None:
    """Wait until brokers have dropped regular topics that are consumed, `DROP_LIMIT` seconds at most."""
    waiting: dict[TopicName, set[str]] = {}
    for name in names:
        # What brokers fail for is reported by the cleanup of that topic.
        with suppress(AdminServerError):
            topic = task.find_topic(name)
            if topic and not any(one.backlog for one in durable_of(topic)):
                _require_leader(task, store, name)
                waiting[name] = {*map(str, regular_parts(topic))}
    end = time.monotonic() + DROP_LIMIT
    with task.context.waiting(WaitKind.STORE, "brokers to drop consumed regular topics from their layouts"):
        while waiting := {name: parts for name, parts in waiting.items() if _named(store, name) & parts}:
            if time.monotonic() > end:
                return
            task.context.pause(_LOOK_EVERY)


def _named(store: CasReader, name: TopicName) -> set[str | None]:
    """Return the regular topics that the layout of a scalable one names."""
    layout = read_scalable(store, name).layout
    return {one.legacy_topic_name for one in layout.segments.values()} if layout else set()


def _require_leader(task: ClusterTask[Any], store: CasReader, name: TopicName) -> None:
    """See that a broker leads a scalable topic: no other one drops parents of it."""
    if controller_of(store, name):
        return
    recorded = recorded_subscriptions(store, name)
    for subscription, kind in recorded.items():
        if kind is not None:
            task.admin.scalable_topics.register(name, subscription, kind)
            return
