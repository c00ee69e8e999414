"""Who uses a regular topic, and whether they follow when it becomes scalable (PIP-475, "Client readiness")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from activities.pulsar.topic_inventory import Part, TopicInventory
from clients.pulsar.admin.topics import Client, TopicStats
from clients.pulsar.names import TopicName
from models.lifecycle.failures import NAMED
from models.scalable_topic.results import ClientCensus

# What the V5 library says of itself; sums of partitioned topics leave it out (5.0.1).
_MANAGED = "__pulsar.v5.managed"


def census(topic: TopicInventory) -> ClientCensus:
    """Clients of a topic, partition by partition, as brokers count them before they migrate it."""
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
    """Return producers on what got messages in chunks since it was loaded, in words; one may be amid a message."""
    return _producers(topic, lambda stats: stats.msg_chunk_published)


def _producers(topic: TopicInventory, on: Callable[[TopicStats], bool]) -> list[str]:
    return [
        f"{producer.producer_name} on {part.name}"
        for part in topic.parts
        if part.stats and on(part.stats)
        for producer in part.stats.publishers
    ]


def _clients(part: Part) -> Iterator[tuple[str, Client]]:
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
    """A client with where it is: it is connected to each partition, of which there may be hundreds."""
    more = f" and {len(parts) - 1} more partitions" if len(parts) > 1 else ""
    return f"{who} on {parts[0]}{more}"
