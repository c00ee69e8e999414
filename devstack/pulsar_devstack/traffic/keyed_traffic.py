"""Numbered messages of some keys through a scalable topic, and the account of what came of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pulsar_scalable import CheckpointConsumer, Message, QueueConsumer, ScalableError, ScalableProducer, StreamConsumer
from pulsar_scalable.errors import AlreadyClosed, TimedOut

KEYS = 25
Consumer = QueueConsumer | StreamConsumer | CheckpointConsumer


@dataclass
class Received:
    """What a consumer got.

    Attributes:
        numbers: by key, in the order of arrival, with the segments that they came from.
    """

    numbers: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])

    def take(self, message: Message) -> None:
        """Note a message."""
        got = self.numbers.setdefault(message.partition_key(), [])
        got.append((int(message.data()), message.segment_id()))

    @property
    def distinct(self) -> int:
        """How many messages came, repetitions not counted."""
        return sum(len({number for number, _ in got}) for got in self.numbers.values())

    @property
    def newest_segment(self) -> int:
        """The highest id of the segments that messages came from; -1 before the first."""
        return max((segment for got in self.numbers.values() for _, segment in got[-1:]), default=-1)

    @property
    def repeated(self) -> int:
        """How many came again."""
        return sum(map(len, self.numbers.values())) - self.distinct

    @property
    def repetitions(self) -> dict[str, list[int]]:
        """Segments from which a message came that came more than once, by `key/number`."""
        found: dict[str, list[int]] = {}
        for key, got in self.numbers.items():
            places: dict[int, list[int]] = {}
            for number, segment in got:
                places.setdefault(number, []).append(segment)
            found |= {f"{key}/{number}": segments for number, segments in places.items() if len(segments) > 1}
        return found

    def missing(self, stored: dict[str, list[int]]) -> list[str]:
        """Which of these did not come, as `key: numbers`."""
        found: list[str] = []
        for key, numbers in stored.items():
            came = {number for number, _ in self.numbers.get(key, [])}
            if left := [number for number in numbers if number not in came]:
                found.append(f"{key}: {len(left)} of {len(numbers)}, {left[:5]}")
        return found

    def disorder(self) -> list[str]:
        """Keys whose messages first arrived in another order than they were sent."""
        found: list[str] = []
        for key, got in self.numbers.items():
            first = list(dict.fromkeys(number for number, _ in got))
            if first != sorted(first):
                found.append(key)
        return found

    def disorder_in_segments(self) -> list[str]:
        """The same for each segment by itself."""
        found: list[str] = []
        for key, got in self.numbers.items():
            for segment in {segment for _, segment in got}:
                first = list(dict.fromkeys(number for number, one in got if one == segment))
                if first != sorted(first):
                    found.append(f"{key} in {segment}")
        return found


class Sending:
    """Sends until it is stopped, as fast as an interval allows.

    Args:
        producer: of the topic.
        interval: seconds between two messages.
        prefix: of its keys, which tells them from those of others.

    Attributes:
        sent: how many messages, by key.
        told: what callbacks got, by message.
    """

    def __init__(self, producer: ScalableProducer, interval: float, prefix: str = "k") -> None:
        self._producer = producer
        self._interval = interval
        self._prefix = prefix
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.sent: dict[str, list[int]] = {f"{prefix}{number}": [] for number in range(KEYS)}
        self.told: dict[int, list[ScalableError | None]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Messages so far."""
        return len(self.told)

    def stop(self) -> None:
        """End it, and wait until all is stored."""
        self._stop.set()
        self._thread.join()
        self._producer.flush()

    def move(self, opens: Callable[[], ScalableProducer]) -> None:
        """Go on with another producer, which is opened once all of this one is stored, and it is closed."""
        with self._lock:
            self._producer.flush()
            self._producer.close()
            self._producer = opens()

    def stored(self) -> dict[str, list[int]]:
        """Messages that were told to be stored, by key."""
        return {key: [one for one in numbers if None in self.told[one]] for key, numbers in self.sent.items()}

    def unwell(self) -> dict[int, list[ScalableError | None]]:
        """Messages that were not told to be stored exactly once."""
        return {number: told for number, told in self.told.items() if told != [None]}

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            number = self.count
            key = f"{self._prefix}{number % KEYS}"
            self.sent[key].append(number)
            self.told[number] = []
            with self._lock:
                self._producer.send_async(str(number).encode(), self._telling(number), partition_key=key)

    def _telling(self, number: int) -> Callable[[ScalableError | None, object], None]:
        def told(error: ScalableError | None, _: object) -> None:
            self.told[number].append(error)

        return told


class Receiving:
    """Receives and acknowledges until it is stopped."""

    def __init__(self, consumer: Consumer, received: Received | None = None) -> None:
        self.received = received or Received()
        self._consumer = consumer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(200)
            except TimedOut:
                continue
            except AlreadyClosed:
                # The test has failed meanwhile.
                return
            self.received.take(message)
            if not isinstance(self._consumer, CheckpointConsumer):
                try:
                    self._consumer.acknowledge(message)
                except ScalableError:
                    # Given to others, or without a connection: it comes again, here or elsewhere.
                    continue
