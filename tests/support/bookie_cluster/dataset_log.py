"""One topic of a dataset: what was sent to it, what each subscription has acknowledged, and the proof that it is so."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pulsar_devstack.servers.admin import StackAdmin, topic_url
from tests.support.clients.java_messages import JavaMessages

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

KEEPER = "keeper"
"""A subscription that acknowledges nothing, so that brokers delete no message."""
_LIMIT_MS = 60_000
_SEND_LIMIT = 60.0


class Broker(NamedTuple):
    """Ways to talk to a cluster."""

    service: str
    client: Any
    admin: StackAdmin
    java: JavaMessages


@dataclass
class Log:
    """A topic without partitions.

    Attributes:
        name: any of its names.
        batch: how many messages producers put into one entry.
        sent: payloads in the order of the topic.
        acknowledged: subscription to the places in `sent` that it has acknowledged.
    """

    name: str
    batch: int = 1
    sent: list[bytes] = field(default_factory=list[bytes])
    acknowledged: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def subscribe(self, broker: Broker, *subscriptions: str) -> None:
        """Make subscriptions, and the topic with them, before anything is sent."""
        for subscription in (KEEPER, *subscriptions):
            self._consumer(broker, subscription).close()
            self.acknowledged[subscription] = set()

    def next_payloads(self, count: int) -> list[bytes]:
        """Return payloads that no message of the topic has yet, of different sizes."""
        begin = len(self.sent)
        return [b"%s/%d/" % (self.name.encode(), n) + b"." * (n * 37 % 701) for n in range(begin, begin + count)]

    def send(self, broker: Broker, count: int) -> None:
        """Send new messages; returns when the broker has all of them."""
        self.send_all(broker, [(None, payload) for payload in self.next_payloads(count)])

    def send_all(self, broker: Broker, messages: Sequence[tuple[str | None, bytes]]) -> None:
        """Send keys and payloads; returns when the broker has all of them."""
        # Batches are filled up, whatever time that takes.
        batches = {"batching_max_messages": self.batch, "batching_max_publish_delay_ms": int(_SEND_LIMIT * 1000)}
        producer = broker.client.create_producer(
            topic_url(self.name),
            batching_enabled=self.batch > 1,
            block_if_queue_full=True,
            **(batches if self.batch > 1 else {}),
        )
        results: list[Any] = []
        done = threading.Semaphore(0)

        def sent(result: Any, _message_id: Any) -> None:
            results.append(result)
            done.release()

        for key, payload in messages:
            producer.send_async(payload, sent, partition_key=key)
        producer.flush()
        for _ in messages:
            assert done.acquire(timeout=_SEND_LIMIT), f"{self.name}: the broker acknowledged {len(results)} messages"
        producer.close()
        assert set(results) <= {pulsar.Result.Ok}, f"{self.name}: {set(results)}"
        self.sent += [payload for _, payload in messages]

    def acknowledge(self, broker: Broker, subscription: str, places: Collection[int]) -> None:
        """Acknowledge single messages."""
        wanted = {self.sent[place] for place in places}
        consumer = self._consumer(broker, subscription)
        for message in self._receive(consumer, subscription, self.sent[max(places)]):
            if message.data() in wanted:
                consumer.acknowledge(message)
        consumer.close()
        self.acknowledged[subscription] |= set(places)

    def acknowledge_up_to(self, broker: Broker, subscription: str, place: int) -> None:
        """Acknowledge all messages up to this one, cumulatively."""
        consumer = self._consumer(broker, subscription)
        consumer.acknowledge_cumulative(self._receive(consumer, subscription, self.sent[place])[-1])
        consumer.close()
        self.acknowledged[subscription] |= set(range(place + 1))

    def verify(self, broker: Broker) -> None:
        """Compare all messages, and what each subscription would get now, with the account."""
        compare(f"{self.name}: its messages", read_all(broker, self.name), self.sent)
        for subscription, places in self.acknowledged.items():
            due = [payload for place, payload in enumerate(self.sent) if place not in places]
            if not due:
                backlog = broker.admin.subscription(self.name, subscription).msg_backlog
                assert backlog == 0, f"{self.name}: {subscription} gets {backlog} messages again"
                continue
            consumer = self._consumer(broker, subscription)
            # The last message is due, and messages come in order: what has not come by then does not come.
            payloads = [message.data() for message in self._receive(consumer, subscription, due[-1])]
            consumer.close()
            compare(f"{self.name}: what {subscription} gets", payloads, due)

    def _consumer(self, broker: Broker, subscription: str) -> Any:
        return broker.client.subscribe(
            topic_url(self.name), subscription, initial_position=pulsar.InitialPosition.Earliest
        )

    def _receive(self, consumer: Any, subscription: str, last: bytes) -> list[Any]:
        messages: list[Any] = []
        while not messages or messages[-1].data() != last:
            try:
                messages.append(consumer.receive(timeout_millis=_LIMIT_MS))
            except pulsar.Timeout:
                raise AssertionError(f"{self.name}: {subscription} got {len(messages)} messages and no more") from None
        return messages


def read_all(broker: Broker, name: str, *, compacted: bool = False) -> list[bytes]:
    """Return the payloads of all messages in a topic, from the earliest on."""
    earliest = pulsar.MessageId.earliest
    reader = broker.client.create_reader(topic_url(name), earliest, is_read_compacted=compacted)
    payloads: list[bytes] = []
    while reader.has_message_available():
        payloads.append(reader.read_next(timeout_millis=_LIMIT_MS).data())
    reader.close()
    return payloads


def compare(what: str, actual: list[bytes], expected: list[bytes]) -> None:
    """Raise AssertionError, with what is missing and what is too much, unless both are the same."""
    if actual == expected:
        return
    missing, extra = _without(expected, actual), _without(actual, expected)
    raise AssertionError(
        f"{what}: {len(actual)} came where {len(expected)} are due; missing {missing}, too many {extra}"
        + ("" if missing or extra else "; repeated or out of order")
    )


def _without(some: Iterable[bytes], others: Iterable[bytes]) -> list[str]:
    """Return the first of `some` that are not in `others`, truncated."""
    excluded = set(others)
    return [payload[:40].decode() for payload in some if payload not in excluded][:5]
