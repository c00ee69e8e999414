"""Consumers: permits, batches, redelivery, and what a broker's news mean."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalable_client.tests.support.fake_broker import NONE, FakeBroker, Peer

from pulsar_scalable.errors import AlreadyClosed, ConsumerBusy, Refused, TimedOut, UnreadableMessage, Unsupported
from pulsar_scalable.messages import Message
from pulsar_scalable.native import ConsumerType, InitialPosition, MessageId, NativeClient, SegmentConsumer
from pulsar_scalable.native.consumer import Batches, SegmentConsumerOptions
from pulsar_scalable.native.payload import framed
from pulsar_scalable.native_backend import NativeReceiver
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.frames import Command
from tests.support.waiting import wait_for, wait_until_equal

TOPIC = "segment://public/default/orders/0000-ffff-0"
Answer = list[Command | tuple[Command, bytes]] | None


def single(number: int, *, consumer_epoch: int | None = None) -> tuple[Command, bytes]:
    """Return a message that is an entry."""
    body = framed(api.MessageMetadata(producer_name="p", sequence_id=number, publish_time=5), b"m%d" % number)
    return api.CommandMessage(
        consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=number), consumer_epoch=consumer_epoch
    ), body


def batch(entry: int, size: int, ack_set: tuple[int, ...] = ()) -> tuple[Command, bytes]:
    """Return messages in one entry."""
    parts: list[bytes] = []
    for number in range(size):
        data = b"b%d" % number
        head = api.SingleMessageMetadata(payload_size=len(data)).SerializeToString()
        parts += (struct.pack(">I", len(head)), head, data)
    metadata = api.MessageMetadata(producer_name="p", num_messages_in_batch=size)
    return api.CommandMessage(
        consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=entry), ack_set=ack_set
    ), framed(metadata, b"".join(parts))


def giving(*entries: tuple[Command, bytes]) -> Callable[[Peer, Command], Answer]:
    """Return a broker that has some entries for each consumer that opens."""

    def answer(_peer: Peer, command: Command) -> Answer:
        first = isinstance(command, api.CommandFlow) and command.messagePermits == 1000
        return [*entries] if first else None

    return answer


def usual(_peer: Peer, _command: Command) -> None:
    """Return the usual answers of a broker."""


def acks(broker: FakeBroker) -> list[tuple[int, list[int]]]:
    """Return types and entries of the acknowledgements."""
    return [
        (command.ack_type, [position.entryId for position in command.message_id])
        for command in broker.received
        if isinstance(command, api.CommandAck)
    ]


def data_of(consumer: SegmentConsumer, count: int) -> list[bytes]:
    """Return the content of the next messages."""
    return [consumer.receive(20_000).data() for _ in range(count)]


def test_options_are_sent_to_the_broker() -> None:
    """Options of pulsar-client reach the broker with the same meaning."""
    with FakeBroker(usual) as broker, NativeClient(broker.url) as client:
        client.subscribe(
            TOPIC,
            "sub",
            SegmentConsumerOptions(
                consumer_type=ConsumerType.KeyShared,
                initial_position=InitialPosition.Earliest,
                consumer_name="me",
                receiver_queue_size=7,
                properties={"a": "b"},
            ),
        )
        wait_for("permits", lambda: broker.of(api.CommandFlow), 20)
        (request,) = broker.of(api.CommandSubscribe)
        assert isinstance(request, api.CommandSubscribe)
        assert (request.topic, request.subscription, request.subType, request.initialPosition) == (TOPIC, "sub", 3, 1)
        assert (request.consumer_name, request.durable, list(request.metadata)) == (
            "me",
            True,
            [api.KeyValue(key="a", value="b")],
        )
        assert broker.of(api.CommandFlow) == [api.CommandFlow(consumer_id=1, messagePermits=7)]


def test_messages_and_permits() -> None:
    """When half of the queue is used, the broker may send as many again."""
    entries = [single(number) for number in range(4)]

    def answer(_peer: Peer, command: Command) -> Answer:
        return [*entries] if isinstance(command, api.CommandFlow) and command.messagePermits == 4 else None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(receiver_queue_size=4))
        message = consumer.receive(20_000)
        assert (message.data(), message.message_id(), message.topic_name()) == (b"m0", MessageId(7, 0), TOPIC)
        assert (message.publish_timestamp(), message.partition_key(), message.redelivery_count()) == (5, "", 0)
        assert data_of(consumer, 3) == [b"m1", b"m2", b"m3"]
        halves = [api.CommandFlow(consumer_id=1, messagePermits=2)] * 2
        wait_until_equal("permits", lambda: broker.of(api.CommandFlow)[1:], halves, 20)
        with pytest.raises(TimedOut):
            consumer.receive(50)


def test_batches_are_acknowledged_whole() -> None:
    """Once all of their messages are; and what is acknowledged does not come again with the rest."""
    with FakeBroker(giving(batch(3, 3))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(consumer_type=ConsumerType.Shared))
        messages = [consumer.receive(20_000) for _ in range(3)]
        assert [message.message_id() for message in messages] == [MessageId(7, 3, number, 3) for number in range(3)]
        consumer.acknowledge(messages[1])
        broker.drop_all()
        assert data_of(consumer, 2) == [b"b0", b"b2"]
        assert acks(broker) == []
        consumer.acknowledge(messages[2])
        consumer.acknowledge(messages[0].message_id())
        wait_until_equal("the acknowledgement", lambda: acks(broker), [(api.CommandAck.Individual, [3])], 20)


def test_brokers_that_know_parts_of_batches() -> None:
    """Messages that the broker reports as acknowledged are skipped."""
    with FakeBroker(giving(batch(3, 4, (0b1010,)))) as broker, NativeClient(broker.url) as client:
        assert data_of(client.subscribe(TOPIC, "sub"), 2) == [b"b1", b"b3"]


def test_cumulative_acknowledgements() -> None:
    """Up to an entry, or the one before it where its batch is not complete."""
    with FakeBroker(giving(single(0), batch(1, 3), single(2))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(consumer_type=ConsumerType.Failover))
        messages = [consumer.receive(20_000) for _ in range(5)]
        for number in (0, 2, 3, 4):
            consumer.acknowledge_cumulative(messages[number])
        expected = [(api.CommandAck.Cumulative, [entry]) for entry in (0, 0, 1, 2)]
        wait_until_equal("acknowledgements", lambda: acks(broker), expected, 20)
        shared = client.subscribe(TOPIC, "other", SegmentConsumerOptions(consumer_type=ConsumerType.Shared))
        with pytest.raises(Unsupported, match="one by one"):
            shared.acknowledge_cumulative(messages[0])


def test_a_segment_that_is_shared_by_entry_buckets() -> None:
    """A consumer attaches to it sticky, with all of its buckets, and any other consumer without."""
    with FakeBroker(giving()) as broker, NativeClient(broker.url) as client:
        client.subscribe(
            TOPIC,
            "sub",
            SegmentConsumerOptions(consumer_type=ConsumerType.KeyShared, buckets=((0, 0x7FFF), (0x8000, 0xFFFF))),
        )
        client.subscribe(TOPIC, "other")
        shared, other = broker.of(api.CommandSubscribe)
    assert isinstance(shared, api.CommandSubscribe)
    assert isinstance(other, api.CommandSubscribe)
    ranges = (api.IntRange(start=0, end=0x7FFF), api.IntRange(start=0x8000, end=0xFFFF))
    assert shared.subType == api.CommandSubscribe.Key_Shared
    assert not shared.HasField("consumer_epoch")
    assert not other.HasField("keySharedMeta")
    assert shared.keySharedMeta == api.KeySharedMeta(
        keySharedMode=api.KeySharedMeta.STICKY, hashRanges=ranges, entry_bucket_dispatch=True
    )


@given(st.integers(1, 70).flatmap(lambda size: st.permutations(range(size))))
def test_any_order_of_acknowledgements(order: list[int]) -> None:
    """A batch is complete with its last message, whichever that is, and only then."""
    size, batches = len(order), Batches()
    assert batches.add(MessageId(1, 2), size, ()) == set(range(size))
    complete = [batches.acknowledge(MessageId(1, 2, index, size)) for index in order]
    assert complete == [False] * (size - 1) + [True]


def test_receipts() -> None:
    """With them, a refused acknowledgement is an error."""

    def answer(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandAck):
            failed = command.message_id[0].entryId == 1
            return [
                api.CommandAckResponse(
                    consumer_id=1,
                    error=22 if failed else None,
                    message="no" if failed else None,
                    request_id=command.request_id,
                )
            ]
        return giving(single(0), single(1))(_peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(ack_receipt_enabled=True))
        consumer.acknowledge(consumer.receive(20_000))
        with pytest.raises(Refused, match="no"):
            consumer.acknowledge(consumer.receive(20_000))


def test_negative_acknowledgements() -> None:
    """After their delay, and not for what was acknowledged since."""
    with FakeBroker(giving(single(0), single(1), single(2))) as broker, NativeClient(broker.url) as client:
        options = SegmentConsumerOptions(consumer_type=ConsumerType.Shared)
        delay = options.negative_ack_redelivery_delay_ms / 1000
        consumer = client.subscribe(TOPIC, "sub", options)
        messages = [consumer.receive(20_000) for _ in range(3)]
        begun = time.monotonic()
        consumer.negative_acknowledge(messages[0])
        consumer.negative_acknowledge(messages[1])
        consumer.acknowledge(messages[1])
        consumer.tick(begun + 0.99 * delay)
        consumer.acknowledge(messages[2])
        wait_until_equal("its acknowledgement", lambda: len(acks(broker)), 2, 20)
        assert broker.of(api.CommandRedeliverUnacknowledgedMessages) == []
        consumer.tick(time.monotonic() + delay)
        wait_for("a request", lambda: broker.of(api.CommandRedeliverUnacknowledgedMessages), 20)
        (request,) = broker.of(api.CommandRedeliverUnacknowledgedMessages)
        assert request == api.CommandRedeliverUnacknowledgedMessages(
            consumer_id=1, message_ids=(api.MessageIdData(ledgerId=7, entryId=0),)
        )


def test_redelivery_in_order() -> None:
    """Everything is delivered again once: queued messages, and those sent before the request, are dropped."""
    entries = giving(*(single(number, consumer_epoch=0) for number in range(2)))
    with FakeBroker(entries) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(negative_ack_redelivery_delay_ms=0))
        consumer.negative_acknowledge(consumer.receive(20_000))
        wait_for("a request", lambda: broker.of(api.CommandRedeliverUnacknowledgedMessages), 20)
        assert broker.of(api.CommandRedeliverUnacknowledgedMessages) == [
            api.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=(), consumer_epoch=1)
        ]
        for entry in (single(1, consumer_epoch=0), single(0, consumer_epoch=1), single(1, consumer_epoch=1)):
            broker.peers[0].push(*entry)
        assert data_of(consumer, 2) == [b"m0", b"m1"]


def test_lost_connections() -> None:
    """After a lost connection it resubscribes, receives queued messages again, and sends pending acknowledgements."""
    allowed = threading.Event()

    def answer(peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandSubscribe) and peer.number and not allowed.is_set():
            return [api.CommandError(request_id=command.request_id, error=5, message="others hold it")]
        return giving(single(0), single(1))(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        message = consumer.receive(20_000)
        broker.drop_all()
        wait_for("a second attempt", lambda: len(broker.of(api.CommandSubscribe)) > 1, 20)
        consumer.acknowledge(message)
        allowed.set()
        wait_for("the connection", lambda: consumer.is_connected, 20)
        assert data_of(consumer, 2) == [b"m0", b"m1"]
        wait_until_equal("the acknowledgement", lambda: acks(broker), [(api.CommandAck.Individual, [0])], 20)


def test_closed_by_the_broker() -> None:
    """A consumer that the broker closed is opened again."""
    with FakeBroker(giving(single(0))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        assert data_of(consumer, 1) == [b"m0"]
        broker.peers[0].push(api.CommandCloseConsumer(consumer_id=1, request_id=NONE))
        assert data_of(consumer, 1) == [b"m0"]
        assert len(broker.of(api.CommandSubscribe)) == 2


def test_subscriptions_of_others() -> None:
    """A first attempt fails at once."""

    def answer(_peer: Peer, command: Command) -> Answer:
        return (
            [api.CommandError(request_id=command.request_id, error=5, message="busy")]
            if isinstance(command, api.CommandSubscribe)
            else None
        )

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client, pytest.raises(ConsumerBusy):
        client.subscribe(TOPIC, "sub")


def test_the_end_of_a_topic() -> None:
    """The end of a topic is reported once, after the last message was delivered."""
    ended: list[SegmentConsumer] = []
    with FakeBroker(giving(single(0))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(end_of_topic=ended.append))
        assert data_of(consumer, 1) == [b"m0"]
        assert not consumer.has_reached_end_of_topic
        for _ in range(2):
            broker.peers[0].push(api.CommandReachedEndOfTopic(consumer_id=1))
        wait_for("the end", lambda: ended, 20)
        assert consumer.has_reached_end_of_topic
        consumer.close()
    assert ended == [consumer]


def test_unreadable_messages() -> None:
    """Unreadable messages are reported in order, and do not stop later messages."""
    encrypted = (
        api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=1)),
        framed(api.MessageMetadata(encryption_keys=(b"k",)), b"x"),
    )
    with FakeBroker(giving(single(0), encrypted, single(2))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        assert data_of(consumer, 1) == [b"m0"]
        with pytest.raises(UnreadableMessage, match="encrypted") as caught:
            consumer.receive(20_000)
        consumer.acknowledge(caught.value.message_id)
        assert data_of(consumer, 1) == [b"m2"]
        wait_until_equal("the acknowledgement", lambda: acks(broker), [(api.CommandAck.Individual, [1])], 20)


def test_unreadable_messages_among_others() -> None:
    """Consumers of scalable topics hand them out in their turn; only their contents raise."""
    encrypted = (
        api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=1)),
        framed(api.MessageMetadata(encryption_keys=(b"k",)), b"x"),
    )
    with FakeBroker(giving(single(0), encrypted, single(2))) as broker, NativeClient(broker.url) as client:
        receiver = NativeReceiver(client, client.subscribe(TOPIC, "sub"))
        messages = [Message(0, TOPIC, receiver.receive(20_000)) for _ in range(3)]
        assert [message.message_id().position for message in messages] == [(7, 0, -1), (7, 1, -1), (7, 2, -1)]
        assert [messages[0].data(), messages[2].data()] == [b"m0", b"m2"]
        with pytest.raises(UnreadableMessage, match="encrypted"):
            messages[1].data()
        receiver.negative_acknowledge(messages[1].raw)
        receiver.acknowledge(messages[1].message_id().raw)
        wait_until_equal("the acknowledgement", lambda: acks(broker), [(api.CommandAck.Individual, [1])], 20)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x09x", framed(api.MessageMetadata(num_messages_in_batch=3), b"\0\0")])
def test_damaged_messages(body: bytes) -> None:
    """Damaged messages are reported too, instead of breaking the connection again and again."""
    damaged = api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=1)), body
    with FakeBroker(giving(single(0), damaged, single(2))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        assert data_of(consumer, 1) == [b"m0"]
        with pytest.raises(UnreadableMessage):
            consumer.receive(20_000)
        assert data_of(consumer, 1) == [b"m2"]
        assert len(broker.peers) == 1


def test_seeking_forgets_parts_of_batches() -> None:
    """Messages acknowledged before a seek to an earlier position are delivered again."""
    with FakeBroker(giving(batch(3, 3))) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        consumer.acknowledge(consumer.receive(20_000))
        broker.peers[0].push(api.CommandCloseConsumer(consumer_id=1, request_id=NONE))
        wait_until_equal("the rest", lambda: len(broker.of(api.CommandSubscribe)), 2, 20)
        assert data_of(consumer, 2) == [b"b1", b"b2"]
        consumer.seek(MessageId(7, 3))
        broker.peers[0].push(api.CommandCloseConsumer(consumer_id=1, request_id=NONE))
        assert data_of(consumer, 3) == [b"b0", b"b1", b"b2"]


def test_markers_of_brokers_are_passed_over() -> None:
    """Markers are not delivered to the application."""
    marker = (
        api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=0)),
        framed(api.MessageMetadata(marker_type=10), b"x"),
    )
    with FakeBroker(giving(marker, single(1))) as broker, NativeClient(broker.url) as client:
        assert data_of(client.subscribe(TOPIC, "sub"), 1) == [b"m1"]


@pytest.mark.parametrize("closes", [True, False])
def test_seeking(*, closes: bool) -> None:
    """Messages sent before a seek are dropped, later ones are received; the broker may close the consumer for it."""

    def answer(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandSeek):
            done = api.CommandSuccess(request_id=command.request_id)
            return (
                [single(8), api.CommandCloseConsumer(consumer_id=1, request_id=NONE), done]
                if closes
                else [single(8), done, single(9)]
            )
        if isinstance(command, api.CommandFlow) and broker.of(api.CommandSeek):
            return [single(9)] if closes else []
        return giving(single(0), single(1))(_peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        assert data_of(consumer, 1) == [b"m0"]
        consumer.seek(MessageId(7, 9))
        if closes:
            assert data_of(consumer, 1) == [b"m9"]
        (request,) = broker.of(api.CommandSeek)
        assert isinstance(request, api.CommandSeek)
        assert request.message_id == api.MessageIdData(ledgerId=7, entryId=9)
        assert not request.HasField("message_publish_time")


def test_last_message_and_unsubscribing() -> None:
    """Requests of a consumer, and its end."""

    def answer(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandGetLastMessageId):
            return [
                api.CommandGetLastMessageIdResponse(
                    last_message_id=api.MessageIdData(ledgerId=7, entryId=5, partition=-1, batch_index=2),
                    request_id=command.request_id,
                )
            ]
        return None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        assert consumer.get_last_message_id() == MessageId(7, 5, 2)
        consumer.unsubscribe()
        assert len(broker.of(api.CommandUnsubscribe)) == 1
        with pytest.raises(AlreadyClosed):
            consumer.receive(1000)


def test_closing_ends_waiting_calls() -> None:
    """No call waits for a message of a closed consumer."""
    with FakeBroker(usual) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub")
        threading.Timer(0.1, consumer.close).start()
        with pytest.raises(AlreadyClosed):
            consumer.receive()
        wait_until_equal("the close command", lambda: len(broker.of(api.CommandCloseConsumer)), 1, 20)


def test_ids_are_serialized() -> None:
    """With and without a batch."""
    for message_id in (MessageId(7, 5), MessageId(7, 5, 2, 3, 1)):
        assert MessageId.deserialize(message_id.serialize()) == message_id
    assert min(MessageId(7, 5, 1), MessageId(6, 9), MessageId(7, 5, 0)) == MessageId(6, 9)
    message_id = MessageId(7, 5, 2, 3, 1)
    assert (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index(), message_id.partition()) == (
        7,
        5,
        2,
        1,
    )
