"""Regular topics that tests make scalable."""

from __future__ import annotations

import importlib
from contextlib import closing
from typing import Any

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from deploy.devstack.stack import Stack
from deploy.devstack.traffic import quiet_client
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

MESSAGES = 20
"""Messages of a topic, none of which was consumed."""

QUEUE, STREAM = "queue", "stream"
"""Its subscriptions, whose kinds these are."""

_SETTLE_LIMIT = 60.0
_SILENCE_MS = 1_000


def fill(stack: Stack, admin: PulsarAdmin, name: TopicName, partitions: int) -> None:
    """A topic with a backlog of both subscriptions, and without clients."""
    if partitions:
        admin.topics.create_partitioned(name, partitions)
    else:
        admin.topics.create(name)
    with closing(quiet_client(stack.broker_url)) as client:
        for subscription, kind in ((QUEUE, pulsar.ConsumerType.Shared), (STREAM, pulsar.ConsumerType.Failover)):
            client.subscribe(str(name), subscription, kind).close()
        producer: Any = client.create_producer(str(name))
        for number in range(MESSAGES):
            producer.send(b"%d" % number, partition_key=str(number))
        producer.close()


def consume(consumer: Any, count: int) -> list[bytes]:
    """Receive and acknowledge messages; what they hold."""
    found: list[bytes] = []
    for _ in range(count):
        message = consumer.receive(30_000)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def consume_stream(stack: Stack, name: TopicName) -> None:
    """Consume all that the ordered subscription of a filled topic has, while the topic takes messages."""
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), STREAM, pulsar.ConsumerType.Failover)
        consume(consumer, MESSAGES)
        consumer.close()


def drain(stack: Stack, admin: PulsarAdmin, name: TopicName, subscription: str, kind: Any) -> list[bytes]:
    """Consume what a subscription has left in a regular topic; what it was.

    Acknowledgements that are on their way when the consumer of a terminated topic closes, or when a partition of it
    ends, get lost (the C++ library, 3.13; 3 of 20 times); so another consumer looks for what is left.
    """
    parts = [name.of_partition(number) for number in range(admin.topics.partitions(name))] or [name]
    found: dict[str, bytes] = {}

    def left() -> int:
        return sum(admin.topics.stats(part).subscriptions[subscription].msg_backlog for part in parts)

    def drained() -> bool:
        consumer = client.subscribe(str(name), subscription, kind)
        try:
            while message := _next(consumer):
                found[str(message.message_id())] = message.data()
                consumer.acknowledge(message)
            return not left()
        finally:
            consumer.close()

    with closing(quiet_client(stack.broker_url)) as client:
        wait_for(f"{subscription} to have nothing left", drained, _SETTLE_LIMIT)
    return list(found.values())


def _next(consumer: Any) -> Any:
    """The next message; None where none comes."""
    try:
        return consumer.receive(_SILENCE_MS)
    except pulsar.Timeout:
        return None
