"""Numbered messages through real topics: one producer and one consumer for each, and what came of them.

with Traffic("pulsar://127.0.0.1:6650", topics) as traffic:
    ...
for lane in traffic.lanes:
    assert not lane.faults()
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

_OPERATION_LIMIT = 30
_SEND_LIMIT_MS = 30_000
_RECEIVE_LIMIT_MS = 200
_DRAIN_LIMIT = 30.0
_RETRY_PAUSE = 0.2
_ADMIN_LIMIT = 60.0
_CREATE_LIMIT = 10.0


class Lane:
    """One topic with its producer and its consumer.

    A number is sent again until the broker has acknowledged it, so a number may arrive twice, but none may be missing
    and none may arrive first out of order.

    Attributes:
        topic: its full name.
        acknowledged: how many messages the broker acknowledged; their numbers are 0, 1, 2, ...
        received: numbers in the order in which the consumer got them.
        send_errors: what failed sends said.
        longest_wait: the longest time between two acknowledged messages, in seconds.
    """

    def __init__(self, client: Any, topic: str, interval: float) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.received: list[int] = []
        self.send_errors: list[str] = []
        self.longest_wait = 0.0
        self._interval = interval
        self._consumer = client.subscribe(
            topic,
            "traffic",
            consumer_type=pulsar.ConsumerType.Exclusive,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        self._producer = client.create_producer(topic, send_timeout_millis=_SEND_LIMIT_MS, batching_enabled=False)

    def produce(self, stop: threading.Event) -> None:
        """Send numbers until asked to stop."""
        last = time.monotonic()
        while not stop.is_set():
            try:
                self._producer.send(b"%d" % self.acknowledged)
            except pulsar.PulsarException as error:
                self.send_errors.append(str(error))
                stop.wait(_RETRY_PAUSE)
                continue
            now = time.monotonic()
            self.longest_wait, last = max(self.longest_wait, now - last), now
            self.acknowledged += 1
            stop.wait(self._interval)

    def consume(self, stop: threading.Event) -> None:
        """Receive until everything acknowledged was received after the stop, or for half a minute after it."""
        stopped_at: float | None = None
        while True:
            if stop.is_set():
                stopped_at = stopped_at or time.monotonic()
                if self._drained() or time.monotonic() - stopped_at > _DRAIN_LIMIT:
                    return
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_LIMIT_MS)
                self.received.append(int(message.data()))
                self._consumer.acknowledge(message)
            except pulsar.PulsarException:
                # Nothing came in time, or the broker is away; what was not acknowledged comes again.
                stop.wait(0.01)

    def faults(self) -> list[str]:
        """What is wrong once the traffic has ended; empty when every acknowledged message arrived, in order."""
        first: list[int] = list(dict.fromkeys(self.received))
        found: list[str] = []
        if missing := set(range(self.acknowledged)) - set(first):
            found.append(f"{self.topic}: {len(missing)} of {self.acknowledged} acknowledged messages are missing")
        if first != sorted(first):
            found.append(f"{self.topic}: messages arrived out of order")
        return found

    def _drained(self) -> bool:
        return bool(self.received) and self.received[-1] >= self.acknowledged - 1


class Traffic:
    """Producers and consumers on some topics, from the entry of the context to its end.

    Args:
        service_url: `pulsar://host:port[,host:port...]`.
        topics: full names; they are created where that is allowed.
        interval: seconds between two messages of one topic.
        log: where the client library writes its errors; nowhere by default.
    """

    def __init__(
        self, service_url: str, topics: Iterable[str], *, interval: float = 0.05, log: Path | None = None
    ) -> None:
        level = pulsar.LoggerLevel.Error
        logger = pulsar.FileLogger(level, str(log)) if log else pulsar.ConsoleLogger(level)
        self._client = pulsar.Client(service_url, operation_timeout_seconds=_OPERATION_LIMIT, logger=logger)
        self._topics = list(topics)
        self._interval = interval
        self._halt, self._ended = threading.Event(), threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []
        self.lanes: list[Lane] = []

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(8) as pool:
                self.lanes = list(pool.map(self._open, self._topics))
        except BaseException:
            self._client.close()
            raise
        self._producers = [threading.Thread(target=lane.produce, args=(self._halt,)) for lane in self.lanes]
        self._consumers = [threading.Thread(target=lane.consume, args=(self._ended,)) for lane in self.lanes]
        for thread in (*self._consumers, *self._producers):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._halt.set()
        for thread in self._producers:
            thread.join()
        self._ended.set()
        for thread in self._consumers:
            thread.join()
        self._client.close()

    def _open(self, topic: str) -> Lane:
        return Lane(self._client, topic, self._interval)

    @property
    def acknowledged(self) -> int:
        """Messages that brokers have acknowledged, on all topics."""
        return sum(lane.acknowledged for lane in self.lanes)

    def faults(self) -> list[str]:
        """What is wrong on any topic, once the traffic has ended."""
        return [fault for lane in self.lanes for fault in lane.faults()]


class Admin:
    """A broker's admin interface, as far as traffic needs it.

    Args:
        url: `http://host:port` of a broker.
        cluster: the Pulsar cluster that new tenants may use.
    """

    def __init__(self, url: str, cluster: str) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/admin/v2", timeout=_ADMIN_LIMIT, trust_env=False, follow_redirects=True
        )
        self._cluster = cluster

    def create(self, names: Iterable[str]) -> list[str]:
        """Create topics, given as tenant/namespace/topic, with their tenants and namespaces; returns full names."""
        listed = list(names)
        for tenant in sorted({name.split("/")[0] for name in listed}):
            self._put(f"/tenants/{tenant}", {"allowedClusters": [self._cluster]})
        for namespace in sorted({name.rpartition("/")[0] for name in listed}):
            self._put(f"/namespaces/{namespace}", None)
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(self.create_topic, listed))

    def create_topic(self, name: str, limit: float = _ADMIN_LIMIT) -> str:
        """Create tenant/namespace/topic in a namespace that exists; returns the full name."""
        self._put(f"/persistent/{name}", None, limit)
        return f"persistent://{name}"

    def topics(self, namespace: str) -> set[str]:
        """Full names of the topics of tenant/namespace."""
        answer = self._http.get(f"/persistent/{namespace}")
        answer.raise_for_status()
        return set(answer.json())

    def ledgers(self, topics: Iterable[str]) -> Counter[int]:
        """Every ledger id that topics and their cursors use, and how often."""
        with ThreadPoolExecutor(8) as pool:
            return Counter(ledger for found in pool.map(self._ledgers_of, topics) for ledger in found)

    def _ledgers_of(self, topic: str) -> list[int]:
        answer = self._http.get(f"/{topic.replace('://', '/')}/internalStats")
        answer.raise_for_status()
        stats: dict[str, Any] = answer.json()
        cursors = [cursor["cursorLedger"] for cursor in stats["cursors"].values() if cursor["cursorLedger"] >= 0]
        return [ledger["ledgerId"] for ledger in stats["ledgers"]] + cursors

    def _put(self, path: str, body: dict[str, list[str]] | None, limit: float = _ADMIN_LIMIT) -> None:
        answer = self._http.put(path, json=body, timeout=limit)
        # 409: it is there already.
        if answer.status_code != int(httpx.codes.CONFLICT):
            answer.raise_for_status()


class Churn:
    """Creates topics one after the other, from the entry of the context to its end; a refused one is tried again.

    Args:
        admin: where to create them.
        prefix: tenant/namespace/ and the begin of their names; the namespace has to be there.
        interval: seconds between two creations.

    Attributes:
        created: full names of the topics that the broker said it created.
        refused: how many attempts failed.
    """

    def __init__(self, admin: Admin, prefix: str, interval: float = 0.25) -> None:
        self.created: list[str] = []
        self.refused = 0
        self.namespace = prefix.rpartition("/")[0]
        self._admin, self._prefix, self._interval = admin, prefix, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.created.append(self._admin.create_topic(f"{self._prefix}{len(self.created):04}", _CREATE_LIMIT))
            except httpx.HTTPError:
                self.refused += 1
