"""The asyncio side of consumers and producers: calls that are cancelled, and what is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from scalable_client.tests.support.fake_topics import TOPIC, FakeWorld

from pulsar_scalable import CheckpointConsumer, QueueConsumer, ScalableClient, ScalableProducer
from pulsar_scalable.aio import (
    AsyncCheckpointConsumer,
    AsyncQueueConsumer,
    AsyncScalableClient,
    AsyncScalableProducer,
)
from pulsar_scalable.errors import AlreadyClosed, TimedOut
from pulsar_scalable.names import TopicName
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from tests.support.waiting import timeout_for, wait_for

NUMBERS = [str(number) for number in range(20)]

MakeConsumer = Callable[[FakeWorld], AsyncCheckpointConsumer | AsyncQueueConsumer]


def checkpoint(world: FakeWorld) -> AsyncCheckpointConsumer:
    """Create a consumer without a subscription."""
    return AsyncCheckpointConsumer(CheckpointConsumer(world, TOPIC, "earliest"))


def queue(world: FakeWorld) -> AsyncQueueConsumer:
    """Create a consumer with a subscription."""
    return AsyncQueueConsumer(QueueConsumer(world, TOPIC, "work", ConsumerOptions()))


@pytest.mark.parametrize("make", [checkpoint, queue])
async def test_calls_that_are_cancelled(make: MakeConsumer) -> None:
    """A cancelled call takes no message, whenever the message comes."""
    world, got = FakeWorld(1), list[str]()
    async with make(world) as consumer:
        for number in NUMBERS:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.01)
            world.store(0, number)
            got.append((await consumer.receive(20_000)).data().decode())
        for number in NUMBERS:
            cancelled = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            cancelled.cancel()
            world.store(0, number)
            assert await asyncio.gather(cancelled, return_exceptions=True) != []
            got.append((await consumer.receive(20_000)).data().decode())
        with pytest.raises(TimedOut):
            await consumer.receive(50)
    assert got == NUMBERS * 2


async def test_many_calls_at_once() -> None:
    """Each gets one message, and one thread waits for them all."""
    world = FakeWorld(1)
    async with checkpoint(world) as consumer:
        calls = [asyncio.ensure_future(consumer.receive(20_000)) for _ in NUMBERS]
        await asyncio.sleep(0)
        world.store(0, *NUMBERS)
        assert sorted([(await call).data().decode() for call in calls], key=int) == NUMBERS


async def test_a_loop_that_only_receives() -> None:
    """Other tasks run, however many messages wait."""
    world, turns = FakeWorld(1), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    world.store(0, *NUMBERS)
    async with checkpoint(world) as consumer:
        await consumer.receive(20_000)
        counting = asyncio.ensure_future(count())
        for _ in NUMBERS[1:]:
            await consumer.receive(20_000)
        counting.cancel()
    assert turns >= len(NUMBERS) - 1


async def test_what_is_closed() -> None:
    """A closed consumer raises, and can be closed again."""
    world = FakeWorld(1)
    async with queue(world) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        world.store(0, "a")
        message = await waiting
        ended = asyncio.ensure_future(_all_of(consumer))
        await asyncio.sleep(0)
        await consumer.close()
        assert await asyncio.wait_for(ended, 20) == 0
        for call in (consumer.receive(100), consumer.acknowledge(message), consumer.negative_acknowledge(message)):
            with pytest.raises(AlreadyClosed):
                await call
    async with AsyncScalableProducer(ScalableProducer(world, TOPIC, ProducerOptions())) as producer:
        await producer.send(b"a")
        await producer.close()
        for call in (producer.send(b"b"), producer.flush()):
            with pytest.raises(AlreadyClosed):
                await call


async def _all_of(consumer: AsyncQueueConsumer) -> int:
    return len([message async for message in consumer])


async def test_a_call_that_is_cancelled_while_it_subscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer that is made nevertheless is closed, so that it keeps no messages from others."""
    world, begun, goes_on = FakeWorld(1), threading.Event(), threading.Event()

    def subscribe(_: ScalableClient, topic: str, subscription: str, options: ConsumerOptions | None) -> QueueConsumer:
        begun.set()
        goes_on.wait(timeout_for(10))
        return QueueConsumer(world, TopicName.parse(topic), subscription, ConsumerOptions())

    monkeypatch.setattr(ScalableClient, "subscribe", subscribe)
    async with AsyncScalableClient("pulsar://127.0.0.1:9") as client:
        call = asyncio.ensure_future(client.subscribe(TOPIC.path, "work"))
        await asyncio.to_thread(begun.wait, 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        goes_on.set()
        cursors = world.segments[0].cursors
        await asyncio.to_thread(
            wait_for, "the consumer is gone", lambda: "work" in cursors and not cursors["work"].consumers, 10
        )
