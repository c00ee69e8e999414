"""Producers: every message ends once, in order, whatever the broker does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from scalable_client.tests.support.fake_broker import NONE, FakeBroker, Peer, unheard

from pulsar_scalable.errors import (
    AlreadyClosed,
    MessageTooBig,
    ProducerBusy,
    QueueFull,
    Refused,
    ScalableError,
    TimedOut,
    TopicTerminated,
    Unsupported,
)
from pulsar_scalable.native import Compression, MessageId, NativeClient, SegmentProducer
from pulsar_scalable.native.payload import Entry
from pulsar_scalable.options import ProducerOptions
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access
from pulsar_wire.frames import Command, decode
from tests.support.waiting import wait_until_equal

TOPIC = "segment://public/default/orders/0000-ffff-0"
Outcome = tuple[int, ScalableError | MessageId | None]


class Outcomes:
    """Outcomes of messages, in the order of the callbacks."""

    def __init__(self) -> None:
        self.all: list[Outcome] = []

    def of(self, number: int) -> Callable[[ScalableError | None, MessageId | None], None]:
        """Return the callback for a message."""

        def on_sent(error: ScalableError | None, message_id: MessageId | None) -> None:
            self.all.append((number, error or message_id))

        return on_sent

    @property
    def numbers(self) -> list[int]:
        """Return the sequence ids of the messages."""
        return [number for number, _ in self.all]


def receipt(command: api.CommandSend) -> api.CommandSendReceipt:
    """Return a receipt: a message is stored as the entry with its number."""
    return api.CommandSendReceipt(
        producer_id=command.producer_id,
        sequence_id=command.sequence_id,
        message_id=api.MessageIdData(ledgerId=7, entryId=command.sequence_id),
    )


def storing(_peer: Peer, command: Command) -> list[Command] | None:
    """Return a broker that stores everything."""
    return [receipt(command)] if isinstance(command, api.CommandSend) else None


def holding(_peer: Peer, command: Command) -> list[Command] | None:
    """Return a broker that never confirms a message."""
    return [] if isinstance(command, api.CommandSend) else None


def sent(broker: FakeBroker) -> list[int]:
    """Return the received sequence ids, in order."""
    return [command.sequence_id for command in broker.received if isinstance(command, api.CommandSend)]


def test_messages_are_stored() -> None:
    """Messages are stored in order, with growing sequence ids and the positions that the broker returns."""
    with FakeBroker(storing) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(producer_name="mine"))
        assert producer.last_sequence_id() == -1
        assert [producer.send(b"x") for _ in range(3)] == [MessageId(7, number) for number in range(3)]
        assert (producer.last_sequence_id(), producer.producer_name, producer.topic) == (2, "mine", TOPIC)
        (opened,) = broker.of(api.CommandProducer)
        assert isinstance(opened, api.CommandProducer)
        assert (opened.producer_name, opened.user_provided_producer_name) == ("mine", True)


def test_numbers_of_the_application() -> None:
    """Sequence ids may have gaps, and a message may be resent with its id; the next id follows the highest."""
    with FakeBroker(storing) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(initial_sequence_id=9))
        producer.send(b"x")
        producer.send(b"x", sequence_id=20)
        producer.send(b"x")
        assert producer.send(b"x", sequence_id=21).entry >= 0
        done = threading.Semaphore(0)
        for _ in range(2):
            producer.send_async(b"x", lambda error, _: done.release() if error is None else None, sequence_id=20)
        assert all(done.acquire(timeout=20) for _ in range(2))
        producer.send(b"x")
        assert sent(broker) == [10, 20, 21, 21, 20, 20, 22]
        assert producer.last_sequence_id() == 22


def test_entries_name_their_bucket() -> None:
    """A message with a key has the low half of its hash as its entry bucket, and one without a key has none."""
    with FakeBroker(storing) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        frames: list[bytes] = []

        def noting(_: object, message: Any) -> None:
            frames.append(message.frame)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer, "_write", noting)
            for key in ("order-17", "", None):
                producer.send_async(b"x", unheard, partition_key=key)
        entries = [Entry(decode(frame[4:]).body) for frame in frames]
    stamps = [(entry.metadata.entry_hash_min, entry.metadata.entry_hash_max) for entry in entries]
    assert stamps == [(0x87C0, 0x87C0), (0, 0), (0, 0)]
    assert [entry.metadata.HasField("entry_hash_min") for entry in entries] == [True, True, False]


def test_numbers_go_on_where_deduplication_is() -> None:
    """The broker knows the last one of a producer with this name."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandProducer):
            return [
                api.CommandProducerSuccess(request_id=command.request_id, producer_name="mine", last_sequence_id=41)
            ]
        return storing(_peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(producer_name="mine"))
        assert producer.last_sequence_id() == 41
        producer.send(b"x")
        assert sent(broker) == [42]


