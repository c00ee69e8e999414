"""What steps ask of a regular topic, before and after it has become scalable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from activities.pulsar.topic_inventory import SubscriptionInventory, TopicInventory
from activities.scalable_topic.children import parts_of
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName, recordable

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


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """The partitions of a topic in their order, or itself."""
    return parts_of(topic.name, topic.partitions)
