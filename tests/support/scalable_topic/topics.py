"""Regular topics that tests make scalable."""

from __future__ import annotations

import importlib
from contextlib import closing, suppress
from typing import Any

from clients.cas.store import CasReader, CasStore, Check
from clients.errors import VersionConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable
from clients.stores import Access, open_cas
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, Subscribed
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.blue_green.namespaces import create_namespace
from tests.support.scalable_topic.existing_topics import OWN_POLICIES
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

MESSAGES = 20
"""Number of messages of a topic, none of which is consumed."""

QUEUE, STREAM = "queue", "stream"
"""Its subscriptions, named after their kinds."""

_TIMEOUT = 60.0
# Brokers let a failover consumer wait for a second before its first message.
_SILENCE_MS = 5_000
_ACKNOWLEDGED = 2.0


def fill(stack: Stack, admin: PulsarAdmin, name: TopicName, partitions: int) -> None:
    """Create a topic with a backlog of both subscriptions, and without clients."""
    if partitions:
        admin.topics.create_partitioned(name, partitions)
    else:
        admin.topics.create(name)
    with closing(quiet_client(stack.broker_url)) as client:
        for subscription, kind in ((QUEUE, pulsar.ConsumerType.Shared), (STREAM, pulsar.ConsumerType.Failover)):
            client.subscribe(str(name), subscription, kind).close()
        producer: Any = client.create_producer(str(name))
        for number in range(MESSAGES):
            producer.send(b"%d" % number, partition_key=str(number))
        producer.close()


def make_scalable(stack: Stack, admin: PulsarAdmin, name: TopicName) -> None:
    """Ask a broker to make a topic scalable, as Pulsar's own tool does.

    A broker refuses if a load report creates an empty record during the request (5.0.1); then it is asked again.
    """
    for _ in range(3):
        try:
            admin.scalable_topics.migrate(name)
        except (AdminConflict, AdminServerError):
            with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
                if read_scalable(store, name).state is not RecordState.EMPTY:
                    raise
                clear_empty(store, name, lambda: Check("/admin", -1))
        else:
            return
    raise AssertionError(f"{name} got an empty record three times in a row")


def create_again(stack: Stack, admin: PulsarAdmin, name: TopicName) -> None:
    """Create a scalable topic of one segment where there were segments before.

    A load report of them that is under way creates an empty record, which no broker removes (5.0.1).
    """

    def is_created() -> bool:
        try:
            admin.scalable_topics.create(name, 1)
        except (AdminConflict, AdminServerError):
            with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
                clear_empty(store, name, lambda: Check("/admin", -1))
            return False
        return True

    wait_for(f"{name} to be created", is_created, _TIMEOUT)


def write_record(store: CasStore, name: TopicName, layout: SegmentLayout) -> None:
    """Write the record of a scalable topic, also where a load report of its segments has just created an empty one."""
    try:
        store.create(name.scalable_path, layout.encode())
    except VersionConflict:
        record = read_scalable(store, name)
        assert record.state is RecordState.EMPTY
        store.set(name.scalable_path, layout.encode(), record.version)


def layout_of(store: CasReader, name: TopicName) -> SegmentLayout:
    """Return the stored layout of a scalable topic: a broker answers from its cache, which follows a moment later."""
    layout = read_scalable(store, name).layout
    assert layout, f"{name} is not scalable"
    return layout


def make_topic(
    stack: Stack, admin: PulsarAdmin, namespace: str, partitions: int = 0, *, drained: bool = True
) -> TopicName:
    """Create a topic with messages, in a namespace with policies; it can become scalable once the stream is drained."""
    create_namespace(admin, namespace, **OWN_POLICIES)
    name = TopicName.parse(f"persistent://{namespace}/topic")
    fill(stack, admin, name, partitions)
    if drained:
        drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    return name


def consume(consumer: Any, count: int) -> list[bytes]:
    """Receive and acknowledge messages; return their payloads."""
    payloads: list[bytes] = []
    for _ in range(count):
        message = consumer.receive(30_000)
        consumer.acknowledge(message)
        payloads.append(message.data())
    return payloads


def drain(stack: Stack, admin: PulsarAdmin, name: TopicName, subscription: str, kind: Any) -> list[bytes]:
    """Consume the backlog of a subscription of a regular topic; return the payloads.

    Acknowledgements in flight get lost when the consumer of a terminated topic or partition closes (the C++ library,
    3.13; 3 of 20 times). So another consumer receives the remaining messages.
    """
    partitions = [name.of_partition(number) for number in range(admin.topics.partitions(name))] or [name]
    payloads: dict[str, bytes] = {}

    def backlog() -> int:
        return sum(admin.topics.stats(partition).subscriptions[subscription].msg_backlog for partition in partitions)

    def drained() -> bool:
        consumer = client.subscribe(str(name), subscription, kind)
        try:
            for _ in range(backlog()):
                message = consumer.receive(_SILENCE_MS)
                payloads[str(message.message_id())] = message.data()
                consumer.acknowledge(message)
            wait_for("acknowledgements", lambda: not backlog(), _ACKNOWLEDGED)
        except (pulsar.Timeout, AssertionError):
            return False
        finally:
            # The library closes its connection when a broker that unloads the topic cannot serve it yet. The broker
            # then has no consumer either.
            with suppress(pulsar.NotConnected):
                consumer.close()
        return True

    with closing(quiet_client(stack.broker_url)) as client:
        wait_for(f"{subscription} to have nothing left", drained, _TIMEOUT)
    return list(payloads.values())


def drain_all(stack: Stack, admin: PulsarAdmin, name: TopicName) -> None:
    """Consume the backlogs of both subscriptions of a topic."""
    for subscription, kind in ((QUEUE, pulsar.ConsumerType.Shared), (STREAM, pulsar.ConsumerType.Failover)):
        drain(stack, admin, name, subscription, kind)


def stream_plan(name: TopicName) -> ConsumerPlan:
    """Return a V5 stream consumer of the ordered subscription, named after the topic."""
    return ConsumerPlan(name.topic, f"topic://{name.local_path}", Language.JAVA_V5, Subscribed.FAILOVER, named=STREAM)


def regular_parents_of(admin: PulsarAdmin, name: TopicName) -> list[SegmentInfo]:
    """Return the segments of a scalable topic whose messages are in a regular one, as brokers report them."""
    return _regular_parents(admin.scalable_topics.layout(name))


def forget_parents(store: CasStore, name: TopicName) -> None:
    """Remove the regular parents from a layout, as brokers do when they are consumed."""
    record = read_scalable(store, name)
    assert record.layout
    layout = record.layout
    for segment in _regular_parents(layout):
        layout = layout.prune(segment.segment_id)
    store.set(name.scalable_path, layout.encode(), record.version)


def delete_scalable(admin: PulsarAdmin, name: TopicName) -> None:
    """Delete a scalable topic, and retry until it is gone.

    Brokers write load reports of its segments below its node. A report during the deletion makes them refuse the rest
    of it; a report after the deletion creates the node again, without a value (both observed).
    """

    def is_deleted() -> bool:
        try:
            admin.scalable_topics.delete(name, force=True)
            admin.scalable_topics.layout(name)
        except AdminNotFound:
            return True
        except AdminServerError as error:
            return "NotEmptyException" not in str(error)
        return False

    wait_for(f"{name} to be deleted", is_deleted, _TIMEOUT)


def _regular_parents(layout: SegmentLayout) -> list[SegmentInfo]:
    return [segment for segment in layout.segments.values() if segment.legacy_topic_name]
