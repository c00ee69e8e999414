"""Copies of scalable topics without a workflow, and functions that send to such topics and read the copies."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager, suppress
from threading import Thread
from typing import Any, NamedTuple, cast

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic.operations.context import OperationTask
from activities.scalable_topic.operations.copy_out.copy_out import copy_out, finish_copy
from clients.cas.claims import ClaimKeeper
from clients.errors import RetryableError
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import SegmentName, StoredTopic, TopicName
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.frames import Message, framed
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.reader import RawReader
from models.lifecycle.claim import Attempt, Claim
from models.scalable_topic.copies import CopiedOut
from models.scalable_topic.operation_input import ScalableOperationInput
from models.settings import Settings
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_wire.pulsar_api_pb2 import KeyValue, MessageMetadata
from tests.support.blue_green.namespaces import create_namespace
from tests.support.scalable_topic.steps import execution_of
from tests.support.scalable_topic.topics import pulsar
from tests.support.waiting import wait_for

KEYS = 10
SPACE = "copies/out"
APP = "app"
"""A subscription of the copy."""

# Producers send when they have 128 KiB: attempts that die must have sent something.
_PADDING = bytes(2_000)
_EPOCHS = itertools.count(int(time.time() * 1000))


class Sent(NamedTuple):
    """A message as a consumer sees it.

    Attributes:
        number: counts all messages of a topic.
        key: of the message; empty for none.
        data: the payload.
        properties: all of them.
        event_ms: when it happened.
    """

    number: int
    key: str
    data: bytes
    properties: dict[str, str]
    event_ms: int

    @classmethod
    def make(cls, number: int) -> Sent:
        """Return the message with a number; each eleventh has no key."""
        key = "" if number % 11 == 0 else f"key {number % KEYS}"
        properties = {"number": str(number), "of": "app"}
        return cls(number, key, b"message %d" % number + _PADDING, properties, 1_000 + number)


class Copier:
    """Copies of one cluster, on behalf of attempts of one run.

    Args:
        stack: the cluster.
    """

    def __init__(self, stack: Stack) -> None:
        self._input = ScalableOperationInput.model_validate(
            {
                "cluster": "copies",
                "metadata_url": stack.metadata_url,
                "admin_urls": stack.admin_urls,
                "topics": ["copies/out/*"],
                "operation": "audit",
            }
        )
        # Nothing here asks for Temporal's client.
        self.runtime = Runtime(Settings(), cast("Any", None), "queue")

    def attempt(self) -> Attempt:
        """Return the next attempt."""
        return Attempt("scalable-operation/copies", "run-1", 1, next(_EPOCHS), 1)

    def task(self, context: ActivityContext | None = None) -> OperationTask:
        """Return the task of the next attempt; the run holds the claim."""
        attempt = self.attempt()
        task = OperationTask(self.runtime, execution_of(self._input, attempt), attempt, context or ActivityContext())
        with task.cluster.store() as store:
            ClaimKeeper(store, Claim, task.attempt).take()
        return task

    def copy(self, source: TopicName, target: TopicName, **options: Any) -> CopiedOut:
        """Copy, as the next attempt."""
        with self.task() as task:
            return copy_out(task, source, target, **options)

    def copy_with_retries(self, source: TopicName, target: TopicName, **options: Any) -> CopiedOut:
        """Copy, and retry like Temporal while brokers move topics."""

        def attempt() -> CopiedOut | None:
            try:
                return self.copy(source, target, **options)
            except RetryableError:
                return None

        return wait_for(f"the copy of {source}", attempt, 120)

    def finish_copy(self, target: TopicName) -> None:
        """End a copy, as the next attempt."""
        with self.task() as task:
            finish_copy(task, target)

    def release(self) -> None:
        """Release the claim."""
        with self.task() as task, task.cluster.store() as store:
            ClaimKeeper(store, Claim, task.attempt).release()


class CopyThread(Thread):
    """An attempt that runs next to a test.

    Args:
        copier: whose attempt.
        source: the scalable topic.
        target: the regular one.
        options: of `copy_out`.
    """

    def __init__(self, copier: Copier, source: TopicName, target: TopicName, **options: Any) -> None:
        super().__init__(daemon=True)
        self.context = ActivityContext()
        self.failure: BaseException | None = None
        self._task = copier.task(self.context)
        self._source, self._target, self._options = source, target, options

    def run(self) -> None:
        """Copy, and store the failure."""
        try:
            with self._task as task:
                copy_out(task, self._source, self._target, **self._options)
        except BaseException as failure:  # noqa: BLE001 - the test checks it
            self.failure = failure


def send_as_regular(stack: Stack, name: TopicName, numbers: Iterable[int], **options: Any) -> None:
    """Send to a regular topic, by Python's client."""
    with closing(quiet_client(stack.broker_url)) as client:
        producer: Any = client.create_producer(str(name), block_if_queue_full=True, **options)
        for message in map(Sent.make, numbers):
            producer.send_async(
                message.data,
                _ignore,
                partition_key=message.key or None,
                properties=message.properties,
                event_timestamp=message.event_ms,
            )
        producer.flush()
        producer.close()


