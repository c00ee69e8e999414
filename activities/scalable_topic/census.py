"""Who uses a regular topic, and whether they follow when it becomes scalable (PIP-475, "Client readiness")."""

from __future__ import annotations

from collections.abc import Iterator

from activities.lifecycle.topic_inventory import Part, TopicInventory
from clients.pulsar.admin.topics import Client
from models.lifecycle.failures import NAMED
from models.scalable_topic.results import ClientCensus

# What the V5 library says of itself; sums of partitioned topics leave it out (5.0.0-M1, seen).
_MANAGED = "__pulsar.v5.managed"


def census(topic: TopicInventory) -> ClientCensus:
    """Clients of a topic, partition by partition, as brokers count them before they migrate it."""
    legacy: list[str] = []
    managed = 0
    for part in topic.parts:
        for role, client in _clients(part):
            if (client.metadata or {}).get(_MANAGED) == "true":
                managed += 1
            else:
                legacy.append(_named(role, client, part))
    return ClientCensus(legacy=len(legacy), named=tuple(legacy[:NAMED]), managed=managed)


def _clients(part: Part) -> Iterator[tuple[str, Client]]:
    if part.stats is None:
        return
    for client in part.stats.publishers:
        yield f"producer {client.producer_name}", client
    for name, subscription in part.stats.subscriptions.items():
        role = "consumer" if subscription.is_durable else "reader"
        for client in subscription.consumers:
            yield f"{role} {client.consumer_name} of {name}", client


def _named(role: str, client: Client, part: Part) -> str:
    address = (client.address or "unknown address").removeprefix("/")
    return f"{role} at {address} ({client.client_version or 'unknown version'}) on {part.name}"
