"""Producers and consumers of scalable topics that a test has opened itself, with the records of the delivery audit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pulsar_devstack.traffic.audit import DeliveryAudit, audit_delivery, out_of_order
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from pulsar_devstack.traffic.python_clients import SendRecorder, read
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord
from pulsar_scalable import CheckpointConsumer, Message, QueueConsumer, ScalableError, ScalableProducer, StreamConsumer
from pulsar_scalable.errors import AlreadyClosed, TimedOut

KEYS = 25
Consumer = QueueConsumer | StreamConsumer | CheckpointConsumer


class Arrivals:
    """Messages that the consumers of one subscription received.

    Args:
        name: of the subscription.
        kind: exclusive for one that is read in order, shared otherwise.

    Attributes:
        record: for the delivery audit.
    """

    def __init__(self, name: str = "", kind: Subscribed = Subscribed.EXCLUSIVE) -> None:
        self.record = ConsumerRecord(ConsumerPlan(name, "", Language.PYTHON_SCALABLE, kind, named=name))

    def take(self, message: Message, consumer: str = "") -> None:
        """Note a message, and which consumer got it."""
        arrival, sound = read(message, Language.PYTHON_SCALABLE)
        self.record.received.append(arrival._replace(consumer=consumer))
        self.record.corrupt += not sound

    @property
    def distinct(self) -> int:
        """How many messages came, repetitions not counted."""
        return len({(message.key, message.number) for message in [*self.record.received]})

    @property
    def segments(self) -> set[int]:
        """Ids of the segments that messages came from."""
        return {message.segment for message in [*self.record.received]}

    @property
    def repeated(self) -> int:
        """How many came again."""
        return len(self.record.received) - self.distinct

    @property
    def repetitions(self) -> dict[str, list[int]]:
        """Segments from which a message came that came more than once, by `key/number`."""
        numbers_by_key: dict[str, list[int]] = {}
        for message in self.record.received:
            numbers_by_key.setdefault(f"{message.key}/{message.number}", []).append(message.segment)
        return {name: segments for name, segments in numbers_by_key.items() if len(segments) > 1}

    def missing(self, stored: Mapping[str, Sequence[int]]) -> list[str]:
        """Return the messages that did not arrive, as `key: numbers`."""
        missing: list[str] = []
        came = {(message.key, message.number) for message in [*self.record.received]}
        for key, numbers in stored.items():
            if absent := [number for number in numbers if (key, number) not in came]:
                missing.append(f"{key}: {len(absent)} of {len(numbers)}, {absent[:5]}")
        return missing

    def reordered(self) -> list[str]:
        """Return the keys whose messages first arrived in another order than they were sent."""
        return self._reordered(lambda key, _: key)

    def reordered_in_segments(self) -> list[str]:
        """Return the same for each segment separately."""
        return self._reordered(lambda key, segment: f"{key} in {segment}")

    def _reordered(self, group: Callable[[str, int], str]) -> list[str]:
        numbers: dict[str, list[int]] = {}
        for message in self.record.received:
            numbers.setdefault(group(message.key, message.segment), []).append(message.number)
        return [name for name, came in numbers.items() if out_of_order(came)]


class Sending:
    """Sends until it is stopped, as fast as an interval allows.

    Args:
        producer: of the topic.
        interval: seconds between two messages.
        name: prefix of its keys, which distinguishes them from others.
    """

    def __init__(self, producer: ScalableProducer, interval: float, name: str = "k") -> None:
        plan = ProducerPlan(name, "", Language.PYTHON_SCALABLE, interval=interval, keys=KEYS)
        self._recorder = SendRecorder(producer, plan)
        self._began = time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._recorder.produce, args=(self._stop,), daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Messages so far."""
        return self._recorder.count

    def stop(self) -> None:
        """End it, and wait until all is stored."""
        self._stop.set()
        self._thread.join()
        self._recorder.producer.flush()

    def move(self, opens: Callable[[], ScalableProducer]) -> None:
        """Continue with another producer, which is opened once all of this one is stored, and it is closed."""
        self._recorder.move(opens)

    def stored(self) -> dict[str, list[int]]:
        """Return the messages that were reported as stored, by key."""
        stored: dict[str, list[int]] = {}
        for message in self.record().sent:
            if message.acknowledged is not None:
                stored.setdefault(message.key, []).append(message.number)
        return stored

    def faults(self) -> list[str]:
        """Return which messages were not reported as stored exactly once, once all was stopped."""
        (producer,) = delivery([self]).producers
        faults = [f"{producer.name}: {count} x {reason}" for reason, count in producer.errors.items()]
        if producer.acknowledged != producer.sent:
            faults.append(f"{producer.name}: only {producer.acknowledged} of {producer.sent} are stored")
        return faults + ([f"{producer.name}: {producer.misreported} reported again"] if producer.misreported else [])

    @property
    def began(self) -> float:
        """When the first message was sent, in seconds since the epoch."""
        return self._began

    def record(self) -> ProducerRecord:
        """Return the record of sent messages for the delivery audit."""
        return self._recorder.noted().record()


def delivery(sendings: Sequence[Sending], arrivals: Sequence[Arrivals] = ()) -> DeliveryAudit:
    """Return the delivery audit of some producers and of subscriptions to their topic."""
    began = min(sending.began for sending in sendings)
    consumers = [arrival.record for arrival in arrivals]
    return audit_delivery([sending.record() for sending in sendings], consumers, began=began, ended=time.time())


class Receiving:
    """Receives and acknowledges until it is stopped."""

    def __init__(self, consumer: Consumer, received: Arrivals | None = None) -> None:
        self.received = received or Arrivals()
        self._consumer = consumer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        name = "" if isinstance(self._consumer, CheckpointConsumer) else self._consumer.consumer_name
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(200)
            except TimedOut:
                continue
            except AlreadyClosed:
                # The test has failed before this thread ended.
                return
            self.received.take(message, name)
            if not isinstance(self._consumer, CheckpointConsumer):
                try:
                    self._consumer.acknowledge(message)
                except ScalableError:
                    # Assigned to another consumer, or without a connection: the message is redelivered.
                    continue
