"""Producers and consumers of segments on a real broker."""

from __future__ import annotations

import importlib
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from scalable_client.tests.support.fake_broker import unheard
from scalable_client.tests.support.topics import SUBSCRIPTION, make_scalable, scalable, take_all

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_scalable.errors import ConsumerBusy, ProducerBusy, ScalableError, TopicTerminated, UnreadableMessage
from pulsar_scalable.native import (
    Compression,
    ConsumerType,
    InitialPosition,
    MessageId,
    NativeClient,
    SegmentConsumer,
    SegmentProducer,
)
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from pulsar_scalable.options import ProducerOptions
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

_LIMIT = 30.0

Outcome = tuple[int, ScalableError | MessageId | None]


def open_segment(
    admin: PulsarAdmin, client: NativeClient, consumer_type: ConsumerType = ConsumerType.Exclusive, **options: Any
) -> tuple[TopicName, SegmentProducer, SegmentConsumer]:
    """Create a topic of one segment, with a producer and a consumer."""
    kind = SubscriptionKind.STREAM if consumer_type is ConsumerType.Exclusive else SubscriptionKind.QUEUE
    name = make_scalable(admin, 1, kind)
    topic = client.look_up(scalable(name)).segments[0].topic(scalable(name))
    consumer = client.subscribe(topic, SUBSCRIPTION, SegmentConsumerOptions(consumer_type=consumer_type, **options))
    return name, client.create_producer(topic, ProducerOptions(max_pending_messages=100_000)), consumer


def data_of(consumer: SegmentConsumer, count: int) -> list[bytes]:
    """Return the content of the next messages without acknowledging them."""
    return [consumer.receive(10_000).data() for _ in range(count)]


def test_keys_find_their_segments(admin: PulsarAdmin, client: NativeClient) -> None:
    """Messages of all keys arrive once, in order, in the segment that the layout names."""
    name = make_scalable(admin, 3)
    layout = client.look_up(scalable(name))
    producers = {segment.id: client.create_producer(layout.topic_of(segment)) for segment in layout.active}
    sent: dict[int, list[tuple[str, bytes]]] = {segment.id: [] for segment in layout.active}
    for number in range(60):
        key, segment = f"key-{number % 20}", layout.segment_for(f"key-{number % 20}").id
        producers[segment].send_async(
            b"%d" % number,
            unheard,
            partition_key=key,
            properties={"number": str(number)},
            event_timestamp=1000 + number,
        )
        sent[segment].append((key, b"%d" % number))
    for producer in producers.values():
        producer.flush()
    assert all(sent.values())
    for producer in layout.active:
        messages = take_all(client.subscribe(layout.topic_of(producer), SUBSCRIPTION), len(sent[producer.id]))
        assert [(message.partition_key(), message.data()) for message in messages] == sent[producer.id]
        assert all(message.event_timestamp() == 1000 + int(message.properties()["number"]) for message in messages)
        assert all(abs(message.publish_timestamp() - time.time() * 1000) < 60_000 for message in messages)


def send_until_terminated(producer: SegmentProducer, outcomes: list[Outcome]) -> int:
    """Send numbers, some of which are on their way at any time; how many there were."""
    number, until = 0, time.monotonic() + _LIMIT
    while time.monotonic() < until:

        def on_sent(error: ScalableError | None, place: MessageId | None, number: int = number) -> None:
            outcomes.append((number, error or place))

        try:
            producer.send_async(b"%d" % number, on_sent)
        except TopicTerminated:
            return number
        number += 1
        time.sleep(0.0002)
    raise AssertionError("the topic takes messages still")


@pytest.mark.parametrize("turn", range(3))
def test_a_split_during_sending(admin: PulsarAdmin, client: NativeClient, turn: int) -> None:
    """Every message that is reported as stored can be read, and all others fail with TopicTerminated, in order."""
    ended: list[SegmentConsumer] = []
    name, producer, consumer = open_segment(admin, client, end_of_topic=ended.append)
    outcomes: list[Outcome] = []
    watch = client.watch(scalable(name), unheard)
    splitting = threading.Thread(target=admin.scalable_topics.split, args=(name, 0))
    splitting.start()
    number = send_until_terminated(producer, outcomes)
    splitting.join()
    assert [number for number, _ in outcomes] == list(range(number))
    stored = [number for number, outcome in outcomes if isinstance(outcome, MessageId)]
    assert all(isinstance(outcome, TopicTerminated) for _, outcome in outcomes[len(stored) :])
    assert stored == list(range(len(stored)))
    assert [int(message.data()) for message in take_all(consumer, len(stored))] == stored
    wait_until_equal("the end", lambda: ended, [consumer], _LIMIT)
    wait_until_equal("the layout", lambda: watch.layout.epoch, 1, _LIMIT)
    layout = watch.layout
    client.create_producer(layout.topic_of(layout.active[0])).send(b"on")
    print(f"turn {turn}: {len(stored)} stored, {number - len(stored)} failed")


def test_negative_acknowledgements(admin: PulsarAdmin, client: NativeClient) -> None:
    """In a shared subscription one message comes again, and says how often it came before."""
    options = {"negative_ack_redelivery_delay_ms": 200}
    _, producer, consumer = open_segment(admin, client, ConsumerType.Shared, **options)
    for number in range(3):
        producer.send(b"%d" % number)
    messages = [consumer.receive(10_000) for _ in range(3)]
    consumer.negative_acknowledge(messages[1])
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    again = consumer.receive(10_000)
    assert (again.data(), again.redelivery_count()) == (b"1", 1)
    consumer.acknowledge(again)
    assert take_all(consumer) == []


