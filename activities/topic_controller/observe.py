"""Who is connected, and what is consumed (PIP-468, "Consumer Session Lifecycle").

A consumer that is connected reads the layout topic with a reader of the name `{subscription}/{consumer}`: one request
to one broker shows who is connected, also those that have no segment. That is kept in memory alone, as the proposal
wants it: whoever observes again gives everybody a fresh grace.
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

# Seconds. However many segments there are, this is nothing next to the looks at connections.
_RECHECK_EVERY = 10.0
# How long the first consumer of a subscription waits for answers of brokers.
_ASKING = 10.0


class Observer:
    """Looks at one topic; reads only, and keeps no connection to the metadata store.

    Args:
        admin: of the cluster.
        topic: the scalable one.
        layout: of it.
        registered: consumers with a session, by subscription.
        watching: what is known.
        known_at: when that was known, by the monotonic clock.
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
        self._missed = {
            (name, consumer): known_at - seconds
            for name, consumers in watching.gone.items()
            for consumer, seconds in consumers.items()
        }

    @property
    def deadline(self) -> float:
        """When the first grace of those ends that are missed, by the monotonic clock; never, where nobody is."""
        return min(self._missed.values(), default=math.inf) + self._grace

    def poll(self) -> Observation | None:
        """Look once; None where nothing has changed. Blocks; for one thread at a time."""
        if not self._is_known:
            return Observation(layout=self._layout)
        gone, drained = self._gone(), self._consumed()
        expired, unconsumed_again = self._expired(gone), self._recheck.poll(self._drained)
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

    def _gone(self) -> dict[str, set[str]]:
        """Consumers that are not connected; nobody counts as gone while the topic has no broker that answers."""
        try:
            stats = self._admin.topics.stats(layout_topic(self._topic))
        except RetryableError:
            return self._known_gone
        except AdminNotFound:
            self._unpublished = True
            return self._known_gone
        # It keeps what it had, so one that is empty was made by a client behind a deletion.
        self._unpublished = not stats.storage_size
        readers = {
            client.consumer_name for subscription in stats.subscriptions.values() for client in subscription.consumers
        }
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

        @cache
        def places(number: int) -> SubscriptionsByName | None:
            return subscriptions_on(self._admin, self._topic, self._layout.segments[number])

        return {name: drained_segments(self._layout, name, places, known) for name, known in self._drained.items()}


class DrainRecheck:
    """Looks again at segments that are known to be consumed, one of them from time to time.

    A broker that is killed forgets the newest acknowledgements, and an operator may set a cursor back.

    Args:
        admin: of the cluster.
        topic: the scalable one.
        layout: of it.
    """

    def __init__(self, admin: PulsarAdminReader, topic: TopicName, layout: SegmentLayout) -> None:
        self._admin = admin
        self._topic = topic
        self._layout = layout
        # An observer often ends before it has seen all.
        self._turn = random.randrange(max(1, len(layout.segments)))
        self._due = -math.inf

    def poll(self, known: Mapping[str, Collection[int]]) -> dict[str, set[int]]:
        """Segments of which something is left again, by subscription.

        Args:
            known: those that are known to be consumed, by subscription.
        """
        if (now := time.monotonic()) < self._due:
            return {}
        all_known = sorted({*self._layout.segments}.intersection(chain(*known.values())))
        if not all_known:
            return {}
        self._due, self._turn = now + _RECHECK_EVERY, self._turn + 1
        if not self._left(all_known[self._turn % len(all_known)], known):
            return {}
        # What took one may have taken more: what came first must be read first.
        found: dict[str, set[int]] = {}
        for number in all_known:
            for name in self._left(number, known):
                found.setdefault(name, set()).add(number)
        return found

    def _left(self, number: int, known: Mapping[str, Collection[int]]) -> list[str]:
        """Subscriptions that are known to have consumed a segment, and have something of it left."""
        places = subscriptions_on(self._admin, self._topic, self._layout.segments[number]) or {}
        return [one for one, ids in known.items() if number in ids and one in places and places[one].msg_backlog]


