"""Messages that are numbers, so that a test can name each one that is lost."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client

pulsar: Any = importlib.import_module("pulsar")


def send_numbers(stack: Stack, topic: str, numbers: Iterable[int]) -> None:
    """Send one message for each number, and wait until each is acknowledged."""
    client = quiet_client(stack.broker_url)
    producer = client.create_producer(topic_url(topic), batching_enabled=False)
    for number in numbers:
        producer.send(str(number).encode())
    client.close()


def read_numbers(stack: Stack, topic: str) -> list[int]:
    """Return the numbers of all messages, in the order in which a new reader gets them."""
    client = quiet_client(stack.broker_url)
    reader = client.create_reader(topic_url(topic), pulsar.MessageId.earliest)
    numbers: list[int] = []
    while reader.has_message_available():
        numbers.append(int(reader.read_next(20_000).data()))
    client.close()
    return numbers
