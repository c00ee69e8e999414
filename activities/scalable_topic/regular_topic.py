"""A regular topic: its partitions, its subscriptions and its clients (PIP-475, "Client readiness")."""

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
from models.lifecycle.failures import NAMED, summarize
from models.scalable_topic.results import ClientCensus
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind

# Property that the V5 client library sets; statistics of a partitioned topic omit it (5.0.1).
_MANAGED = "__pulsar.v5.managed"
_REPLACE = "replace clients that cannot follow by V5 clients"
_CONSUME = "let the existing clients consume the ordered subscriptions completely"
_COMMIT = "commit or abort these transactions"
_STOP_CHUNKS = "close producers of chunked messages until the topic is scalable"
_STOP_TRANSACTIONS = "close producers that use transactions until the topic is scalable"
_SHORTEST_DELAY = 1.0
_LONGEST_DELAY = 10.0
_POLLS_PER_AGE = 60

GRACE = "pulsar-migrate-grace"
"""The subscription of regular topics that keeps them until the grace window ends."""

ORDERED = ("Exclusive", "Failover")
"""Types of subscriptions whose messages are consumed in their order."""


def unrecordable(topic: TopicInventory) -> list[str]:
    """Return a description of each subscription that brokers cannot record."""
    return [
        f"brokers cannot record {subscription.name!r} of {topic.name} under its name: its consumers get no new "
        "messages; move them to a subscription of another name, and delete it"
        for subscription in topic.durable
        if not recordable(subscription.name)
    ]


def with_types(topic: TopicInventory, types: Mapping[str, str]) -> TopicInventory:
    """Return a topic with previously seen types of subscriptions, which brokers forget when they reload it."""
    return replace(topic, known_types=types)


def ordered_types(topic: TopicInventory) -> dict[str, str]:
    """Return types of ordered subscriptions, by name."""
    return {subscription.name: subscription.type for subscription in topic.durable if subscription.type in ORDERED}


def is_terminated(admin: PulsarAdminReader, partition: TopicName) -> bool:
    """Return whether a regular topic or partition is terminated; true if it does not exist."""
    try:
        return admin.topics.internal_stats(partition).terminated
    except AdminNotFound:
        return True


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """Return the partitions of a topic in their order, or itself."""
    return parts_of(topic.name, topic.partitions)


def planned(name: TopicName, partitions: int) -> SegmentLayout:
    """Return the layout right after the migration of a topic, without its times."""
    return SegmentLayout.migrated([str(partition) for partition in parts_of(name, partitions)], 0)


def parts_of(name: TopicName, partitions: int) -> list[TopicName]:
    """Return the partitions of a regular topic in their order, or itself."""
    return [name.of_partition(number) for number in range(partitions)] or [name]


def kind_of(subscription: SubscriptionInventory) -> SubscriptionKind:
    """Return the kind that a subscription gets: stream consumers read ordered ones, queue consumers all others."""
    return SubscriptionKind.STREAM if subscription.type in ORDERED else SubscriptionKind.QUEUE


def undrained_streams(topic: TopicInventory) -> dict[str, int]:
    """Return the backlogs of ordered subscriptions, by name."""
    return {
        subscription.name: subscription.backlog
        for subscription in topic.durable
        if subscription.backlog and kind_of(subscription) is SubscriptionKind.STREAM
    }


def waits_for(topic: TopicInventory, *, force: bool = False) -> str:
    """Return descriptions of what a scalable topic could not serve; empty if there is nothing.

    Args:
        topic: the current regular topic.
        force: leave out clients that cannot follow, and ordered subscriptions with a backlog.
    """
    return "; ".join(obstacles(topic, force=force).values())


