"""Records and places of subscriptions on a scalable topic, which brokers leave out of its migration (5.0.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from activities.lifecycle.parallel import Each, in_turn
from activities.pulsar.topic_inventory import SubscriptionInventory, TopicInventory
from activities.scalable_topic.regular_topic import ORDERED, durable_of, kind_of
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import SegmentName, TopicName, recordable
from clients.pulsar.records.scalable_topics import (
    Fence,
    cursors_on,
    keep_subscription,
    read_scalable,
    recorded_subscriptions,
)
from models.lifecycle.failures import some
from models.segments.segment import SegmentInfo


def to_record(store: CasReader, topic: TopicInventory, registered: Collection[str]) -> list[SubscriptionInventory]:
    """Return subscriptions that last, without those that their owner has deleted from the scalable topic.

    Among them are those that only segments have: one that was deleted, and is used again, has no place on the regular
    topic.

    Args:
        store: the brokers' metadata store.
        topic: the regular one.
        registered: subscriptions that an earlier attempt has recorded.
    """
    durable = durable_of(topic)
    recorded, places = recorded_subscriptions(store, topic.name), _with_places(store, topic.name)
    # One with a place on a segment is used again: its consumers have made it.
    gone = {*registered} - recorded.keys() - places
    used = {name for name in places if not recorded.get(name)} - {one.name for one in durable}
    found = [one for one in durable if one.name not in gone]
    # Stream consumers register themselves, and leave a record without a kind.
    found += [_on_segments(name, ordered=name in recorded) for name in sorted(used)]
    return [one for one in found if recordable(one.name)]


def record_all(
    admin: PulsarAdmin,
    store: CasStore,
    name: TopicName,
    subscriptions: Sequence[SubscriptionInventory],
    *,
    fence: Fence,
    each: Each,
) -> None:
    """See that subscriptions have their records, and places at the begin of segments; harmless when done twice.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        subscriptions: of the regular one.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.

    Raises:
        AdminError: brokers refuse one of them; all others have their records then.
    """
    refused: dict[str, AdminError] = {}

    def register(one: SubscriptionInventory) -> None:
        try:
            fence()
            admin.scalable_topics.register(name, one.name, kind_of(one))
            keep_subscription(store, name, one.name, kind_of(one), fence)
        except AdminError as error:
            refused[one.name] = error

    # The first makes a broker the topic's controller; others beside it would wait for the same, or be refused.
    in_turn(subscriptions[:1], register)
    each(subscriptions[1:], register)
    for subscription, error in refused.items():
        # One that brokers refuse for good keeps no other from its record, and people have a way out of it.
        raise error.saying(
            f"subscription {subscription!r} of {name} cannot be recorded: {error}. It is tried again; if brokers never "
            "take it, delete it from the regular topic (pulsar-admin topics unsubscribe)"
        )


def require_places(
    admin: PulsarAdmin,
    store: CasReader,
    name: TopicName,
    segment: SegmentInfo,
    *,
    subscriptions: Sequence[str],
    fence: Callable[[], object],
) -> None:
    """See that subscriptions have their places on a new segment, and make those that are missing.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        segment: one that takes messages.
        subscriptions: their names.
        fence: raises where somebody else is in charge; asked before each change.

    Raises:
        StoreConflict: they have none after a broker said that they have.
    """

    def missing() -> set[str]:
        return {*subscriptions} - {*cursors_on(store, SegmentName(name, segment.descriptor))}

    if missing():
        fence()
        admin.scalable_topics.create_segment(name, segment.descriptor, subscriptions)
        if left := missing():
            raise StoreConflict(
                f"{some(sorted(left))} have no cursor on segment {segment.descriptor} of {name} after a broker "
                "said that they have"
            )


def _on_segments(name: str, *, ordered: bool) -> SubscriptionInventory:
    """Return a subscription that the regular topic does not have."""
    return SubscriptionInventory(
        name=name,
        type=ORDERED[0] if ordered else "Shared",
        durable=True,
        replicated=False,
        properties={},
        backlog=0,
        delayed=0,
        consumers=(),
        parts=frozenset(),
    )


def _with_places(store: CasReader, name: TopicName) -> set[str]:
    """Subscriptions that have a place on a segment that takes messages."""
    layout = read_scalable(store, name).layout
    segments = layout.active if layout else []
    return {one for found in segments for one in cursors_on(store, SegmentName(name, found.descriptor))}
