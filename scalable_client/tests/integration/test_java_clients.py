"""Java's V5 clients and this one, on the same scalable topic."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from scalable_client.tests.support.fake_broker import unheard
from scalable_client.tests.support.topics import SUBSCRIPTION, make_scalable, scalable, take_all

from clients.pulsar.admin.client import PulsarAdmin
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from pulsar_scalable.layout import key_hash
from pulsar_scalable.native import ConsumerKind, ConsumerType, NativeClient
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

_LIMIT = 60.0


@pytest.fixture
def java(stack: Stack, toolchain: Toolchain, tmp_path: Path) -> Generator[ClientProgram]:
    """V5 clients."""
    tools = with_scalable_clients(toolchain)
    with closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as clients:
        yield clients


def test_messages_of_java_are_read(admin: PulsarAdmin, client: NativeClient, java: ClientProgram) -> None:
    """Batches of Java hold its messages, in the segments that our layout names for their keys."""
    name = make_scalable(admin, 3)
    java.open_producers([ProducerPlan("java", scalable(name), Language.JAVA_V5, interval=0.0005)])
    java.start()
    wait_for("messages", lambda: len(java.collect()[0][0].sent) > 300, _LIMIT)
    java.stop_sending(30)
    layout = client.look_up(scalable(name))
    messages: list[tuple[str, int]] = []
    for segment in layout.active:
        for message in take_all(client.subscribe(layout.topic_of(segment), SUBSCRIPTION)):
            key, number = message.partition_key(), int(message.properties()["number"])
            assert message.data() == f"{key}:{number}".encode()
            assert layout.segment_for(key) == segment == layout.segment_for(key_hash(key))
            messages.append((key, number))
    assert sorted(messages) == sorted((message.key, message.number) for message in java.collect()[0][0].sent)


def test_java_reads_sent_messages(admin: PulsarAdmin, client: NativeClient, java: ClientProgram) -> None:
    """Java reads the messages of all segments, through a split, with the numbers of each key."""
    name = make_scalable(admin, 2, SubscriptionKind.QUEUE)
    java.subscribe(
        [ConsumerPlan("java", scalable(name), Language.JAVA_V5, Subscribed.SHARED, named=SUBSCRIPTION, latest=False)]
    )
    sent: list[tuple[str, int]] = []
    for turn in range(2):
        layout = client.look_up(scalable(name))
        for key in ("a", "b", "c", "d"):
            producer = client.create_producer(layout.topic_of(layout.segment_for(key)))
            for number in range(turn * 50, turn * 50 + 50):
                body = f"{key}:{number}".encode()
                producer.send_async(body, unheard, partition_key=key, properties={"number": str(number)})
                sent.append((key, number))
            producer.flush()
        if not turn:
            admin.scalable_topics.split(name, 0)

    def received() -> list[tuple[str, int]]:
        (record,) = java.collect()[1]
        return sorted((message.key, message.number) for message in record.received)

    wait_until_equal("all messages", received, sorted(sent), _LIMIT)
    assert java.collect()[1][0].corrupt == 0


def test_a_stream_with_a_java_consumer(admin: PulsarAdmin, client: NativeClient, java: ClientProgram) -> None:
    """The controller shares segments among consumers of both languages."""
    name = make_scalable(admin, 4)
    registration = client.register(scalable(name), SUBSCRIPTION, "python", ConsumerKind.STREAM, lambda _: None)
    assert len(registration.assignment.segments) == 4
    java.subscribe([ConsumerPlan("java", scalable(name), Language.JAVA_V5, Subscribed.FAILOVER, named=SUBSCRIPTION)])
    wait_until_equal("the balance", lambda: len(registration.assignment.segments), 2, _LIMIT)
    ours = {segment.id for segment in registration.assignment.segments}
    layout = client.look_up(scalable(name))
    sent: list[tuple[str, int]] = []
    for segment in layout.active:
        key = next(key for key in map(str, range(1000)) if layout.segment_for(key) == segment)
        client.create_producer(layout.topic_of(segment)).send(
            f"{key}:0".encode(), partition_key=key, properties={"number": "0"}
        )
        if segment.id not in ours:
            sent.append((key, 0))
    wait_until_equal("Java's half", lambda: len(java.collect()[1][0].received), 2, _LIMIT)
    assert sorted((message.key, message.number) for message in java.collect()[1][0].received) == sorted(sent)
    for assigned_segment in registration.assignment.segments:
        consumer = client.subscribe(
            assigned_segment.topic, SUBSCRIPTION, SegmentConsumerOptions(consumer_type=ConsumerType.Exclusive)
        )
        assert len(take_all(consumer, 1)) == 1
