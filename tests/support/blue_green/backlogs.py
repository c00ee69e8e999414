"""Messages that a subscription gets, and those that it should get: keys and bodies in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client
from pulsar_devstack.traffic.python_clients import body
from pulsar_devstack.traffic.runner import Traffic

_SILENT_MS = 3_000


def received(
    url: str, topic: str, subscription: str, *, acknowledge: bool = False, **more: Any
) -> Sequence[tuple[str, Any]]:
    """Return keys and bodies of all that a subscription gets.

    Args:
        url: of brokers.
        topic: full name.
        subscription: whose.
        acknowledge: each of them; otherwise they stay.
        more: further arguments of the library's client.
    """
    client = quiet_client(url, **more)
    consumer = client.subscribe(topic, subscription)
    messages: list[tuple[str, Any]] = []
    while True:
        try:
            message = consumer.receive(_SILENT_MS)
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