def obstacles(topic: TopicInventory, *, force: bool) -> dict[str, str]:
    """Return the obstacles that `waits_for` describes, by what the operator must do."""
    obstacles: dict[str, str] = {}
    if transactions := open_transactions(topic):  # mutant: scalable-topic/force-ends-open-transactions
        obstacles[_COMMIT] = f"open transactions: {summarize(transactions)}"
    elif producers := transactional_producers(topic):  # mutant: scalable-topic/producers-may-start-transactions
        obstacles[_STOP_TRANSACTIONS] = (
            f"producers on topics with transactions, which may begin another: {summarize(producers)}"
        )
    if producers := chunking_producers(topic):  # mutant: scalable-topic/chunks-are-cut
        obstacles[_STOP_CHUNKS] = (
            f"producers of chunked messages, of which one could be cut in two: {summarize(producers)}"
        )
    if force:
        return obstacles
    if waiting := undrained_streams(topic):
        backlogs = summarize([f"{name} ({backlog} messages)" for name, backlog in waiting.items()])
        obstacles[_CONSUME] = f"ordered subscriptions with a backlog: {backlogs}"
    if (clients := census(topic)).legacy:
        obstacles[_REPLACE] = f"{clients.legacy} connections of clients that cannot follow: {', '.join(clients.named)}"
    return obstacles


def next_poll_delay(age: float) -> float:
    """Return the seconds until the next check of a topic; they grow with the time that was waited.

    Args:
        age: seconds that the step has waited.
    """
    return min(max(age / _POLLS_PER_AGE, _SHORTEST_DELAY), _LONGEST_DELAY)


def census(topic: TopicInventory) -> ClientCensus:
    """Return the clients of a topic, counted per partition as brokers do before they migrate it."""
    legacy: dict[str, list[TopicName]] = defaultdict(list)
    managed = 0
    for partition in topic.parts:
        for role, client in _clients(partition):
            if (client.metadata or {}).get(_MANAGED) == "true":
                managed += 1
            else:
                legacy[_named(role, client)].append(partition.name)
    named = tuple(_with_partitions(who, parts) for who, parts in islice(legacy.items(), NAMED))
    return ClientCensus(legacy=sum(map(len, legacy.values())), named=named, managed=managed)


def open_transactions(topic: TopicInventory) -> list[str]:
    """Return the partitions with open transactions, each with their number.

    The end of a transaction is an entry in the topic, and a terminated topic takes none: consumers would never get
    its messages, nor any after them (5.0.1).
    """
    return [
        f"{partition.name} ({partition.stats.ongoing_txn_count})"
        for partition in topic.parts
        if partition.stats and partition.stats.ongoing_txn_count
    ]


def transactional_producers(topic: TopicInventory) -> list[str]:
    """Return producers on partitions that had transactions since they were loaded; they may begin another."""
    return _producers(topic, lambda stats: stats.committed_txn_count + stats.aborted_txn_count > 0)


def chunking_producers(topic: TopicInventory) -> list[str]:
    """Return producers on partitions that got chunked messages since they were loaded; one may be incomplete."""
    return _producers(topic, lambda stats: stats.msg_chunk_published)


# Inside ---------------------------------------------------------------------------------------------------------------


def _producers(topic: TopicInventory, on: Callable[[TopicStats], bool]) -> list[str]:
    return [
        f"{producer.producer_name} on {partition.name}"
        for partition in topic.parts
        if partition.stats and on(partition.stats)
        for producer in partition.stats.publishers
    ]


def _clients(partition: TopicPartition) -> Iterator[tuple[str, Client]]:
    if partition.stats is None:
        return
    for client in partition.stats.publishers:
        yield f"producer {client.producer_name}", client
    for name, subscription in partition.stats.subscriptions.items():
        role = "consumer" if subscription.is_durable else "reader"
        for client in subscription.consumers:
            yield f"{role} {client.consumer_name} of {name}", client


def _named(role: str, client: Client) -> str:
    address = (client.address or "unknown address").removeprefix("/")
    return f"{role} at {address} ({client.client_version or 'unknown version'})"


def _with_partitions(who: str, parts: Sequence[TopicName]) -> str:
    """Return a client with its first partition and the number of the others, which may be hundreds."""
    more = f" and {len(parts) - 1} more partitions" if len(parts) > 1 else ""
    return f"{who} on {parts[0]}{more}"