def subscriptions_on(admin: PulsarAdminReader, topic: TopicName, segment: SegmentInfo) -> SubscriptionsByName | None:
    """Subscriptions of a segment; none of one that is gone, and None where no broker answers for it."""
    with suppress(RetryableError):
        try:
            return admin.topics.stats(segment_topic(topic, segment.descriptor)).subscriptions
        except AdminNotFound:
            return {}
    return None


def drained_segments(
    layout: SegmentLayout,
    subscription: str,
    places: Callable[[int], SubscriptionsByName | None],
    known: Iterable[int] = (),
) -> set[int]:
    """Sealed segments of which a subscription has consumed all, as far as it may have begun with them.

    Args:
        layout: of the topic.
        subscription: its name.
        places: of subscriptions on a segment, by its id; see `subscriptions_on`.
        known: those that are known to be consumed.
    """
    found = {*known}
    # By their ids parents come before children.
    for number, segment in sorted(layout.segments.items()):
        ours = segment.sealed and number not in found
        if ours and is_assignable(segment, layout, found) and _is_consumed(places(number), subscription):
            found.add(number)
    return found


def _is_consumed(places: SubscriptionsByName | None, subscription: str) -> bool:
    """Whether nothing is left of a sealed segment; what was not acknowledged, or is delayed, is left."""
    if places is None:
        return False
    # What is left of a topic that is gone is left for nobody, and one that came behind the seal never had a place.
    place = places.get(subscription)
    return place is None or not place.msg_backlog


def drained_by_subscription(
    admin: PulsarAdminReader,
    topic: TopicName,
    layout: SegmentLayout,
    subscriptions: Iterable[str],
    each: ItemMapper,
    *,
    limit: float = _ASKING,
) -> dict[str, tuple[int, ...]]:
    """Sealed segments of which subscriptions have consumed all, by subscription; each segment is asked once.

    Args:
        admin: of the cluster.
        topic: the scalable one.
        layout: of it.
        subscriptions: their names.
        each: asks for some segments at once.
        limit: seconds after which no more are asked.
    """
    names, end = [*subscriptions], time.monotonic() + limit
    sealed = {number: one for number, one in layout.segments.items() if one.sealed} if names else {}

    def look(segment: SegmentInfo) -> SubscriptionsByName | None:
        # Brokers that do not answer hold no consumer up: what is not known is not consumed, and observers look again.
        return subscriptions_on(admin, topic, segment) if time.monotonic() < end else None

    places = dict(zip(sealed, each(sealed.values(), look), strict=True))
    return {name: tuple(sorted(drained_segments(layout, name, places.__getitem__))) for name in names}


def recover_sessions(
    task: ControllerTask, layout: SegmentLayout, subscriptions: Iterable[str]
) -> dict[str, StoredSessions]:
    """Sessions that the metadata store has, by subscription; without those that have none."""
    registered = {name: task.records.consumers(name) for name in subscriptions}
    names = [name for name, consumers in registered.items() if consumers]
    drained = drained_by_subscription(task.admin, task.name, layout, names, task.each)
    return {
        name: StoredSessions(consumers=tuple(sorted(registered[name])), drained=found)
        for name, found in drained.items()
    }


def _sorted(found: Mapping[str, set[ItemT]]) -> dict[str, tuple[ItemT, ...]]:
    return {name: tuple(sorted(items)) for name, items in found.items() if items}


def create_observer(
    task: ControllerTask, admin: PulsarAdminReader, watching: ObserverInput, known_at: float
) -> Observer:
    """What observes a topic; reads its records once, and needs the metadata store no more.

    Args:
        task: of the attempt.
        admin: of the cluster, which outlives the task.
        watching: what is known.
        known_at: when that was known, by the monotonic clock.

    Raises:
        StoreConflict: the topic is gone.
    """
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted")
    registered = {name: task.records.consumers(name) for name in watching.subscriptions}
    return Observer(admin, topic=task.name, layout=record, registered=registered, watching=watching, known_at=known_at)
