"""A regular topic as steps see it: its partitions, its subscriptions, and who uses it (PIP-475, "Client readiness")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from activities.pulsar.topic_inventory import SubscriptionInventory, TopicInventory, TopicPartition
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import Client, TopicStats
from clients.pulsar.names import TopicName, recordable
from models.lifecycle.failures import NAMED, some
from models.scalable_topic.results import ClientCensus
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind

# What the V5 library says of itself; sums of partitioned topics leave it out (5.0.1).
_MANAGED = "__pulsar.v5.managed"
_REPLACE = "end clients that cannot follow, and connect V5 clients instead"
_CONSUME = "have ordered subscriptions consumed to the end by the clients that they have"
_COMMIT = "commit or abort these transactions"
_WHOLE = "close producers that send messages in chunks until the topic is scalable"
_SILENCE = "close producers that use transactions until the topic is scalable"
_LOOK_EVERY = 1.0
_LONGEST_PAUSE = 10.0
_LOOKS_PER_AGE = 60

GRACE = "pulsar-migrate-grace"
"""The subscription of regular topics that keeps them until the grace window ends."""

ORDERED = ("Exclusive", "Failover")
"""Types of subscriptions whose messages are consumed in their order."""


def unrecordable(topic: TopicInventory) -> list[str]:
    """Return subscriptions that brokers cannot record, in words."""
    return [
        f"brokers cannot record {one.name!r} of {topic.name} under its name: its consumers get nothing new; "
        "move them to a subscription of another name, and delete it"
        for one in topic.durable
        if not recordable(one.name)
    ]


def with_types(topic: TopicInventory, known: Mapping[str, str]) -> TopicInventory:
    """A topic with the types of subscriptions that were seen before: brokers forget them when they load it again."""
    return replace(topic, known_types=known)


def ordered_types(topic: TopicInventory) -> dict[str, str]:
    """Return types of ordered subscriptions, by name."""
    return {one.name: one.type for one in topic.durable if one.type in ORDERED}


def is_terminated(admin: PulsarAdminReader, part: TopicName) -> bool:
    """Return whether a regular topic, or a partition, takes no messages any more; one that is not there takes none."""
    try:
        return admin.topics.internal_stats(part).terminated
    except AdminNotFound:
        return True


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """Return the partitions of a topic in their order, or itself."""
    return parts_of(topic.name, topic.partitions)


def planned(name: TopicName, partitions: int) -> SegmentLayout:
    """Return the layout right after the migration of a topic, without its times."""
    return SegmentLayout.migrated([str(part) for part in parts_of(name, partitions)], 0)


def parts_of(name: TopicName, partitions: int) -> list[TopicName]:
    """Return the partitions of a regular topic in their order, or itself."""
    return [name.of_partition(number) for number in range(partitions)] or [name]


def kind_of(subscription: SubscriptionInventory) -> SubscriptionKind:
    """Return what a subscription becomes: ordered ones are read by stream consumers, all others by queue consumers."""
    return SubscriptionKind.STREAM if subscription.type in ORDERED else SubscriptionKind.QUEUE


def undrained_streams(topic: TopicInventory) -> dict[str, int]:
    """Return the backlogs of ordered subscriptions, by name."""
    return {one.name: one.backlog for one in topic.durable if one.backlog and kind_of(one) is SubscriptionKind.STREAM}


def waits_for(topic: TopicInventory, *, force: bool = False) -> str:
    """Return what the topic still has that a scalable one cannot serve, in words; empty for nothing.

    Args:
        topic: as it is.
        force: leave out clients that cannot follow, and ordered subscriptions with a backlog.
    """
    return "; ".join(obstacles(topic, force=force).values())


def obstacles(topic: TopicInventory, *, force: bool) -> dict[str, str]:
    """Return the same as `waits_for`, by what the operator must do about it."""
    obstacles: dict[str, str] = {}
    if transactions := open_transactions(topic):  # mutant: scalable-topic/force-ends-open-transactions
        obstacles[_COMMIT] = f"open transactions: {some(transactions)}"
    elif producers := transactional_producers(topic):  # mutant: scalable-topic/producers-may-start-transactions
        obstacles[_SILENCE] = f"producers on topics with transactions, which may begin another: {some(producers)}"
    if producers := chunking_producers(topic):  # mutant: scalable-topic/chunks-are-cut
        obstacles[_WHOLE] = f"producers of messages in chunks, of which one would be cut in two: {some(producers)}"
    if force:
        return obstacles
    if waiting := undrained_streams(topic):
        backlogs = some([f"{name} ({backlog} messages)" for name, backlog in waiting.items()])
        obstacles[_CONSUME] = f"ordered subscriptions with a backlog: {backlogs}"
    if (found := census(topic)).legacy:
        obstacles[_REPLACE] = f"{found.legacy} connections of clients that cannot follow: {', '.join(found.named)}"
    return obstacles


def until_next_look(age: float) -> float:
    """Return seconds until a topic is looked at again: what has lasted for long need not be seen to end at once.

    Args:
        age: seconds that it has been waited for.
    """
    return min(max(age / _LOOKS_PER_AGE, _LOOK_EVERY), _LONGEST_PAUSE)


def census(topic: TopicInventory) -> ClientCensus:
    """Return clients of a topic, partition by partition, as brokers count them before they migrate it."""
    legacy: dict[str, list[TopicName]] = defaultdict(list)
    managed = 0
    for part in topic.parts:
        for role, client in _clients(part):
            if (client.metadata or {}).get(_MANAGED) == "true":
                managed += 1
            else:
                legacy[_named(role, client)].append(part.name)
    named = tuple(_placed(who, parts) for who, parts in islice(legacy.items(), NAMED))
    return ClientCensus(legacy=sum(map(len, legacy.values())), named=named, managed=managed)


def open_transactions(topic: TopicInventory) -> list[str]:
    """Return what has open transactions, in words.

    The end of a transaction is an entry in the topic, and a topic that was ended takes none: consumers would never get
    its messages, nor any after them (5.0.1).
    """
    return [
        f"{part.name} ({part.stats.ongoing_txn_count})"
        for part in topic.parts
        if part.stats and part.stats.ongoing_txn_count
    ]


def transactional_producers(topic: TopicInventory) -> list[str]:
    """Return producers on what has had transactions since it was loaded, in words; they may begin another."""
    return _producers(topic, lambda stats: stats.committed_txn_count + stats.aborted_txn_count > 0)


def chunking_producers(topic: TopicInventory) -> list[str]:
    """Return producers on what got messages in chunks since it was loaded, in words; one may be during a message."""
    return _producers(topic, lambda stats: stats.msg_chunk_published)


# Inside ---------------------------------------------------------------------------------------------------------------


def _producers(topic: TopicInventory, on: Callable[[TopicStats], bool]) -> list[str]:
    return [
        f"{producer.producer_name} on {part.name}"
        for part in topic.parts
        if part.stats and on(part.stats)
        for producer in part.stats.publishers
    ]


def _clients(part: TopicPartition) -> Iterator[tuple[str, Client]]:
    if part.stats is None:
        return
    for client in part.stats.publishers:
        yield f"producer {client.producer_name}", client
    for name, subscription in part.stats.subscriptions.items():
        role = "consumer" if subscription.is_durable else "reader"
        for client in subscription.consumers:
            yield f"{role} {client.consumer_name} of {name}", client


def _named(role: str, client: Client) -> str:
    address = (client.address or "unknown address").removeprefix("/")
    return f"{role} at {address} ({client.client_version or 'unknown version'})"


def _placed(who: str, parts: Sequence[TopicName]) -> str:
    """Return a client with where it is: it is connected to each partition, of which there may be hundreds."""
    more = f" and {len(parts) - 1} more partitions" if len(parts) > 1 else ""
    return f"{who} on {parts[0]}{more}"
