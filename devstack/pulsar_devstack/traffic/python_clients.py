"""Producers and consumers with Python's client, whose core is that of C++, and with that for scalable topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pulsar_devstack.traffic.client_log import ClientLog
from pulsar_devstack.traffic.plan import (
    QUEUE,
    SEND_LIMIT_MS,
    ConsumerPlan,
    Encoding,
    Language,
    ProducerPlan,
    Subscribed,
)
from pulsar_devstack.traffic.pulsar_client import await_that, pulsar, started
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received, Sent
from pulsar_scalable import ClientOptions, ConsumerOptions, ProducerOptions, ScalableClient, ScalableError
from pulsar_scalable.errors import TimedOut

NUMBER = "number"
"""The property of a message that holds its number."""
_OPERATION_LIMIT = 30
_RECEIVE_LIMIT_MS = 500
_RETRY_PAUSE = 0.2
_JOIN_LIMIT = 60.0
_PARALLEL = 8
TYPES = {
    Subscribed.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
    Subscribed.FAILOVER: pulsar.ConsumerType.Failover,
    Subscribed.SHARED: pulsar.ConsumerType.Shared,
    Subscribed.KEY_SHARED: pulsar.ConsumerType.KeyShared,
}
"""How the library calls types of subscriptions."""
_CLOSED = {"AlreadyClosed", "TopicTerminated"}
_TIMEOUTS = (pulsar.Timeout, TimedOut)
_ERRORS = (pulsar.PulsarException, ScalableError)


def body(key: str, number: int) -> bytes:
    """Return the body of a message without a schema, as clients of every language send it."""
    return f"{key}:{number}".encode()


class Noted(NamedTuple):
    """Record of a producer, while it sends.

    Attributes:
        plan: the producer.
        sent: messages that were acknowledged or refused, in the order of that.
        open: messages that are under way.
        errors: failed sends, when and why.
        misreported: outcomes that were reported again.
    """

    plan: ProducerPlan
    sent: list[Sent]
    open: list[Sent]
    errors: list[tuple[float, str]]
    misreported: int

    def record(self) -> ProducerRecord:
        """Return the record with all messages in the order of sending."""
        sent = sorted([*self.sent, *self.open], key=lambda message: message.at)
        return ProducerRecord(self.plan, sent, self.errors, self.misreported)


def read(message: Any, language: Language, encoding: Encoding = Encoding.BYTES) -> tuple[Received, bool]:
    """Return the arrival of a message, and whether its body is what was sent."""
    content, key, where = message.data(), message.partition_key(), message.message_id()
    number = int(message.properties()[NUMBER])
    sound = content == body(key, number) if encoding is Encoding.BYTES else key.encode() in content
    if language is Language.PYTHON_SCALABLE:
        place = f"{message.segment_id()}:{where.ledger_id()}:{where.entry_id()}:{where.batch_index()}"
    else:
        place = f"{where.ledger_id()}:{where.entry_id()}:{where.partition()}:{where.batch_index()}"
    return Received(key, number, time.time(), place), sound


def _open_producer(client: Any, plan: ProducerPlan) -> Any:
    options: dict[str, Any] = {
        "producer_name": plan.name,
        "send_timeout_millis": SEND_LIMIT_MS,
        "max_pending_messages": QUEUE,
        "batching_enabled": plan.batching,
    }
    if plan.language is Language.PYTHON_SCALABLE:
        return client.create_producer(plan.topic, ProducerOptions(**options))
    return client.create_producer(
        plan.topic,
        max_pending_messages_across_partitions=QUEUE,
        batching_type=pulsar.BatchingType.KeyBased,
        **options,
    )


class SendRecorder:
    """Sends without waiting for acknowledgements, and records what came of each message.

    Args:
        producer: of either library.
        plan: keys and interval.

    Attributes:
        producer: the one that sends now.
        record: what was acknowledged or refused.
        count: messages that were handed to the library.
    """

    def __init__(self, producer: Any, plan: ProducerPlan) -> None:
        self.producer = producer
        self.record = ProducerRecord(plan)
        self.count = 0
        self._open: dict[int, Sent] = {}
        self._refused = set[int]()
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._closed = threading.Event()

    @property
    def has_all_outcomes(self) -> bool:
        """True if every message was acknowledged or rejected."""
        return not self._open

    def noted(self) -> Noted:
        """Return the record so far."""
        with self._lock:
            record = self.record
            return Noted(
                record.plan, list(record.sent), list(self._open.values()), list(record.errors), record.misreported
            )

    def produce(self, stop: threading.Event) -> None:
        """Send until asked to stop, or until sending fails permanently."""
        plan = self.record.plan
        begin = time.monotonic()
        while not stop.wait(max(0.0, begin + self.count * plan.interval - time.monotonic())):
            if self._closed.is_set():
                return
            count = self.count
            self.count += 1
            with self._sending:
                self._send(count, f"{plan.name}/{count % plan.keys}", count // plan.keys)

    def move(self, opens: Callable[[], Any]) -> None:
        """Continue with another producer, which is opened once all of this one is stored, and it is closed."""
        with self._sending:
            self.producer.flush()
            self.producer.close()
            self.producer = opens()

    def _send(self, count: int, key: str, number: int) -> None:
        def acknowledged(result: Any, _: Any) -> None:
            self._ended(count, result)

        with self._lock:
            self._open[count] = Sent(key, number, time.time(), None)
        try:
            self.producer.send_async(
                body(key, number),
                acknowledged,
                properties={NUMBER: str(number)},
                partition_key=key,
            )
        except _ERRORS as error:
            self._refused.add(count)
            self._ended(count, error)

    def _ended(self, count: int, result: Any) -> None:
        now = time.time()
        reason = _reason(result)
        with self._lock:
            message = self._open.pop(count, None)
            if message is None:
                # A rejected call may have called the callback as well.
                self.record.misreported += count not in self._refused
                return
            if result is None or result == pulsar.Result.Ok:
                self.record.sent.append(message._replace(acknowledged=now))
                return
            self.record.sent.append(message)
            self.record.errors.append((now, reason))
        if reason in _CLOSED:
            self._closed.set()


class _Consumer:
    """Receives and acknowledges."""

    def __init__(self, client: Any, plan: ConsumerPlan) -> None:
        self.record = ConsumerRecord(plan)
        self.open(client)

    def open(self, client: Any) -> None:
        """Subscribe; what was open before has ended."""
        plan = self.record.plan
        self._client = client
        if plan.language is Language.PYTHON_SCALABLE:
            subscribe = client.subscribe_stream if plan.type.streams else client.subscribe
            self._consumer = subscribe(plan.topic, plan.subscription, ConsumerOptions(consumer_name=plan.name))
            return
        self._consumer = client.subscribe(
            plan.topic,
            plan.subscription,
            consumer_type=TYPES[plan.type],
            consumer_name=plan.name,
            initial_position=pulsar.InitialPosition.Latest if plan.latest else pulsar.InitialPosition.Earliest,
        )

    def end_client(self) -> None:
        """End it with its client, as the end of its process would."""
        self._client.shutdown()

    def collect(self, log: ClientLog | None) -> ConsumerRecord:
        """Return the record so far."""
        record = self.record
        breaks = log.breaks(record.plan.topic, record.plan.subscription) if log else []
        return ConsumerRecord(record.plan, list(record.received), breaks, record.corrupt, list(record.errors))

    def consume(self, stop: threading.Event) -> None:
        """Receive until asked to stop."""
        while not stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_LIMIT_MS)
            except _TIMEOUTS:
                continue
            except _ERRORS as error:
                self._failed(error)
                stop.wait(_RETRY_PAUSE)
                continue
            self._note(message)
            try:
                self._acknowledge(message)
            except _ERRORS as error:
                self._failed(error)

    def _note(self, message: Any) -> None:
        plan = self.record.plan
        arrival, sound = read(message, plan.language, plan.encoding)
        self.record.received.append(arrival)
        self.record.corrupt += not sound

    def _acknowledge(self, message: Any) -> None:
        if self.record.plan.cumulative:
            self._consumer.acknowledge_cumulative(message)
        else:
            self._consumer.acknowledge(message)

    def _failed(self, error: Any) -> None:
        self.record.errors.append((time.time(), _reason(error)))


class PythonClients:
    """Producers and consumers in this process.

    Args:
        service_url: of the cluster that they begin with.
        log: of the libraries, with lost connections of consumers; by default errors go to the console.
        shared: one client for all, instead of one for each.
        options: further arguments of the library's client, credentials and TLS for example.
    """

    def __init__(
        self, service_url: str, log: Path | None = None, *, shared: bool, options: Mapping[str, Any] | None = None
    ) -> None:
        self._service_url = service_url
        self._path = log
        self._log = ClientLog(log) if log else None
        self._shared = shared
        self._options = dict(options or {})
        self._clients: list[Any] = []
        self._lock = threading.Lock()
        self._producers: list[SendRecorder] = []
        self._consumers: list[_Consumer] = []
        self._silence, self._end = threading.Event(), threading.Event()
        self._sending: list[threading.Thread] = []
        self._receiving: list[threading.Thread] = []

    def subscribe(self, plans: Sequence[ConsumerPlan]) -> None:
        """Open consumers, and begin to receive."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            self._consumers = list(pool.map(self._consumer, plans))
        self._receiving = [started(consumer.consume, self._end) for consumer in self._consumers]

    def reopen(self, name: str) -> None:
        """End a consumer that has a client of its own, and open it again, as a restart of its process would."""
        consumer = next(consumer for consumer in self._consumers if consumer.record.plan.name == name)
        consumer.end_client()
        consumer.open(self._client(consumer.record.plan.language))

    def open_producers(self, plans: Sequence[ProducerPlan]) -> None:
        """Open producers, which do not send yet."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            self._producers = list(pool.map(self._producer, plans))

    def start(self) -> None:
        """Begin to send."""
        self._sending = [started(producer.produce, self._silence) for producer in self._producers]

    def stop_sending(self, limit: float) -> None:
        """End the sending, and wait, `limit` seconds at most, until every message was acknowledged or refused."""
        self._silence.set()
        _join(self._sending)
        await_that(lambda: all(producer.has_all_outcomes for producer in self._producers), limit)

    def noted(self) -> tuple[list[Noted], list[ConsumerRecord]]:
        """Return the records so far; lists only grow, except those of messages in flight."""
        return [producer.noted() for producer in self._producers], [
            consumer.collect(self._log) for consumer in self._consumers
        ]

    def collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return the records so far, with messages in the order of sending."""
        producers, consumers = self.noted()
        return [producer.record() for producer in producers], consumers

    def close(self) -> None:
        """End everything."""
        self._silence.set()
        self._end.set()
        _join([*self._sending, *self._receiving])
        # A thread that waits for itself forever is abandoned.
        _join([started(_close, client) for client in self._clients])

    def _consumer(self, plan: ConsumerPlan) -> _Consumer:
        return _Consumer(self._client(plan.language), plan)

    def _producer(self, plan: ProducerPlan) -> SendRecorder:
        return SendRecorder(_open_producer(self._client(plan.language), plan), plan)

    def _client(self, language: Language) -> Any:
        with self._lock:
            if not (self._shared and self._clients):
                level = pulsar.LoggerLevel
                logger = (
                    pulsar.FileLogger(level.Info, str(self._path)) if self._path else pulsar.ConsoleLogger(level.Error)
                )
                options: dict[str, Any] = {
                    "operation_timeout_seconds": _OPERATION_LIMIT,
                    "logger": logger,
                    **self._options,
                }
                if language is Language.PYTHON_SCALABLE:
                    self._clients.append(ScalableClient(self._service_url, ClientOptions(**options)))
                else:
                    self._clients.append(pulsar.Client(self._service_url, **options))
            return self._clients[-1]


def _reason(result: Any) -> str:
    """Return `AlreadyClosed` for both the result and the exception of that name."""
    return type(result).__name__ if isinstance(result, Exception) else str(result).rpartition(".")[2]


def _close(client: Any) -> None:
    """Close it without `shutdown`, which holds the interpreter's lock while it waits for a thread's failed send."""
    with suppress(*_ERRORS):
        client.close()


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = time.monotonic() + _JOIN_LIMIT
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
