"""Detection of disconnected consumers and consumed segments (PIP-468, "Consumer Session Lifecycle").

A connected consumer reads the layout topic with a reader named `{subscription}/{consumer}`. So one request to one
broker shows all connected consumers, also those without a segment. This state is kept only in memory, as the proposal
wants it: a new observer gives a new grace to all disconnected consumers.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import TypeVar

from activities.lifecycle.parallel import ItemMapper
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.publish import require_epoch
from clients.errors import RetryableError, StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import SubscriptionStats
from clients.pulsar.names import TopicName
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from models.topic_controller.assignment import is_assignable
from models.topic_controller.observation import Observation, ObserverInput
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import StoredSessions

ItemT = TypeVar("ItemT", str, int)
SubscriptionsByName = Mapping[str, SubscriptionStats]

# Seconds. Regardless of the number of segments, this costs little compared to the polls of connections.
_RECHECK_EVERY = 10.0
# Seconds for which the first consumer of a subscription waits for answers of brokers.
_BROKERS_TIMEOUT = 10.0


class Observer:
    """Polls one topic; read-only, and without a connection to the metadata store.

    Args:
        admin: admin client of the cluster.
        topic: the scalable topic.
        layout: its layout.
        registered: consumers with a session, by subscription.
        watching: state that the workflow knows.
        known_at: time of that state, by the monotonic clock.
    """

    def __init__(
        self,
        admin: PulsarAdminReader,
        *,
        topic: TopicName,
        layout: ControlledLayout,
        registered: Mapping[str, Iterable[str]],
        watching: ObserverInput,
        known_at: float,
    ) -> None:
        self._is_known = layout.epoch == watching.epoch
        self._admin = admin
        self._topic = topic
        self._layout = layout
        self._registered = {name: {*consumers} for name, consumers in registered.items()}
        self._grace = watching.grace_seconds
        self._known_gone = {name: {*watching.gone.get(name, {})} for name in self._registered}
        self._drained = {name: {*watching.drained.get(name, ())} for name in self._registered}
        self._unpublished = False
        self._recheck = DrainRecheck(admin, topic, layout)
        self._gone_since = {
            (name, consumer): known_at - seconds
            for name, consumers in watching.gone.items()
            for consumer, seconds in consumers.items()
        }

    @property
    def deadline(self) -> float:
        """When the first grace ends, by the monotonic clock; infinity if all consumers are connected."""
        return min(self._gone_since.values(), default=math.inf) + self._grace

    def poll(self) -> Observation | None:
        """Return what has changed; None for nothing. Blocks; not thread-safe."""
        if not self._is_known:
            return Observation(layout=self._layout)
        gone, drained = self._find_gone(), self._find_drained()
        expired, unconsumed_again = self._find_expired(gone), self._recheck.poll(self._drained)
        changed = gone != self._known_gone or drained != self._drained
        if not (changed or any(expired.values()) or unconsumed_again or self._unpublished):
            return None
        return Observation(
            gone=_sorted(gone),
            expired=_sorted(expired),
            drained=_sorted(drained),
            unconsumed_again=_sorted(unconsumed_again),
            unpublished=self._unpublished,
        )

    def _find_gone(self) -> dict[str, set[str]]:
        """Return the disconnected consumers; unchanged while no broker serves the topic."""
        try:
            stats = self._admin.topics.stats(layout_topic(self._topic))
        except RetryableError:
            return self._known_gone
        except AdminNotFound:
            self._unpublished = True
            return self._known_gone
        # It retains its messages, so an empty topic was auto-created by a client after a deletion.
        self._unpublished = not stats.storage_size
        readers = {
            client.consumer_name for subscription in stats.subscriptions.values() for client in subscription.consumers
        }
        return {
            name: {consumer for consumer in consumers if f"{name}/{consumer}" not in readers}
            for name, consumers in self._registered.items()
        }

    def _find_expired(self, gone: Mapping[str, set[str]]) -> dict[str, set[str]]:
        """Return the consumers that were disconnected for the whole grace."""
        now = time.monotonic()
        disconnected = {(name, consumer) for name, consumers in gone.items() for consumer in consumers}
        self._gone_since = {consumer: self._gone_since.get(consumer, now) for consumer in disconnected}
        expired: dict[str, set[str]] = {}
        for (name, consumer), since in self._gone_since.items():
            if now - since >= self._grace:
                expired.setdefault(name, set()).add(consumer)
        return expired

    def _find_drained(self) -> dict[str, set[int]]:
        """Return the sealed segments that each subscription has consumed; see `drained_segments`."""

        @cache
        def subscriptions(segment_id: int) -> SubscriptionsByName | None:
            return subscriptions_on(self._admin, self._topic, self._layout.segments[segment_id])

        return {
            name: drained_segments(self._layout, name, subscriptions, drained)
            for name, drained in self._drained.items()
        }


class DrainRecheck:
    """Checks one consumed segment from time to time for messages that are unacknowledged again.

    A broker that is killed loses the newest acknowledgements, and an operator may reset a cursor.

    Args:
        admin: admin client of the cluster.
        topic: the scalable topic.
        layout: its layout.
    """

    def __init__(self, admin: PulsarAdminReader, topic: TopicName, layout: SegmentLayout) -> None:
        self._admin = admin
        self._topic = topic
        self._layout = layout
        # An observer often ends before it has checked all segments, so it starts with any.
        self._turn = random.randrange(max(1, len(layout.segments)))
        self._due = -math.inf

    def poll(self, drained: Mapping[str, Collection[int]]) -> dict[str, set[int]]:
        """Return the segments that have unacknowledged messages again, by subscription.

        Args:
            drained: ids of the segments that are known to be consumed, by subscription.
        """
        if (now := time.monotonic()) < self._due:
            return {}
        segments = sorted({*self._layout.segments}.intersection(chain(*drained.values())))
        if not segments:
            return {}
        self._due, self._turn = now + _RECHECK_EVERY, self._turn + 1
        if not self._refilled(segments[self._turn % len(segments)], drained):
            return {}
        # The same cause may have refilled other segments, and older messages must be read first: check all.
        refilled: dict[str, set[int]] = {}
        for segment_id in segments:
            for name in self._refilled(segment_id, drained):
                refilled.setdefault(name, set()).add(segment_id)
        return refilled

    def _refilled(self, segment_id: int, drained: Mapping[str, Collection[int]]) -> list[str]:
        """Return the subscriptions that had consumed a segment, and have unacknowledged messages in it again."""
        subscriptions = subscriptions_on(self._admin, self._topic, self._layout.segments[segment_id]) or {}
        return [
            name
            for name, ids in drained.items()
            if segment_id in ids and name in subscriptions and subscriptions[name].msg_backlog
        ]


def subscriptions_on(admin: PulsarAdminReader, topic: TopicName, segment: SegmentInfo) -> SubscriptionsByName | None:
    """Return the subscriptions of a segment; empty if the segment is deleted, None while no broker serves it."""
    with suppress(RetryableError):
        try:
            return admin.topics.stats(segment_topic(topic, segment.descriptor)).subscriptions
        except AdminNotFound:
            return {}
    return None


def drained_segments(
    layout: SegmentLayout,
    subscription: str,
    subscriptions: Callable[[int], SubscriptionsByName | None],
    drained: Iterable[int] = (),
) -> set[int]:
    """Return the sealed segments that a subscription has consumed completely, as far as it may have started with them.

    Args:
        layout: layout of the topic.
        subscription: name of the subscription.
        subscriptions: returns the subscriptions of a segment, by its id; see `subscriptions_on`.
        drained: ids of the segments that are known to be consumed.
    """
    consumed = {*drained}
    # Ids of parents are lower than those of children.
    for segment_id, segment in sorted(layout.segments.items()):
        is_candidate = segment.sealed and segment_id not in consumed and is_assignable(segment, layout, consumed)
        if is_candidate and _is_consumed(subscriptions(segment_id), subscription):
            consumed.add(segment_id)
    return consumed


def _is_consumed(subscriptions: SubscriptionsByName | None, name: str) -> bool:
    """Return whether a subscription has consumed a sealed segment: no message is unacknowledged or delayed."""
    if subscriptions is None:
        return False
    # Messages of a deleted topic are lost, and a subscription created after the seal never had a cursor on it.
    subscription = subscriptions.get(name)
    return subscription is None or not subscription.msg_backlog


def drained_by_subscription(
    admin: PulsarAdminReader,
    topic: TopicName,
    layout: SegmentLayout,
    subscriptions: Iterable[str],
    each: ItemMapper,
    *,
    limit: float = _BROKERS_TIMEOUT,
) -> dict[str, tuple[int, ...]]:
    """Return the sealed segments that subscriptions have consumed completely; each segment is requested once.

    Args:
        admin: admin client of the cluster.
        topic: the scalable topic.
        layout: its layout.
        subscriptions: names of the subscriptions.
        each: requests several segments at once.
        limit: seconds after which no more requests are made.
    """
    names, deadline = [*subscriptions], time.monotonic() + limit
    sealed = {segment_id: segment for segment_id, segment in layout.segments.items() if segment.sealed} if names else {}

    def read(segment: SegmentInfo) -> SubscriptionsByName | None:
        # Brokers that do not answer must not block consumers: what is unknown is not consumed, and observers poll
        # again.
        return subscriptions_on(admin, topic, segment) if time.monotonic() < deadline else None

    by_segment = dict(zip(sealed, each(sealed.values(), read), strict=True))
    return {name: tuple(sorted(drained_segments(layout, name, by_segment.__getitem__))) for name in names}


def recover_sessions(
    task: ControllerTask, layout: SegmentLayout, subscriptions: Iterable[str]
) -> dict[str, StoredSessions]:
    """Return the sessions in the metadata store, by subscription; subscriptions without sessions are left out."""
    registered = {name: task.records.consumers(name) for name in subscriptions}
    names = [name for name, consumers in registered.items() if consumers]
    drained = drained_by_subscription(task.admin, task.name, layout, names, task.each)
    return {
        name: StoredSessions(consumers=tuple(sorted(registered[name])), drained=segments)
        for name, segments in drained.items()
    }


def _sorted(by_subscription: Mapping[str, set[ItemT]]) -> dict[str, tuple[ItemT, ...]]:
    return {name: tuple(sorted(items)) for name, items in by_subscription.items() if items}


def create_observer(
    task: ControllerTask, admin: PulsarAdminReader, watching: ObserverInput, known_at: float
) -> Observer:
    """Return an observer of a topic; it reads the records once, and then needs the metadata store no more.

    Args:
        task: task of the attempt.
        admin: admin client of the cluster, which outlives the task.
        watching: state that the workflow knows.
        known_at: time of that state, by the monotonic clock.

    Raises:
        StoreConflict: the topic is deleted, or an old record was restored.
    """
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted")
    require_epoch(task, record, watching.epoch)  # mutant: topic-controller/observes-an-older-record
    registered = {name: task.records.consumers(name) for name in watching.subscriptions}
    return Observer(admin, topic=task.name, layout=record, registered=registered, watching=watching, known_at=known_at)