def test_redelivery_in_order(admin: PulsarAdmin, client: NativeClient) -> None:
    """In an exclusive subscription all that is not acknowledged comes again, once and in order."""
    _, producer, consumer = open_segment(admin, client, negative_ack_redelivery_delay_ms=200)
    for number in range(6):
        producer.send(b"%d" % number)
    messages = [consumer.receive(10_000) for _ in range(4)]
    consumer.acknowledge_cumulative(messages[1])
    consumer.negative_acknowledge(messages[2])
    wait_for("the redelivery", lambda: not consumer._nacked, 5)  # pyright: ignore[reportPrivateUsage]
    assert data_of(consumer, 4) == [b"2", b"3", b"4", b"5"]
    consumer.redeliver_unacknowledged_messages()
    assert [message.data() for message in take_all(consumer, 4)] == [b"2", b"3", b"4", b"5"]


def test_places(admin: PulsarAdmin, client: NativeClient) -> None:
    """The last message, and back to any message or time."""
    _, producer, consumer = open_segment(admin, client, ack_receipt_enabled=True)
    ids = [producer.send(b"%d" % number) for number in range(5)]
    assert consumer.get_last_message_id() == ids[-1]
    assert [message.data() for message in take_all(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]
    consumer.seek(ids[3])
    assert data_of(consumer, 2) == [b"3", b"4"]
    consumer.seek(1)
    assert [message.data() for message in take_all(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_holders_of_segments(admin: PulsarAdmin, client: NativeClient) -> None:
    """A second exclusive consumer, and a second producer of a name, are refused; closed ones make room."""
    _, producer, consumer = open_segment(admin, client)
    with pytest.raises(ConsumerBusy):
        client.subscribe(consumer.topic, SUBSCRIPTION)
    with pytest.raises(ProducerBusy):
        client.create_producer(producer.topic, ProducerOptions(producer_name=producer.producer_name))
    consumer.close()
    producer.close()
    client.create_producer(producer.topic, ProducerOptions(producer_name=producer.producer_name)).send(b"x")
    again = client.subscribe(consumer.topic, SUBSCRIPTION)
    assert len(take_all(again, 1)) == 1
    again.unsubscribe()
    new = client.subscribe(
        consumer.topic, SUBSCRIPTION, SegmentConsumerOptions(initial_position=InitialPosition.Earliest)
    )
    assert len(take_all(new, 1)) == 1


def test_batches_of_the_library(stack: Stack, admin: PulsarAdmin, client: NativeClient) -> None:
    """Batches and compressed messages of pulsar-client are read; an unsupported compression is named."""
    topic = "persistent://public/default/native-client-library"
    admin.topics.create(TopicName.parse(topic))
    consumer = client.subscribe(topic, "sub", SegmentConsumerOptions(consumer_type=ConsumerType.Shared))
    with closing(quiet_client(stack.broker_url)) as library:
        for kind in (pulsar.CompressionType.NONE, pulsar.CompressionType.ZLib):
            producer: Any = library.create_producer(topic, batching_enabled=True, compression_type=kind)
            for number in range(50):
                producer.send_async(b"%d" % number, unheard, partition_key=f"k{number}", properties={"n": str(number)})
            producer.flush()
            messages = [consumer.receive(10_000) for _ in range(50)]
            assert [message.data() for message in messages] == [b"%d" % number for number in range(50)]
            assert [(message.partition_key(), message.properties()["n"]) for message in messages] == [
                (f"k{number}", str(number)) for number in range(50)
            ]
            assert len({message.message_id().entry_id() for message in messages}) < 50
            for message in reversed(messages):
                consumer.acknowledge(message)
        library.create_producer(topic, compression_type=pulsar.CompressionType.LZ4).send(b"x" * 1000)
    with pytest.raises(UnreadableMessage, match="LZ4") as caught:
        consumer.receive(10_000)
    consumer.acknowledge(caught.value.message_id)
    wait_for("no backlog", lambda: not admin.topics.stats(TopicName.parse(topic)).subscriptions["sub"].msg_backlog, 30)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
def test_the_library_reads_what_is_sent(
    stack: Stack, admin: PulsarAdmin, client: NativeClient, compression: Compression
) -> None:
    """Brokers and pulsar-client take messages without a checksum."""
    topic = f"persistent://public/default/native-client-for-library-{compression}"
    admin.topics.create(TopicName.parse(topic))
    with closing(quiet_client(stack.broker_url)) as library:
        consumer: Any = library.subscribe(topic, "sub")
        producer = client.create_producer(topic, ProducerOptions(compression_type=compression))
        sent = producer.send(
            b"data" * 100, partition_key="key", properties={"a": "b"}, event_timestamp=77, ordering_key="order"
        )
        received = consumer.receive(10_000)
        assert (received.data(), received.partition_key(), received.properties()) == (b"data" * 100, "key", {"a": "b"})
        assert (received.event_timestamp(), received.ordering_key()) == (77, "order")
        assert (received.message_id().ledger_id(), received.message_id().entry_id()) == (
            sent.ledger_id(),
            sent.entry_id(),
        )
        assert pulsar.MessageId.deserialize(sent.serialize()).entry_id() == sent.entry_id()