def test_sent_again_after_a_lost_connection() -> None:
    """Unanswered messages are sent again in order, with the same sequence ids, and before new messages."""
    outcomes, hold = Outcomes(), threading.Event()

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandSend) and not hold.is_set() and command.sequence_id > 1:
            return []
        return storing(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        for number in range(5):
            producer.send_async(b"x", outcomes.of(number))
        wait_until_equal("all to arrive", lambda: len(sent(broker)), 5, 20)
        # What is on its way when the connection breaks may be lost.
        wait_until_equal("the first receipts", lambda: outcomes.numbers, [0, 1], 20)
        hold.set()
        broker.drop_all()
        producer.send_async(b"x", outcomes.of(5))
        producer.flush()
        assert sent(broker) == [0, 1, 2, 3, 4, 2, 3, 4, 5]
        epochs = [command.epoch for command in broker.received if isinstance(command, api.CommandProducer)]
    assert outcomes.all == [(number, MessageId(7, number)) for number in range(6)]
    assert epochs == [0, 1]


def test_closed_by_the_broker() -> None:
    """The topic moves: late receipts still count, and only the rest is sent again."""
    outcomes, hold = Outcomes(), threading.Event()

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandSend) and not hold.is_set():
            if command.sequence_id < 2:
                return []
            hold.set()
            number = command.producer_id
            return [
                api.CommandCloseProducer(producer_id=number, request_id=NONE),
                api.CommandSendReceipt(
                    producer_id=number, sequence_id=0, message_id=api.MessageIdData(ledgerId=7, entryId=0)
                ),
                api.CommandSendReceipt(
                    producer_id=number, sequence_id=1, message_id=api.MessageIdData(ledgerId=7, entryId=1)
                ),
            ]
        return storing(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        for number in range(3):
            producer.send_async(b"x", outcomes.of(number))
        producer.flush()
        assert sent(broker)[-1] == 2
    assert outcomes.all == [(number, MessageId(7, number)) for number in range(3)]


def terminating(at: int) -> Callable[[Peer, Command], list[Command] | None]:
    """Return a broker whose topic is terminated before a message."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandSend):
            if command.sequence_id < at:
                # Receipts of stored messages may arrive after the rejection of another.
                return []
            refusal = api.CommandSendError(
                producer_id=command.producer_id, sequence_id=command.sequence_id, error=15, message="terminated"
            )
            if command.sequence_id > at:
                return [refusal]
            stored = [
                api.CommandSendReceipt(
                    producer_id=command.producer_id,
                    sequence_id=index,
                    message_id=api.MessageIdData(ledgerId=7, entryId=index),
                )
                for index in range(at)
            ]
            return [refusal, *stored]
        if isinstance(command, api.CommandProducer) and command.epoch:
            return [api.CommandError(request_id=command.request_id, error=15, message="terminated")]
        return None

    return answer


def test_terminated_topics() -> None:
    """Messages stored before the end are reported; all others fail with TopicTerminated in order, as do later sends."""
    outcomes = Outcomes()
    with FakeBroker(terminating(3)) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        for number in range(6):
            producer.send_async(b"x", outcomes.of(number))
        producer.flush()
        with pytest.raises(TopicTerminated):
            producer.send(b"x")
    assert outcomes.numbers == list(range(6))
    assert [outcome for _, outcome in outcomes.all[:3]] == [MessageId(7, number) for number in range(3)]
    assert all(isinstance(outcome, TopicTerminated) for _, outcome in outcomes.all[3:])


def test_messages_that_follow_a_termination() -> None:
    """A message that a callback sends while earlier ones fail fails after them."""
    outcomes = Outcomes()
    with FakeBroker(terminating(0)) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)

        def again(error: ScalableError | None, message_id: MessageId | None) -> None:
            outcomes.of(0)(error, message_id)
            producer.send_async(b"x", outcomes.of(9))

        producer.send_async(b"x", again)
        producer.send_async(b"x", outcomes.of(1))
        wait_until_equal("the end of all", lambda: len(outcomes.all), 3, 20)
    assert outcomes.numbers == [0, 1, 9]
    assert all(isinstance(outcome, TopicTerminated) for _, outcome in outcomes.all)


def test_a_failing_ledger() -> None:
    """An error that passes lets the producer be opened again, and the message be sent again."""
    failed = threading.Event()

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandSend) and not failed.is_set():
            failed.set()
            return [
                api.CommandSendError(
                    producer_id=command.producer_id,
                    sequence_id=command.sequence_id,
                    error=2,
                    message="bookies are away",
                )
            ]
        return storing(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        assert client.create_producer(TOPIC).send(b"x") == MessageId(7, 0)
        assert sent(broker) == [0, 0]
        assert len(broker.of(api.CommandCloseProducer)) == 1


def test_one_message_that_is_not_allowed() -> None:
    """A message that is not allowed fails alone."""

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandSend) and command.sequence_id == 1:
            return [
                api.CommandSendError(producer_id=command.producer_id, sequence_id=1, error=22, message="not this one")
            ]
        return storing(peer, command)

    outcomes = Outcomes()
    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        for number in range(3):
            producer.send_async(b"x", outcomes.of(number))
        producer.flush()
        assert len(broker.of(api.CommandProducer)) == 1
    outcomes_found = [outcome for _, outcome in outcomes.all]
    assert (outcomes_found[0], outcomes_found[2]) == (MessageId(7, 0), MessageId(7, 2))
    assert isinstance(outcomes_found[1], Refused)


def test_send_timeouts() -> None:
    """A message that is not stored in time fails, and its late receipt is ignored."""
    outcomes = Outcomes()
    with FakeBroker(holding) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(send_timeout_millis=300))
        producer.send_async(b"x", outcomes.of(0))
        producer.send_async(b"x", outcomes.of(1))
        wait_until_equal("both to fail", lambda: len(outcomes.all), 2, 20)
        broker.peers[0].push(receipt(api.CommandSend(producer_id=1, sequence_id=0)))
        assert producer.pending_messages == 0
    assert all(isinstance(outcome, TimedOut) for _, outcome in outcomes.all)


def test_full_queues() -> None:
    """A full queue refuses messages, or waits for room."""
    with FakeBroker(holding) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(max_pending_messages=2))
        producer.send_async(b"x", unheard)
        producer.send_async(b"x", unheard)
        with pytest.raises(QueueFull):
            producer.send_async(b"x", unheard)
        waiting = client.create_producer(
            TOPIC, ProducerOptions(max_pending_messages=1, block_if_queue_full=True, send_timeout_millis=300)
        )
        outcomes = Outcomes()
        waiting.send_async(b"x", outcomes.of(0))
        waiting.send_async(b"x", unheard)
        assert [type(outcome) for _, outcome in outcomes.all] == [TimedOut]


def test_messages_that_are_too_big() -> None:
    """A message that is too big is refused before it is sent."""
    with FakeBroker(storing) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        with pytest.raises(MessageTooBig):
            producer.send(bytes(1000))
        producer.send(b"x")
        packed = client.create_producer(TOPIC, ProducerOptions(compression_type=Compression.ZLIB))
        packed.send(bytes(5000))
        with pytest.raises(Unsupported, match="LZ4"):
            client.create_producer(TOPIC, ProducerOptions(compression_type=Compression.LZ4))


def test_closing() -> None:
    """On close, unstored messages fail, later sends are rejected, and the producer is closed at the broker."""
    outcomes = Outcomes()
    with FakeBroker(holding) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC)
        producer.send_async(b"x", outcomes.of(0))
        producer.close()
        producer.close()
        with pytest.raises(AlreadyClosed):
            producer.send(b"x")
        assert len(broker.of(api.CommandCloseProducer)) == 1
    assert isinstance(outcomes.all[0][1], AlreadyClosed)


def test_names_that_are_taken() -> None:
    """A first attempt fails; after a lost connection the broker may not have noticed it yet, and is asked again."""
    refusals = 0

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        nonlocal refusals
        if isinstance(command, api.CommandProducer) and refusals:
            refusals -= 1
            return [api.CommandError(request_id=command.request_id, error=16, message="name is taken")]
        return storing(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(producer_name="mine"))
        # However many connections it takes.
        refusals = 2
        broker.drop_all()
        producer.send(b"x")
        assert refusals == 0
    refusals = 1
    with FakeBroker(answer) as broker, NativeClient(broker.url) as client, pytest.raises(ProducerBusy):
        client.create_producer(TOPIC, ProducerOptions(producer_name="mine"))


def test_unready_brokers() -> None:
    """A broker that starts is asked again for as long as an operation may take, and no longer."""
    remaining = [2]

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandProducer) and remaining[0] > 0:
            remaining[0] -= 1
            return [api.CommandError(request_id=command.request_id, error=6, message="not yet")]
        return storing(peer, command)

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        client.create_producer(TOPIC).send(b"x")
    remaining[0] = 1000
    with FakeBroker(answer) as broker, NativeClient(broker.url, Access(operation_timeout=2)) as client:
        begun = time.monotonic()
        with pytest.raises(Refused, match="not yet"):
            client.create_producer(TOPIC)
        assert time.monotonic() - begun < Access().operation_timeout / 2


def test_callbacks_that_fail_or_wait() -> None:
    """A callback that raises does not stop others, and one that waits for its own producer is refused."""
    outcomes = Outcomes()
    errors: list[BaseException] = []
    with FakeBroker(storing) as broker, NativeClient(broker.url) as client:
        producer: SegmentProducer = client.create_producer(TOPIC)

        def fail(*_: object) -> None:
            raise RuntimeError("on purpose")

        def wait(*_: object) -> None:
            try:
                producer.send(b"x")
            except ScalableError as error:
                errors.append(error)

        producer.send_async(b"x", fail)
        producer.send_async(b"x", wait)
        producer.send_async(b"x", outcomes.of(2))
        producer.flush()
    assert outcomes.numbers == [2]
    assert "use send_async" in str(errors[0])
