"""Numbered messages through real topics: one producer and one consumer for each, and the account of what came of them.

with Traffic("pulsar://127.0.0.1:6650", topics) as traffic:
    traffic.wait_for_more(10)
    ...
    traffic.verify()
"""

from __future__ import annotations

import importlib
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from clients.pulsar.admin.errors import AdminConflict, AdminError
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.admin import StackAdmin, topic_url
from pulsar_devstack.traffic.audit import late

ArgumentT = TypeVar("ArgumentT")

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

_KEYS = 5
_OPERATION_LIMIT = 30
_RECEIVE_LIMIT_MS = 500
# Longer than brokers are away on a slow machine: that time is measured, and no fault.
_SEND_LIMIT_MS = 120_000
_END_LIMIT = 130.0
_RETRY_PAUSE = 0.2
_LOOK_EVERY = 0.04
_CREATE_LIMIT = 10.0
_HEAD = struct.Struct(">IQ")
_BODY = struct.Struct(">IQI")
_PADDING = b"x" * 100


class TrafficFault(Exception):
    """Messages are missing, late behind later ones, corrupt or not sent; the message says of which topic."""


def quiet_client(service_url: str, log: Path | None = None, **more: Any) -> Any:
    """A client that reports errors only, on the console or to a file, and gives up an operation after half a minute.

    Args:
        service_url: of brokers.
        log: of errors.
        more: further arguments of the library's client.
    """
    level = pulsar.LoggerLevel.Error
    logger = pulsar.FileLogger(level, str(log)) if log else pulsar.ConsoleLogger(level)
    return pulsar.Client(service_url, operation_timeout_seconds=_OPERATION_LIMIT, logger=logger, **more)


def send_to(service_url: str, topics: Iterable[str], body: bytes = b"one") -> None:
    """Send one message to each topic; short names will do."""
    with closing(quiet_client(service_url)) as client:
        for topic in topics:
            client.create_producer(topic_url(topic)).send(body)


def read_from(service_url: str, topic: str, count: int, timeout_millis: int = 30_000) -> list[bytes]:
    """Return the bodies of the first messages of a topic.

    Raises:
        pulsar.Timeout: the topic has fewer.
    """
    with closing(quiet_client(service_url)) as client:
        reader = client.create_reader(topic_url(topic), pulsar.MessageId.earliest)
        return [bytes(reader.read_next(timeout_millis=timeout_millis).data()) for _ in range(count)]


