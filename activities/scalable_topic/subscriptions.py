"""Subscriptions of a scalable topic: which there are, their records, and their cursors on its segments.

Brokers know those that have a record, and no others: a segment that comes of a split or a merge gets no cursor of the
rest, and what these have not consumed counts as consumed. Their migration of a regular topic makes neither (5.0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from activities.lifecycle.parallel import ItemMapper, map_sequential
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.regular_topic import GRACE, kind_of
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import SegmentName, TopicName, recordable, stored_topic
from clients.pulsar.records.scalable_topics import (
    Fence,
    cursors_on,
    keep_subscription,
    read_scalable,
    recorded_subscriptions,
)
from models.lifecycle.failures import some
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo, SubscriptionKind


class Known(NamedTuple):
    """A durable subscription.

    Attributes:
        name: its name.
        kind: how it is consumed.
        recorded: whether brokers have a record of it.
    """

    name: str
    kind: SubscriptionKind
    recorded: bool


def subscriptions_by_segment(
    store: CasReader, name: TopicName, segments: Iterable[SegmentInfo]
) -> dict[SegmentInfo, set[str]]:
    """Return the subscriptions that have a cursor on each segment; a legacy one has those of its regular topic."""
    local = f"{name.namespace_path}/{name.topic}"
    return {segment: {*cursors_on(store, stored_topic(segment.topic(local)))} for segment in segments}


def known_subscriptions(
    task: ClusterTask[Any], store: CasReader, name: TopicName, layout: SegmentLayout
) -> list[Known]:
    """Return all that have a record, or a cursor on a segment of the layout.

    A name that only its consumers have left, without any cursor, is of consumers that keep their positions themselves:
    a record would have brokers keep messages for them for good. So would one of what keeps a regular topic in the grace
    window of its migration, which nobody consumes.
    """
    recorded = recorded_subscriptions(store, name)
    cursors = subscriptions_by_segment(store, name, layout.segments.values())
    legacy, native = (
        # mutant: scalable-topic/what-keeps-a-regular-topic-is-a-subscription
        {one for segment, names in cursors.items() if segment.legacy is which for one in names} - {GRACE}
        for which in (True, False)
    )
    kinds: dict[str, SubscriptionKind] = {one: kind for one, kind in recorded.items() if kind}
    if unsure := legacy - kinds.keys():
        # From the type that their consumers have chosen.
        topic = task.find_topic(name)
        regular = topic.subscriptions.values() if topic else ()
        kinds |= {one.name: kind_of(one) for one in regular if one.name in unsure}
    return [
        Known(key, kinds.get(key) or _guess(registered=key in recorded), recorded=bool(recorded.get(key)))
        for key in sorted(kinds.keys() | native | legacy)
    ]


def to_record(store: CasReader, topic: TopicInventory, registered: Collection[str]) -> dict[str, SubscriptionKind]:
    """Return subscriptions of a regular topic, without those that their owner has deleted from the scalable one.

    Among them are those that only segments have: one that was deleted, and is used again, has no cursor on the regular
    topic.

    Args:
        store: the brokers' metadata store.
        topic: the regular one.
        registered: subscriptions that an earlier attempt has recorded.
    """
    durable = {one.name: kind_of(one) for one in topic.durable}
    recorded, layout = recorded_subscriptions(store, topic.name), read_scalable(store, topic.name).layout
    cursors = subscriptions_by_segment(store, topic.name, layout.active if layout else ())
    # One with a cursor on a segment is used again: its consumers have made it.
    placed = {name for names in cursors.values() for name in names}
    gone = {*registered} - recorded.keys() - placed
    found = {name: kind for name, kind in durable.items() if name not in gone}
    used = {name for name in placed if not recorded.get(name)} - durable.keys()
    # mutant: scalable-topic/what-is-used-again-stays-deleted
    found |= {name: _guess(registered=name in recorded) for name in sorted(used)}
    return {name: kind for name, kind in found.items() if recordable(name)}


def record_all(
    admin: PulsarAdmin,
    store: CasStore,
    name: TopicName,
    subscriptions: Mapping[str, SubscriptionKind],
    *,
    fence: Fence,
    each: ItemMapper,
    cure: str = "",
) -> None:
    """See that subscriptions have their records, and cursors at the start of segments; harmless when done twice.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        subscriptions: their kinds, by name.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.
        cure: what can be done about one that brokers refuse, for the message.

    Raises:
        AdminError: brokers refuse one of them; all others have their records then.
    """
    refused: dict[str, AdminError] = {}

    def register(subscription: str) -> None:
        kind = subscriptions[subscription]
        try:
            fence()
            admin.scalable_topics.register(name, subscription, kind)
            keep_subscription(store, name, subscription, kind, fence)
        except AdminError as error:
            refused[subscription] = error

    # The first makes a broker the topic's controller; others next to it would wait for the same, or be refused.
    names = list(subscriptions)
    map_sequential(names[:1], register)
    each(names[1:], register)
    for subscription, error in refused.items():
        # One that brokers refuse for good keeps no other from its record, and people have a way out of it.
        raise error.saying(f"subscription {subscription!r} of {name} cannot be recorded: {error}{cure}")


def lacking(
    store: CasReader, name: TopicName, segments: Iterable[SegmentInfo], subscriptions: Collection[str]
) -> dict[str, str]:
    """Return what is wrong with segments that take messages, in words, by their descriptors; empty for nothing."""
    found: dict[str, str] = {}
    for segment, there in subscriptions_by_segment(store, name, segments).items():
        if store.get(SegmentName(name, segment.descriptor).managed_ledger_path) is None:
            found[segment.descriptor] = "is missing"
        elif missing := sorted({*subscriptions} - there):
            found[segment.descriptor] = f"has no cursor of {some(missing)}"
    return found


def give_cursors(
    admin: PulsarAdmin,
    store: CasReader,
    name: TopicName,
    segments: Iterable[SegmentInfo],
    subscriptions: Collection[str],
    *,
    fence: Callable[[], object],
    each: ItemMapper,
) -> int:
    """Make active segments that are missing, and cursors at their start; return how many segments lacked something.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        segments: those that take messages.
        subscriptions: their names.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.

    Raises:
        StoreConflict: something is missing after a broker said that it has made it.
    """
    names = list(subscriptions)

    def give(segment: SegmentInfo) -> bool:
        if not lacking(store, name, [segment], names):
            return False
        fence()
        admin.scalable_topics.create_segment(name, segment.descriptor, names)
        for descriptor, lack in lacking(store, name, [segment], names).items():
            raise StoreConflict(f"segment {descriptor} of {name} {lack}, after a broker said that it has made it")
        return True

    return sum(each(segments, give))


def _guess(*, registered: bool) -> SubscriptionKind:
    """Stream consumers register themselves, and leave a record without a kind; brokers never ask for it (5.0.1)."""
    return SubscriptionKind.STREAM if registered else SubscriptionKind.QUEUE
