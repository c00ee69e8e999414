"""Messages that a subscription gets, and those that it should get: keys and bodies in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client
from pulsar_devstack.traffic.python_clients import body
from pulsar_devstack.traffic.runner import Traffic

# A broker that is busy may need longer for what it has than a topic is silent that has no more.
_DUE_MS, _SILENT_MS = 30_000, 3_000


def received(
    url: str, topic: str, subscription: str, *, least: int, acknowledge: bool = False, **more: Any
) -> Sequence[tuple[str, Any]]:
    """Return keys and bodies of all that a subscription gets.

    Args:
        url: of brokers.
        topic: full name.
        subscription: whose.
        least: how many are due; after them it counts as the end if the topic is silent for some seconds.
        acknowledge: each of them; otherwise they stay.
        more: further arguments of the library's client.
    """
    client = quiet_client(url, **more)
    consumer = client.subscribe(topic, subscription)
    messages: list[tuple[str, Any]] = []
    while True:
        try:
            message = consumer.receive(_DUE_MS if len(messages) < least else _SILENT_MS)
        except pulsar.Timeout:
            break
        if acknowledge:
            consumer.acknowledge(message)
        messages.append((message.partition_key(), message.data()))
    client.close()
    return messages


def sent(traffic: Traffic, topic: object) -> Sequence[tuple[str, Any]]:
    """Return keys and bodies of all messages of a topic in the order of sending; no send failed."""
    (record,) = (record for record in traffic.records()[0] if record.plan.topic == str(topic))
    assert record.errors == []
    assert all(message.acknowledged for message in record.sent)
    return [(message.key, body(message.key, message.number)) for message in record.sent]


def require_sent(backlog: Sequence[tuple[str, Any]], expected: Sequence[tuple[str, Any]], traffic: Traffic) -> None:
    """Check that a backlog has the expected messages in their order, and none again that was not sent again.

    A client sends again what was not acknowledged when its connection ended, and the message may be stored twice. Then
    the consumer of the traffic itself gets it from two places.

    Args:
        backlog: what a subscription got.
        expected: what it should get.
        traffic: whose messages they are.
    """
    assert list(dict.fromkeys(backlog)) == expected
    places: dict[tuple[str, Any], set[str]] = defaultdict(set)
    for record in traffic.records()[1]:
        for message in record.received:
            places[message.key, body(message.key, message.number)].add(message.place)
    again = {message for message, count in Counter(backlog).items() if count > 1}
    assert again <= {message for message, stored in places.items() if len(stored) > 1}