class Lane:
    """One topic with its producer and its consumer.

    A message is sent again until the broker has acknowledged it, so it may arrive twice, but none may be missing and
    none may first arrive behind a later one of its key.

    Attributes:
        topic: its full name.
        acknowledged: by key, the numbers that the broker acknowledged: 0, 1, 2, ...
        received: by key, the numbers that arrived, in the order of arrival, repetitions included.
        corrupt: messages whose checksum does not fit.
        send_errors: what failed sends said.
        receive_errors: what the consumer met, other than silence.
        longest_wait: the longest time between two acknowledged messages, in seconds.
    """

    def __init__(self, client: Any, topic: str, interval: float) -> None:
        self.topic = topic
        self.acknowledged: dict[int, list[int]] = {key: [] for key in range(_KEYS)}
        self.received: dict[int, list[int]] = {key: [] for key in range(_KEYS)}
        self.corrupt = 0
        self.send_errors: list[str] = []
        self.receive_errors: list[str] = []
        self.longest_wait = 0.0
        self._interval = interval
        # The subscription stands before the first message.
        self._consumer = client.subscribe(topic, "traffic", initial_position=pulsar.InitialPosition.Earliest)
        self._producer = client.create_producer(topic, send_timeout_millis=_SEND_LIMIT_MS, batching_enabled=False)

    @property
    def sent(self) -> int:
        """How many messages were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    @staticmethod
    def message(count: int) -> tuple[str, bytes]:
        """Key and body of a message by its place among all of the topic."""
        key, number = count % _KEYS, count // _KEYS
        return str(key), _body(key, number)

    def produce(self, stop: threading.Event) -> None:
        """Send until asked to stop."""
        last = time.monotonic()
        while not stop.is_set():
            count = self.sent
            key, number = count % _KEYS, count // _KEYS
            name, body = self.message(count)
            try:
                self._producer.send(body, partition_key=name)
            except pulsar.PulsarException as error:
                self.send_errors.append(f"{key}/{number}: {error}")
                stop.wait(_RETRY_PAUSE)
                continue
            now = time.monotonic()
            self.longest_wait, last = max(self.longest_wait, now - last), now
            self.acknowledged[key].append(number)
            stop.wait(self._interval)

    def consume(self, stop: threading.Event) -> None:
        """Receive until asked to stop."""
        while not stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_LIMIT_MS)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                self.receive_errors.append(str(error))
                stop.wait(_RETRY_PAUSE)
                continue
            key, number, sound = _read(message.data())
            self.corrupt += not sound
            self.received.setdefault(key, []).append(number)
            # What is not acknowledged, because the broker is away, comes again.
            with suppress(pulsar.PulsarException):
                self._consumer.acknowledge(message)

    def missing(self) -> list[tuple[int, int]]:
        """Acknowledged messages that did not arrive: key and number."""
        return [
            (key, number)
            for key, numbers in self.acknowledged.items()
            for number in sorted(set(numbers) - set(self.received[key]))
        ]

    def disorder(self) -> list[tuple[int, int]]:
        """Messages that first arrived behind a later one of their key; a repetition is no disorder."""
        return [(key, number) for key, numbers in self.received.items() for number in late(numbers)]

    def faults(self) -> list[str]:
        """What is wrong once the traffic has ended; empty when every acknowledged message arrived, in order."""
        missing, disorder = self.missing(), self.disorder()
        found = [f"{len(missing)} of {self.sent} acknowledged messages are missing: {missing[:5]}"] if missing else []
        found += [f"{len(disorder)} messages arrived out of order: {disorder[:5]}"] if disorder else []
        found += [f"{self.corrupt} messages are corrupt"] if self.corrupt else []
        return [f"{self.topic}: {fault}" for fault in found]

    def complaints(self) -> list[str]:
        """What producer and consumer met, and whether anything was sent at all."""
        found = [f"sending {error}" for error in self.send_errors]
        found += [f"receiving: {error}" for error in self.receive_errors]
        found += [] if self.sent else ["nothing was sent"]
        return [f"{self.topic}: {complaint}" for complaint in found]


class Traffic:
    """Producers and consumers on some topics, from the entry of the context to its end.

    Args:
        service_url: `pulsar://host:port[,host:port...]`.
        topics: full or short names; they are created where that is allowed.
        interval: seconds between two messages of one topic.
        log: where the client library writes its errors; on the console by default.
        client: further arguments of the library's client, credentials and TLS for example.

    Attributes:
        lanes: one for each topic.
    """

    def __init__(
        self,
        service_url: str,
        topics: Iterable[str],
        *,
        interval: float = 0.02,
        log: Path | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        self.lanes: list[Lane] = []
        self._client = quiet_client(service_url, log, **(client or {}))
        self._topics = [topic_url(topic) for topic in topics]
        self._interval = interval
        self._silence, self._end = threading.Event(), threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(8) as pool:
                self.lanes = list(pool.map(self._open, self._topics))
        except BaseException:
            self._client.close()
            raise
        self._consumers = [started(lane.consume, self._end) for lane in self.lanes]
        self._producers = [started(lane.produce, self._silence) for lane in self.lanes]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._silence.set()
        self._end.set()
        for thread in (*self._producers, *self._consumers):
            thread.join(_END_LIMIT)
        self._client.close()

    def _open(self, topic: str) -> Lane:
        return Lane(self._client, topic, self._interval)

    @property
    def sent(self) -> int:
        """Messages that brokers have acknowledged so far, on all topics."""
        return sum(lane.sent for lane in self.lanes)

    def wait_for_more(self, messages: int, limit: float = 60) -> None:
        """Wait until each topic has this many acknowledged messages more than now.

        Raises:
            TrafficFault: it has not after `limit` seconds.
        """
        goals = [(lane, lane.sent + messages) for lane in self.lanes]
        if not await_that(lambda: all(lane.sent >= goal for lane, goal in goals), limit):
            late = {lane.topic: goal - lane.sent for lane, goal in goals if lane.sent < goal}
            raise TrafficFault(f"after {limit:g} s these still lack messages: {late}; {self._complaints()}")

    def stop(self, limit: float = 60) -> None:
        """End the sending, and wait, `limit` seconds at most, until everything that was acknowledged has arrived."""
        self._silence.set()
        for thread in self._producers:
            thread.join(_END_LIMIT)
        await_that(lambda: not any(lane.missing() for lane in self.lanes), limit)

    def faults(self) -> list[str]:
        """What is wrong with messages on any topic, once the traffic was stopped."""
        return [fault for lane in self.lanes for fault in lane.faults()]

    def verify(self, limit: float = 60) -> int:
        """Stop, and settle the accounts; returns the number of messages.

        Raises:
            TrafficFault: a message is missing, late behind a later one of its key or corrupt, nothing was sent, or
                somebody met an error.
        """
        self.stop(limit)
        if wrong := [*self.faults(), *self._complaints()]:
            raise TrafficFault("\n".join(wrong))
        return self.sent

    def _complaints(self) -> list[str]:
        return [complaint for lane in self.lanes for complaint in lane.complaints()]


class Churn(BackgroundThread):
    """Creates topics one after the other, from the entry of the context to its end; a refused one is tried again.

    Args:
        admin: where to create them.
        prefix: tenant/namespace/ and the begin of their names; the namespace has to be there.
        interval: seconds between two creations.

    Attributes:
        created: full names of the topics that the broker said it created.
        refused: how many attempts failed.
    """

    def __init__(self, admin: StackAdmin, prefix: str, interval: float = 0.25) -> None:
        super().__init__("churn", interval)
        self.created: list[str] = []
        self.refused = 0
        self.namespace = prefix.rpartition("/")[0]
        self._admin, self._prefix = admin, prefix

    def work(self) -> None:
        """Create topics."""
        for _ in self.ticks():
            name = f"{self._prefix}{len(self.created):04}"
            try:
                # Where it exists, an attempt whose answer was lost has created it.
                with suppress(AdminConflict):
                    self._admin.create_topic(name, _CREATE_LIMIT)
            except AdminError:
                self.refused += 1
            else:
                self.created.append(topic_url(name))


def started(work: Callable[[ArgumentT], None], argument: ArgumentT) -> threading.Thread:
    """A thread at work, which nobody has to wait for."""
    thread = threading.Thread(target=work, args=(argument,), daemon=True)
    thread.start()
    return thread


def await_that(holds: Callable[[], bool], limit: float) -> bool:
    """Wait until something holds, `limit` seconds at most; returns whether it does."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _body(key: int, number: int) -> bytes:
    return _BODY.pack(key, number, zlib.crc32(_HEAD.pack(key, number) + _PADDING)) + _PADDING


def _read(body: bytes) -> tuple[int, int, bool]:
    key, number, checksum = _BODY.unpack_from(body)
    return key, number, checksum == zlib.crc32(_HEAD.pack(key, number) + body[_BODY.size :])
