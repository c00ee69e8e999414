"""A broker that breaks connections and forgets receipts at any time: nothing is lost, doubled or out of order."""

from __future__ import annotations

import random
import threading
import time

import pytest
from scalable_client.tests.support.fake_broker import NONE, FakeBroker, Peer, unheard

from pulsar_scalable.errors import ScalableError
from pulsar_scalable.native import MessageId, NativeClient
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from pulsar_scalable.native.payload import framed
from pulsar_scalable.options import ProducerOptions
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.frames import Command
from tests.support.waiting import wait_for

TOPIC = "segment://public/default/orders/0000-ffff-0"
MESSAGES = 400


class Deduplicating:
    """Stores each number once, as a broker with deduplication does, and often breaks what it does.

    Attributes:
        stored: numbers, in order.
    """

    def __init__(self, seed: int) -> None:
        self.stored: list[int] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, peer: Peer, command: Command) -> list[Command] | None:
        """Return the broker's answers to a command."""
        chance = self._random.random()
        if isinstance(command, api.CommandProducer) and chance < 0.2:
            return [api.CommandError(request_id=command.request_id, error=6, message="not yet")]
        if not isinstance(command, api.CommandSend):
            return None
        with self._lock:
            first = command.sequence_id >= len(self.stored)
            if first:
                # What comes out of order would be lost for good.
                assert command.sequence_id == len(self.stored)
                self.stored.append(command.sequence_id)
        if chance < 0.01:
            peer.drop()
            return []
        if chance < 0.015:
            return [api.CommandCloseProducer(producer_id=command.producer_id, request_id=NONE)]
        place = (
            api.MessageIdData(ledgerId=7, entryId=command.sequence_id)
            if first
            else api.MessageIdData(ledgerId=NONE, entryId=NONE)
        )
        return [
            api.CommandSendReceipt(producer_id=command.producer_id, sequence_id=command.sequence_id, message_id=place)
        ]


@pytest.mark.parametrize("seed", range(4))
def test_a_producer(seed: int) -> None:
    """Each message is stored once and called back once, in order."""
    outcomes: list[tuple[int, ScalableError | MessageId | None]] = []
    broker_side = Deduplicating(seed)
    with FakeBroker(broker_side) as broker, NativeClient(broker.url) as client:
        producer = client.create_producer(TOPIC, ProducerOptions(block_if_queue_full=True, max_pending_messages=50))
        for number in range(MESSAGES):

            def on_sent(error: ScalableError | None, place: MessageId | None, number: int = number) -> None:
                outcomes.append((number, error or place))

            producer.send_async(b"x", on_sent)
        producer.flush()
        assert len(broker.of(api.CommandProducer)) > 2
    assert broker_side.stored == list(range(MESSAGES))
    assert [number for number, _ in outcomes] == list(range(MESSAGES))
    assert all(isinstance(message_id, MessageId) for _, message_id in outcomes)


class Redelivering:
    """Sends what is not acknowledged each time that a consumer opens, and often breaks the connection.

    Attributes:
        acknowledged: numbers.
    """

    def __init__(self, seed: int) -> None:
        self.acknowledged: set[int] = set()
        self._random = random.Random(seed)
        self._left: list[int] = []

    def __call__(self, peer: Peer, command: Command) -> list[Command | tuple[Command, bytes]] | None:
        """Return the broker's answers to a command."""
        if isinstance(command, api.CommandAck):
            if self._random.random() < 0.01:
                peer.drop()
                return []
            self.acknowledged.update(message_id.entryId for message_id in command.message_id)
        if isinstance(command, api.CommandSubscribe):
            self._left = [number for number in range(MESSAGES) if number not in self.acknowledged]
        if isinstance(command, api.CommandFlow):
            now, self._left = self._left[: command.messagePermits], self._left[command.messagePermits :]
            return [
                (
                    api.CommandMessage(
                        consumer_id=command.consumer_id, message_id=api.MessageIdData(ledgerId=7, entryId=number)
                    ),
                    framed(api.MessageMetadata(producer_name="p", sequence_id=number), b"%d" % number),
                )
                for number in now
            ]
        return None


@pytest.mark.parametrize("seed", range(4))
def test_a_consumer(seed: int) -> None:
    """Each message comes, and all are acknowledged in the end."""
    broker_side, seen = Redelivering(seed), set[int]()
    with FakeBroker(broker_side) as broker, NativeClient(broker.url) as client:
        consumer = client.subscribe(TOPIC, "sub", SegmentConsumerOptions(receiver_queue_size=20))
        until = time.monotonic() + 30
        while len(broker_side.acknowledged) < MESSAGES and time.monotonic() < until:
            try:
                message = consumer.receive(100)
            except ScalableError:
                # An acknowledgement that was on its way is lost with its connection.
                broker.drop_all()
                continue
            seen.add(int(message.data()))
            consumer.acknowledge(message)
    assert seen == broker_side.acknowledged == set(range(MESSAGES))


def test_no_thread_survives_its_client() -> None:
    """After a client is closed, none of its threads runs, whatever it did."""
    before = set(threading.enumerate())
    with FakeBroker(unheard) as broker:
        with NativeClient(broker.url) as client:
            producer = client.create_producer(TOPIC)
            client.subscribe(TOPIC, "sub")
            broker.drop_all()
            producer.send_async(b"x", unheard)
        wait_for("the threads' end", lambda: not _own(before), 5)


def _own(before: set[threading.Thread]) -> list[str]:
    # Threads of the fake broker have other names.
    names = [thread.name for thread in set(threading.enumerate()) - before]
    return [name for name in names if name.startswith(("pulsar-scalable", "reopen", "watch", "register"))]
