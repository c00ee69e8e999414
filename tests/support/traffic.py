"""Producers and consumers on a cluster, and the account of what was acknowledged and what arrived."""

from __future__ import annotations

import importlib
import struct
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

KEYS = 5
_SUBSCRIPTION = "account"
_BODY = struct.Struct(">IQI")
_PADDING = b"x" * 100


def quiet_client(service_url: str) -> Any:
    """A client that reports errors only on the console, and gives up an operation after half a minute."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(service_url, operation_timeout_seconds=30, logger=logger)


def topic_url(name: str) -> str:
    """The full name of a topic of the namespace that tests use."""
    return f"persistent://public/default/{name}"


@dataclass
class Account:
    """What happened on one topic.

    Attributes:
        acknowledged: by key, the sequence numbers that the broker acknowledged, in the order of sending.
        received: by key, the sequence numbers that arrived, in the order of arrival, repetitions included.
        errors: what producer and consumer met, in words.
        corrupt: messages whose checksum does not fit.
    """

    acknowledged: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    received: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    errors: list[str] = field(default_factory=list[str])
    corrupt: int = 0

    @property
    def sent(self) -> int:
        """How many messages were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def missing(self) -> list[tuple[int, int]]:
        """Acknowledged messages that did not arrive: key and sequence number."""
        return [
            (key, number)
            for key, numbers in list(self.acknowledged.items())
            for number in sorted(set(numbers) - set(self.received.get(key, [])))
        ]

    def disorder(self) -> list[tuple[int, int]]:
        """Messages that first arrived behind a later one of their key; a repetition is no disorder."""
        found: list[tuple[int, int]] = []
        for key, numbers in self.received.items():
            seen: set[int] = set()
            highest = -1
            for number in numbers:
                if number not in seen and number < highest:
                    found.append((key, number))
                seen.add(number)
                highest = max(highest, number)
        return found


class Traffic:
    """One producer and one consumer for each topic, in threads; as a context they run, and end with it.

    Args:
        service_url: `pulsar://host:port[,…]`.
        topics: short names.
        interval: seconds between two messages of a topic.
    """

    def __init__(self, service_url: str, topics: Iterable[str], interval: float = 0.02) -> None:
        self.accounts = {topic: Account() for topic in topics}
        self._interval = interval
        self._client = quiet_client(service_url)
        self._silence = threading.Event()
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        try:
            for topic, account in self.accounts.items():
                # The subscription stands before the first message.
                consumer = self._client.subscribe(
                    topic_url(topic), _SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest
                )
                producer = self._client.create_producer(topic_url(topic), batching_enabled=False)
                self._spawn(self._receive, consumer, account)
                self._spawn(self._send, producer, account)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sent(self) -> int:
        """Messages acknowledged so far, on all topics."""
        return sum(account.sent for account in self.accounts.values())

    def wait_for_more(self, messages: int, limit: float = 60) -> None:
        """Wait until each topic has this many acknowledged messages more than now."""
        goals = {topic: account.sent + messages for topic, account in self.accounts.items()}
        wait_for(
            f"{messages} more messages on each topic",
            lambda: all(self.accounts[topic].sent >= goal for topic, goal in goals.items()),
            limit,
        )

    def verify(self, limit: float = 60) -> int:
        """End the sending, wait for what is under way, and settle the accounts; returns the number of messages.

        Raises:
            AssertionError: a message is missing, late behind a later one of its key or corrupt, or somebody met an
                error.
        """
        self._silence.set()
        for thread in self._threads[1::2]:
            thread.join(limit)
        accounts = self.accounts.values()
        wait_for("every acknowledged message", lambda: not any(account.missing() for account in accounts), limit)
        for topic, account in self.accounts.items():
            assert account.sent > 0, topic
            assert (account.errors, account.corrupt, account.disorder()) == ([], 0, []), topic
        return self.sent

    def close(self) -> None:
        """End all threads and the client."""
        self._silence.set()
        self._end.set()
        for thread in self._threads:
            thread.join(40)
        self._client.close()

    def _spawn(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name=f"traffic-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self, producer: Any, account: Account) -> None:
        count = 0
        while not self._silence.wait(self._interval):
            key, number = count % KEYS, count // KEYS
            try:
                producer.send(_body(key, number), partition_key=str(key))
            except pulsar.PulsarException as error:
                account.errors.append(f"sending {key}/{number}: {error}")
            else:
                account.acknowledged.setdefault(key, []).append(number)
            count += 1

    def _receive(self, consumer: Any, account: Account) -> None:
        while not self._end.is_set():
            try:
                message = consumer.receive(timeout_millis=500)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                account.errors.append(f"receiving: {error}")
                return
            key, number, sound = _read(message.data())
            account.corrupt += not sound
            account.received.setdefault(key, []).append(number)
            consumer.acknowledge(message)


def _body(key: int, number: int) -> bytes:
    head = struct.pack(">IQ", key, number)
    return _BODY.pack(key, number, zlib.crc32(head + _PADDING)) + _PADDING


def _read(body: bytes) -> tuple[int, int, bool]:
    key, number, checksum = _BODY.unpack_from(body)
    return key, number, checksum == zlib.crc32(struct.pack(">IQ", key, number) + body[_BODY.size :])
