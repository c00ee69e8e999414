"""Consumers of this client next to those of the Java client, and what all of them received together."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pulsar_scalable import ScalableClient, StreamConsumer
from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut


class Arrival(NamedTuple):
    """A message that a consumer received.

    Attributes:
        at: seconds since 1970.
        key: of the message.
        number: counts the messages of its key from 0.
        consumer: that received it.
    """

    at: float
    key: str
    number: int
    consumer: str


class Reading:
    """Receives in a thread of its own, and acknowledges each message after some work.

    Attributes:
        arrivals: what came.
        error: that ended it.
    """

    def __init__(
        self, client: ScalableClient, topic: str, subscription: str, name: str, *, stream: bool, work: float = 0.0
    ) -> None:
        self.name = name
        self.arrivals: list[Arrival] = []
        self.error: ScalableError | None = None
        subscribe = client.subscribe_stream if stream else client.subscribe
        self.consumer = subscribe(topic, subscription, consumer_name=name)
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"read {topic} as {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                try:
                    message = self.consumer.receive(200)
                except TimedOut:
                    continue
                number = int(message.properties()["number"])
                self.arrivals.append(Arrival(time.time(), message.partition_key(), number, self.name))
                time.sleep(self._work)
                if isinstance(self.consumer, StreamConsumer):
                    self.consumer.acknowledge_cumulative(message)
                else:
                    self.consumer.acknowledge(message)
        except AlreadyClosed:
            pass
        except ScalableError as error:
            self.error = error

    def close(self) -> None:
        """Leave the subscription."""
        self.consumer.close()
        self._thread.join(10)


class Sending:
    """Sends numbered messages to some keys in turn until it is stopped."""

    def __init__(self, client: ScalableClient, topic: str, name: str, keys: int, interval: float) -> None:
        self._producer = client.create_producer(topic, name, send_timeout_millis=120_000, max_pending_messages=100_000)
        self._keys = [f"{name}/{number}" for number in range(keys)]
        self._interval = interval
        self._stopped = threading.Event()
        self.failures: list[ScalableError] = []
        self.sent: dict[str, int] = dict.fromkeys(self._keys, 0)
        self._thread = threading.Thread(target=self._run, name=f"send to {topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for key in self._keys:
                number = self.sent[key]
                self.sent[key] += 1
                body = f"{key}:{number}".encode()
                properties = {"number": str(number)}
                self._producer.send_async(body, self._outcome, partition_key=key, properties=properties)
            self._stopped.wait(self._interval)

    def _outcome(self, error: ScalableError | None, _: object) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self) -> dict[str, int]:
        """Stop, wait until all is stored, and return the number of messages by key."""
        self._stopped.set()
        self._thread.join()
        self._producer.close() if self.failures else self._producer.flush()
        return self.sent


def first_arrivals(arrivals: Iterable[Arrival]) -> dict[str, list[int]]:
    """Return the numbers of each key in the order in which they came first, whatever the consumer."""
    numbers: dict[str, dict[int, None]] = defaultdict(dict)
    for arrival in sorted(arrivals):
        numbers[arrival.key].setdefault(arrival.number)
    return {key: list(found) for key, found in numbers.items()}


def in_order(counts: dict[str, int]) -> dict[str, list[int]]:
    """Return what `first_arrivals` is where nothing is lost and the order of each key is kept."""
    return {key: list(range(count)) for key, count in counts.items() if count}


def working(arrivals: Callable[[], Iterable[Arrival]], since: float) -> set[str]:
    """Return the names of the consumers that received anything since a time."""
    return {arrival.consumer for arrival in arrivals() if arrival.at > since}
