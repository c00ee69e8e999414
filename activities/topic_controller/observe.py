"""Who is connected, and what is consumed (PIP-468, "Consumer Session Lifecycle").

A consumer that is connected reads the layout topic with a reader of the name `{subscription}/{consumer}`: one request
to one broker shows who is connected, also those that have no segment. That is kept in memory alone, as the proposal
wants it: whoever observes anew gives everybody a fresh grace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from activities.lifecycle.context import ActivityContext
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic, segment_topic
from clients.errors import RetryableError, StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from models.segment_layout import SegmentLayout
from models.topic_controller.assignment import has_turn
from models.topic_controller.sessions import Observation, Watching

ItemT = TypeVar("ItemT", str, int)

OBSERVE_EVERY = 0.5
"""Seconds between two looks."""


class Observer:
    """Watches one topic; reads only, and keeps no connection to the metadata store.

    Args:
        admin: of the cluster.
        context: of the activity.
        topic: the scalable one.
        layout: of it.
        registered: consumers with a session, by subscription.
        watching: what is known.
    """

    def __init__(
        self,
        admin: PulsarAdminReader,
        context: ActivityContext,
        *,
        topic: TopicName,
        layout: SegmentLayout,
        registered: Mapping[str, Iterable[str]],
        watching: Watching,
    ) -> None:
        self._admin = admin
        self._context = context
        self._topic = topic
        self._layout = layout
        self._registered = {name: {*consumers} for name, consumers in registered.items()}
        self._grace = watching.grace_seconds
        self._known_gone = {name: {*watching.gone.get(name, {})} for name in self._registered}
        self._drained = {name: {*watching.drained.get(name, ())} for name in self._registered}
        now = time.monotonic()
        self._missed = {
            (name, consumer): now - seconds
            for name, consumers in watching.gone.items()
            for consumer, seconds in consumers.items()
        }

    def run(self) -> Observation:
        """Watch until something has changed."""
        while True:
            gone, drained = self._gone(), self._consumed()
            expired = self._expired(gone)
            if gone != self._known_gone or drained != self._drained or any(expired.values()):
                return Observation(gone=_sorted(gone), expired=_sorted(expired), drained=_sorted(drained))
            self._context.pause(OBSERVE_EVERY)

    def _gone(self) -> dict[str, set[str]]:
        """Consumers that are not connected; nobody counts as gone while the topic has no broker that answers."""
        try:
            stats = self._admin.topics.stats(layout_topic(self._topic))
        except RetryableError:
            return self._known_gone
        readers = {client.consumer_name for one in stats.subscriptions.values() for client in one.consumers}
        return {
            name: {consumer for consumer in consumers if f"{name}/{consumer}" not in readers}
            for name, consumers in self._registered.items()
        }

    def _expired(self, gone: Mapping[str, set[str]]) -> dict[str, set[str]]:
        now = time.monotonic()
        missing = {(name, consumer) for name, consumers in gone.items() for consumer in consumers}
        self._missed = {one: self._missed.get(one, now) for one in missing}
        late: dict[str, set[str]] = {}
        for (name, consumer), since in self._missed.items():
            if now - since >= self._grace:
                late.setdefault(name, set()).add(consumer)
        return late

    def _consumed(self) -> dict[str, set[int]]:
        """Sealed segments of which a subscription has consumed all, as far as it may have begun with them."""
        found = {name: {*known} for name, known in self._drained.items()}
        for name, known in found.items():
            for segment in self._layout.segments.values():
                ours = segment.sealed and segment.segment_id not in known
                if ours and has_turn(segment, self._layout, known) and self._is_consumed(segment.descriptor, name):
                    known.add(segment.segment_id)
        return found

    def _is_consumed(self, descriptor: str, subscription: str) -> bool:
        """Whether nothing is left of a sealed segment; what was not acknowledged, or is delayed, is left."""
        with suppress(RetryableError):
            try:
                stats = self._admin.topics.stats(segment_topic(self._topic, descriptor))
            except AdminNotFound:
                # What is left of it is left for nobody.
                return True
            place = stats.subscriptions.get(subscription)
            # A subscription that came behind the seal never had a place on it.
            return place is None or not place.msg_backlog
        return False


def _sorted(found: Mapping[str, set[ItemT]]) -> dict[str, tuple[ItemT, ...]]:
    return {name: tuple(sorted(items)) for name, items in found.items() if items}


def observe(task: ControllerTask, watching: Watching) -> Observation:
    """Watch connections and backlogs until something has changed; see `Observer`.

    Raises:
        StoreConflict: the topic is gone.
    """
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted")
    registered = {name: task.records.consumers(name) for name in watching.subscriptions}
    task.leave_store()
    observer = Observer(
        task.admin, task.context, topic=task.name, layout=record, registered=registered, watching=watching
    )
    return observer.run()
