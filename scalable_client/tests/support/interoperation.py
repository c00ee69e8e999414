"""Consumers of this client next to those of the Java client, and the messages that all of them received."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from scalable_client.tests.support.topics import SUBSCRIPTION

from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from pulsar_scalable import CheckpointConsumer, QueueConsumer, ScalableClient, StreamConsumer
from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from tests.support.waiting import timeout_for, wait_for

# Brokers check after 2, 4, 8 … seconds whether a sealed segment is consumed: a consumer that stalls for half a minute
# is noticed a minute later (5.0.1).
_LIMIT = 180.0


class Kind(Enum):
    """Kinds of consumers."""

    STREAM = auto()
    QUEUE = auto()
    CHECKPOINT = auto()


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
    """Receives in a thread of its own, and acknowledges each message after some work, unless it keeps checkpoints.

    Attributes:
        arrivals: what came.
        error: that ended it.
    """

    def __init__(
        self, consumer: StreamConsumer | QueueConsumer | CheckpointConsumer, name: str, *, work: float = 0.0
    ) -> None:
        self.name = name
        self.arrivals: list[Arrival] = []
        self.error: ScalableError | None = None
        self.consumer = consumer
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"read as {name}", daemon=True)
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
                elif isinstance(self.consumer, QueueConsumer):
                    self.consumer.acknowledge(message)
        except AlreadyClosed:
            pass
        except ScalableError as error:
            self.error = error

    def close(self) -> None:
        """Leave the subscription."""
        self.consumer.close()
        self._thread.join(timeout_for(10))


class Sending:
    """Sends numbered messages to some keys in turn until it is stopped."""

    def __init__(self, client: ScalableClient, topic: str, name: str, keys: int, interval: float) -> None:
        self._producer = client.create_producer(
            topic, ProducerOptions(producer_name=name, send_timeout_millis=120_000, max_pending_messages=100_000)
        )
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
        self._producer.flush()
        return self.sent


def first_arrivals(arrivals: Iterable[Arrival]) -> dict[str, list[int]]:
    """Return the numbers of each key in the order in which they came first, whatever the consumer."""
    numbers: dict[str, dict[int, None]] = defaultdict(dict)
    for arrival in sorted(arrivals):
        numbers[arrival.key].setdefault(arrival.number)
    return {key: list(order) for key, order in numbers.items()}


def in_order(counts: dict[str, int]) -> dict[str, list[int]]:
    """Return what `first_arrivals` is where nothing is lost and the order of each key is kept."""
    return {key: list(range(count)) for key, count in counts.items() if count}


class Together:
    """Producers of both languages on one topic, and consumers of one kind.

    Stream and queue consumers share one subscription; each checkpoint consumer receives everything.
    """

    def __init__(self, java: ClientProgram, python: ScalableClient, topic: str, kind: Kind) -> None:
        self.topic = topic
        self._java, self._client, self._kind = java, python, kind
        self.readings: list[Reading] = []
        type_ = Subscribed.SHARED if kind is Kind.QUEUE else Subscribed.FAILOVER
        plan = ConsumerPlan(
            "java", self.topic, Language.JAVA_V5, type_, named=SUBSCRIPTION, checkpoint=kind is Kind.CHECKPOINT
        )
        java.subscribe([plan])
        self.join("python")
        java.open_producers([ProducerPlan("from-java", self.topic, Language.JAVA_V5, interval=0.004, keys=16)])
        self._sending = Sending(python, self.topic, "from-python", 16, 0.05)
        java.start()

    def join(self, name: str) -> Reading:
        """Start another consumer of this client."""
        match self._kind:
            case Kind.STREAM:
                consumer = self._client.subscribe_stream(self.topic, SUBSCRIPTION, ConsumerOptions(consumer_name=name))
            case Kind.QUEUE:
                consumer = self._client.subscribe(self.topic, SUBSCRIPTION, ConsumerOptions(consumer_name=name))
            case Kind.CHECKPOINT:
                consumer = self._client.create_checkpoint_consumer(self.topic)
        reading = Reading(consumer, name, work=0.001)
        self.readings.append(reading)
        return reading

    def arrivals(self) -> list[Arrival]:
        """Return what all consumers received."""
        (record,) = self._java.collect()[1]
        arrivals = [Arrival(message.at, message.key, message.number, "java") for message in record.received]
        return arrivals + [arrival for reading in self.readings for arrival in list(reading.arrivals)]

    def await_work(self, what: str, *names: str, limit: float = _LIMIT) -> None:
        """Wait until each of the consumers receives something from now on."""
        since = time.time()
        wait_for(f"work for {names} {what}", lambda: {*names} <= self._working(since), limit)

    def _working(self, since: float) -> set[str]:
        return {arrival.consumer for arrival in self.arrivals() if arrival.at > since}

    def _by_share(self) -> list[list[Arrival]]:
        """Return what came, of each group of consumers that together must receive everything."""
        arrivals = self.arrivals()
        if self._kind is not Kind.CHECKPOINT:
            return [arrivals]
        names = ["java", *(reading.name for reading in self.readings)]
        return [[arrival for arrival in arrivals if arrival.consumer == name] for name in names]

    def finish(self) -> None:
        """Stop sending, and check that nothing is lost, and that the order of each key is kept unless it is a queue.

        A segment that is sealed soon after a producer of the Java client has connected may leave its sends unanswered
        for good (5.0.1): nothing is expected of these messages.
        """
        expected = in_order(self._sending.stop())
        self._java.stop_sending(30)
        (record,) = self._java.collect()[0]
        assert (record.errors, self._sending.failures) == ([], [])
        unanswered = {(message.key, message.number) for message in record.sent if message.acknowledged is None}
        for message in record.sent:
            if message.acknowledged is not None:
                expected.setdefault(message.key, []).append(message.number)

        def came(arrivals: list[Arrival]) -> dict[str, list[int]]:
            return first_arrivals(arrival for arrival in arrivals if (arrival.key, arrival.number) not in unanswered)

        def is_all(arrivals: list[Arrival]) -> bool:
            return {key: sorted(numbers) for key, numbers in came(arrivals).items()} == expected

        try:
            wait_for("all messages", lambda: all(map(is_all, self._by_share())), _LIMIT)
        finally:
            for arrivals in self._by_share():
                by_consumer = Counter(arrival.consumer for arrival in arrivals)
                seen = came(arrivals)
                lacking = {key: sorted({*numbers} - {*seen.get(key, [])}) for key, numbers in expected.items()}
                shown = {key: f"{some[0]}-{some[-1]} ({len(some)})" for key, some in lacking.items() if some}
                total = sum(map(len, expected.values()))
                print(f"{total} messages, {len(unanswered)} unanswered, {by_consumer} arrivals; lacking: {shown}")
        if self._kind is not Kind.QUEUE:
            for arrivals in self._by_share():
                assert came(arrivals) == expected
        assert [reading.error for reading in self.readings] == [None] * len(self.readings)
