"""Clients of a regular topic that can follow it, and those that cannot."""

from __future__ import annotations

from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from activities.scalable_topic.regular_topic import census
from clients.pulsar.admin.topics import Client, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName

_TOPIC = TopicName("acme", "shop", "orders")
_OLD = Client(address="/10.0.0.1:4711", client_version="Pulsar-CPP-v3.13.0", producer_name="p", consumer_name="c")
_NEW = _OLD.model_copy(update={"metadata": {"__pulsar.v5.managed": "true"}})


def test_clients_of_all_partitions_count() -> None:
    """Each connection to each partition counts, each client is named once, and V5 clients are counted separately."""
    reads = {
        "s": SubscriptionStats(consumers=(_OLD, _NEW)),
        "reader-1": SubscriptionStats.model_validate({"isDurable": False, "consumers": [_OLD]}),
    }
    parts = (
        TopicPartition(_TOPIC.of_partition(0), TopicStats(publishers=(_OLD, _NEW), subscriptions=reads)),
        TopicPartition(_TOPIC.of_partition(1), TopicStats(publishers=(_OLD,))),
        TopicPartition(_TOPIC.of_partition(2), None, "it cannot be loaded"),
    )
    clients = census(TopicInventory(_TOPIC, partitions=3, parts=parts))
    assert (clients.legacy, clients.managed) == (4, 2)
    assert clients.named == (
        f"producer p at 10.0.0.1:4711 (Pulsar-CPP-v3.13.0) on {_TOPIC}-partition-0 and 1 more partitions",
        f"consumer c of s at 10.0.0.1:4711 (Pulsar-CPP-v3.13.0) on {_TOPIC}-partition-0",
        f"reader c of reader-1 at 10.0.0.1:4711 (Pulsar-CPP-v3.13.0) on {_TOPIC}-partition-0",
    )


def test_clients_without_a_name_or_version() -> None:
    """A missing name or version is reported as unknown."""
    stats = TopicStats(publishers=(Client(),))
    clients = census(TopicInventory(_TOPIC, parts=(TopicPartition(_TOPIC, stats),)))
    assert clients.named == (f"producer  at unknown address (unknown version) on {_TOPIC}",)
