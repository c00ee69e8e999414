"""What steps ask of a regular topic, before and after it has become scalable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from activities.lifecycle.topic_inventory import SubscriptionInventory, TopicInventory
from activities.scalable_topic.children import parts_of
from clients.cas.store import CasReader
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import TopicName, recordable
from models.lifecycle.failures import some

ORDERED = ("Exclusive", "Failover")
"""Types of subscriptions whose messages are consumed in their order."""


def unrecordable(topic: TopicInventory) -> list[str]:
    """Subscriptions that brokers cannot record, in words."""
    return [
        f"brokers cannot record {one.name!r} of {topic.name} under its name: its consumers get nothing new; "
        "move them to a subscription of another name, and delete it"
        for one in durable_of(topic)
        if not recordable(one.name)
    ]


def with_types(topic: TopicInventory, known: Mapping[str, str]) -> TopicInventory:
    """A topic with the types of subscriptions that were seen before: brokers forget them when they load it anew."""
    return replace(topic, known_types=known)


def ordered_types(topic: TopicInventory) -> dict[str, str]:
    """Types of ordered subscriptions, by name."""
    return {one.name: one.type for one in durable_of(topic) if one.type in ORDERED}


def durable_of(topic: TopicInventory) -> list[SubscriptionInventory]:
    """Subscriptions that last."""
    return [one for one in topic.subscriptions.values() if one.durable]


def is_terminated(admin: PulsarAdminReader, part: TopicName) -> bool:
    """Whether a regular topic, or a partition, takes no messages any more; one that is not there takes none."""
    try:
        return admin.topics.internal_stats(part).terminated
    except AdminNotFound:
        return True


def entries_after_end(store: CasReader, part: TopicName) -> str:
    """Return what a regular topic, or a partition, has after the position at which it was ended; empty for nothing.

    A broker that was closing a ledger while the topic was ended may have taken messages after that (#26680); consumers
    never get these.

    Args:
        store: the brokers' metadata store.
        part: the topic, or one of its partitions.
    """
    node = store.get(part.managed_ledger_path)
    info = decode_ledger_info(node.value) if node else None
    if info is None or not info.HasField("terminatedPosition"):
        return ""
    end = info.terminatedPosition
    after = [
        f"ledger {ledger.ledgerId} ({entries} entries)"
        for ledger in info.ledgerInfo
        if (entries := ledger.entries - (end.entryId + 1 if ledger.ledgerId == end.ledgerId else 0)) > 0
        and ledger.ledgerId >= end.ledgerId
    ]
    if not after:
        return ""
    return (
        f"{part} was ended at {end.ledgerId}:{end.entryId}, and has entries after that, which no consumer gets: "
        f"{some(after)}; read these ledgers with BookKeeper's own tools before the topic is deleted"
    )


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """The partitions of a topic in their order, or itself."""
    return parts_of(topic.name, topic.partitions)