def send_to_segments(stack: Stack, admin: PulsarAdmin, name: TopicName, numbers: Iterable[int]) -> None:
    """Send to a scalable topic, each message to the segment of its key."""
    layout = admin.scalable_topics.layout(name)
    producers: dict[str, RawProducer] = {}
    for message in map(Sent.make, numbers):
        segment = layout.route(message.key) if message.key else layout.active[message.number % len(layout.active)]
        if segment.descriptor not in producers:
            producers[segment.descriptor] = RawProducer(
                stack.broker_url,
                SegmentName(name, segment.descriptor),
                WireAccess(),
                name="app",
                notes={},
                on_stored=lambda _position: None,
            )
        producers[segment.descriptor].send(_message(message))
    for producer in producers.values():
        producer.flush()
        producer.close()


def stored_in(stack: Stack, topic: StoredTopic) -> list[Message]:
    """Return all entries of a topic without partitions, of one partition, or of a segment."""
    with RawReader(stack.broker_url, topic, WireAccess(), notes={}) as reader:
        last = reader.last()
        return [message for _, message in reader.entries(last)] if last else []


def received(stack: Stack, topic: TopicName, subscription: str, count: int) -> list[Sent]:
    """Return the messages that a consumer gets of a whole topic: `count` messages, and those that directly follow."""
    messages: list[Sent] = []
    with closing(quiet_client(stack.broker_url)) as client:
        consumer: Any = client.subscribe(str(topic), subscription, pulsar.ConsumerType.Exclusive)
        while True:
            try:
                message = consumer.receive(30_000 if len(messages) < count else 1_000)
            except pulsar.Timeout:
                break
            consumer.acknowledge(message)
            key = message.partition_key()
            number = int(message.properties()["number"])
            messages.append(Sent(number, key, message.data(), message.properties(), message.event_timestamp()))
        consumer.close()
    return messages


def require_all(messages: list[Sent], numbers: Iterable[int]) -> None:
    """Require that each message came once and unchanged, and messages of one key in order."""
    expected = [Sent.make(number) for number in numbers]
    assert sorted(messages) == expected
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for message in messages:
        by_key[message.key].append(message.number)
    by_key.pop("")
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def make_space(admin: PulsarAdmin) -> str:
    """Return a namespace in which brokers delete no messages; create it unless an earlier module has."""
    with suppress(AdminConflict):
        create_namespace(admin, SPACE)
    admin.namespaces.set_retention(SPACE, Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1))
    return SPACE


@contextmanager
def open_copier(stack: Stack) -> Generator[Copier]:
    """Yield a copier with a Spark session."""
    copier = Copier(stack)
    copier.runtime.start()
    try:
        yield copier
    finally:
        copier.release()
        copier.runtime.stop()


def topic(name: str) -> TopicName:
    """Return a topic of the namespace."""
    return TopicName.parse(f"persistent://{SPACE}/{name}")


def native(stack: Stack, admin: PulsarAdmin, name: str, messages: int) -> TopicName:
    """Return a scalable topic with messages in one segment, without auto-scaling."""
    admin.scalable_topics.create(topic(name), 1)
    admin.scalable_topics.set_auto_scale_policy(topic(name), AutoScalePolicy(enabled=False))
    send_to_segments(stack, admin, topic(name), range(messages))
    return topic(name)


def require_certificate(copied: CopiedOut, messages: int) -> None:
    """Require that all messages were copied, and that the figures agree."""
    assert copied.caught_up
    assert copied.messages == messages
    assert sum(segment.messages for segment in copied.certificate) == messages
    assert sum(segment.size for segment in copied.certificate) == copied.size


def _ignore(_result: object, _message_id: object) -> None:
    """Ignore the result of a send: the flush waits for all."""


def _message(message: Sent) -> Message:
    metadata = MessageMetadata(
        producer_name="app",
        sequence_id=message.number,
        publish_time=2_000 + message.number,
        event_time=message.event_ms,
        properties=[KeyValue(key=key, value=value) for key, value in message.properties.items()],
    )
    if message.key:
        metadata.partition_key = message.key
    return framed(metadata, message.data)
