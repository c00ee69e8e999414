"""Subscriptions of a scalable topic, with their records and their cursors on its segments.

Brokers only know subscriptions with a record. Other ones get no cursor on the segments of a split or merge, and their
unconsumed messages count as consumed. The brokers' migration of a regular topic creates neither (5.0.1).
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
from models.lifecycle.failures import summarize
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo, SubscriptionKind


class KnownSubscription(NamedTuple):
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
    """Return the subscriptions with a cursor on each segment; a legacy segment has those of its regular topic."""
    local = f"{name.namespace_path}/{name.topic}"
    return {segment: {*cursors_on(store, stored_topic(segment.topic(local)))} for segment in segments}


def known_subscriptions(
    task: ClusterTask[Any], store: CasReader, name: TopicName, layout: SegmentLayout
) -> list[KnownSubscription]:
    """Return all subscriptions that have a record, or a cursor on a segment of the layout.

    A record without a kind and without any cursor belongs to consumers that store their positions themselves: with a
    complete record, brokers would keep messages for them indefinitely. The same holds for the subscription that keeps
    a regular topic during the grace window, which has no consumers.
    """
    recorded = recorded_subscriptions(store, name)
    cursors = subscriptions_by_segment(store, name, layout.segments.values())
    legacy, native = (
        # mutant: scalable-topic/what-keeps-a-regular-topic-is-a-subscription
        {key for segment, names in cursors.items() if segment.legacy is which for key in names} - {GRACE}
        for which in (True, False)
    )
    kinds: dict[str, SubscriptionKind] = {key: kind for key, kind in recorded.items() if kind}
    if unsure := legacy - kinds.keys():
        # Their kind follows from the type that their consumers have chosen.
        topic = task.find_topic(name)
        regular = topic.subscriptions.values() if topic else ()
        kinds |= {subscription.name: kind_of(subscription) for subscription in regular if subscription.name in unsure}
    return [
        KnownSubscription(key, kinds.get(key) or _guess(registered=key in recorded), recorded=bool(recorded.get(key)))
        for key in sorted(kinds.keys() | native | legacy)
    ]


def to_record(store: CasReader, topic: TopicInventory, registered: Collection[str]) -> dict[str, SubscriptionKind]:
    """Return the subscriptions of a regular topic, except those that their owner deleted from the scalable one.

    Subscriptions that only segments have are included: a subscription that was deleted and is used again has no cursor
    on the regular topic.

    Args:
        store: the brokers' metadata store.
        topic: the regular one.
        registered: subscriptions that an earlier attempt has recorded.
    """
    durable = {subscription.name: kind_of(subscription) for subscription in topic.durable}
    recorded, layout = recorded_subscriptions(store, topic.name), read_scalable(store, topic.name).layout
    cursors = subscriptions_by_segment(store, topic.name, layout.active if layout else ())
    # A subscription with a cursor on a segment is used again: its consumers have created it.
    placed = {name for names in cursors.values() for name in names}
    gone = {*registered} - recorded.keys() - placed
    kinds = {name: kind for name, kind in durable.items() if name not in gone}
    used = {name for name in placed if not recorded.get(name)} - durable.keys()
    # mutant: scalable-topic/what-is-used-again-stays-deleted
    kinds |= {name: _guess(registered=name in recorded) for name in sorted(used)}
    return {name: kind for name, kind in kinds.items() if recordable(name)}


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
    """Record subscriptions, and create their cursors at the start of segments; idempotent.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        subscriptions: their kinds, by name.
        fence: raises if another attempt is in charge; called before each change.
        each: calls a function for many items.
        cure: what can be done about a subscription that brokers refuse, for the message.

    Raises:
        AdminError: brokers refuse a subscription; all others have their records then.
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

    # The first request makes a broker the topic's controller; concurrent ones would wait for that, or be refused.
    names = list(subscriptions)
    map_sequential(names[:1], register)
    each(names[1:], register)
    for subscription, error in refused.items():
        # A subscription that brokers refuse permanently does not stop the others, and its message names the cure.
        raise error.saying(f"subscription {subscription!r} of {name} cannot be recorded: {error}{cure}")


def lacking(
    store: CasReader, name: TopicName, segments: Iterable[SegmentInfo], subscriptions: Collection[str]
) -> dict[str, str]:
    """Return what each segment lacks, by descriptor; empty if all segments are complete."""
    problems: dict[str, str] = {}
    for segment, there in subscriptions_by_segment(store, name, segments).items():
        if store.get(SegmentName(name, segment.descriptor).managed_ledger_path) is None:
            problems[segment.descriptor] = "is missing"
        elif missing := sorted({*subscriptions} - there):
            problems[segment.descriptor] = f"has no cursor of {summarize(missing)}"
    return problems


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
    """Create missing active segments and cursors at their start; return how many segments lacked something.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the scalable topic.
        segments: the active ones.
        subscriptions: their names.
        fence: raises if another attempt is in charge; called before each change.
        each: calls a function for many items.

    Raises:
        StoreConflict: something is missing after a broker reported that it was created.
    """
    names = list(subscriptions)

    def give(segment: SegmentInfo) -> bool:
        if not lacking(store, name, [segment], names):
            return False
        fence()
        admin.scalable_topics.create_segment(name, segment.descriptor, names)
        for descriptor, lack in lacking(store, name, [segment], names).items():
            raise StoreConflict(f"segment {descriptor} of {name} {lack}, after a broker reported that it was created")
        return True

    return sum(each(segments, give))


def _guess(*, registered: bool) -> SubscriptionKind:
    """Return the probable kind: only stream consumers leave a record without a kind (5.0.1)."""
    return SubscriptionKind.STREAM if registered else SubscriptionKind.QUEUE
