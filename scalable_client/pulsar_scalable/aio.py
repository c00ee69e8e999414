"""The client for asyncio: each call that blocks runs in a thread, so that the event loop stays free.

async with AsyncScalableClient("pulsar://localhost:6650") as client:
    async with await client.create_producer("orders") as producer:
        await producer.send(b"one", partition_key="customer-1")
    async with await client.subscribe_stream("orders", "billing") as consumer:
        async for message in consumer:
            await consumer.acknowledge(message)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar, Unpack

from pulsar_scalable.checkpoint_consumer import Checkpoint, CheckpointConsumer, StartPosition
from pulsar_scalable.client import ScalableClient
from pulsar_scalable.errors import AlreadyClosed, QueueFull, ScalableError, TimedOut
from pulsar_scalable.messages import Message, MessageId
from pulsar_scalable.options import ClientOptions, ConsumerOptions, MessageOptions, ProducerOptions
from pulsar_scalable.producer import ScalableProducer
from pulsar_scalable.queue_consumer import QueueConsumer
from pulsar_scalable.stream_consumer import StreamConsumer

_P = ParamSpec("_P")
_T = TypeVar("_T")
_InnerT = TypeVar("_InnerT", ScalableClient, ScalableProducer, QueueConsumer, StreamConsumer, CheckpointConsumer)
_MadeT = TypeVar("_MadeT", ScalableProducer, QueueConsumer, StreamConsumer, CheckpointConsumer)
_ReceiverT = TypeVar("_ReceiverT", QueueConsumer, StreamConsumer, CheckpointConsumer)
_SubscribedT = TypeVar("_SubscribedT", QueueConsumer, StreamConsumer)

_SLICE_MS = 500
_FULL_PAUSE = 0.01


class _Async(Generic[_InnerT]):
    """Base of the asyncio classes: runs the calls of a synchronous object in threads."""

    def __init__(self, inner: _InnerT, threads: int = 2) -> None:
        self._inner = inner
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pulsar-scalable aio")

    def _begin(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> asyncio.Future[_T]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
        except RuntimeError as cause:
            raise AlreadyClosed(f"already closed: {cause}") from cause

    async def _call(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._begin(call, *args, **kwargs)

    async def _make(self, call: Callable[_P, _MadeT], *args: _P.args, **kwargs: _P.kwargs) -> _MadeT:
        """Create something; if the caller is cancelled before it is ready, close it afterwards."""
        making = self._begin(call, *args, **kwargs)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_close_made)  # mutant: scalable-client/what-a-cancelled-call-makes-stays
            raise

    async def close(self) -> None:
        """Close it. Closing twice is safe."""
        await asyncio.to_thread(self._inner.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _close_made(making: asyncio.Future[_MadeT]) -> None:
    if not making.cancelled() and making.exception() is None:
        # A consumer without an application would keep its segments from other consumers.
        asyncio.get_running_loop().run_in_executor(None, making.result().close)


class AsyncScalableProducer(_Async[ScalableProducer]):
    """`ScalableProducer` for asyncio."""

    def __init__(self, inner: ScalableProducer) -> None:
        super().__init__(inner)
        # Callers that wait for room keep their order.
        self._turn = asyncio.Lock()

    async def send(self, content: bytes, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message and wait until it is stored. Concurrent calls keep their order.

        It waits while the producer's queue is full. A cancelled call may have sent its message nevertheless.
        Options and errors are those of `ScalableProducer.send`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MessageId] = loop.create_future()

        def complete(error: ScalableError | None, message_id: MessageId | None) -> None:
            if future.done():
                return
            if message_id is not None:
                future.set_result(message_id)
            else:
                future.set_exception(error or ScalableError("delivery outcome unknown"))

        def callback(error: ScalableError | None, message_id: MessageId | None) -> None:
            loop.call_soon_threadsafe(complete, error, message_id)

        async with self._turn:
            while True:
                try:
                    self._inner.send_async(content, callback, **options)
                except QueueFull:
                    await asyncio.sleep(_FULL_PAUSE)
                else:
                    break
        return await future

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that this producer has stored; -1 for none."""
        return self._inner.last_sequence_id()

    async def flush(self) -> None:
        """Wait until all messages sent so far are stored or have failed."""
        await self._call(self._inner.flush)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; without an error, wait first until all sent messages are stored."""
        try:
            if kind is None and not self._inner.is_closed:
                await self.flush()
        finally:
            await self.close()


class _AsyncReceiver(_Async[_ReceiverT]):
    """Base of all consumers for asyncio."""

    def __init__(self, inner: _ReceiverT) -> None:
        super().__init__(inner)
        self._waiting: asyncio.Future[None] | None = None

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message; errors are those of the synchronous consumer. A cancelled call takes none.

        Args:
            timeout_millis: longest time to wait; None to wait indefinitely.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        # Let other tasks of the loop run, also if messages are waiting.
        await asyncio.sleep(0)
        while True:
            try:
                # Not in a thread: it would continue after a cancellation and take a message that no call returns.
                return self._inner.receive(0)
            except TimedOut:
                remaining = None if until is None else until - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise
            await self._wait(remaining)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until there may be a message; all calls share one thread for this."""
        if self._waiting is None or self._waiting.done():
            self._waiting = self._begin(self._inner.wait_for_message, _SLICE_MS)
        await asyncio.wait([self._waiting], timeout=seconds)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; end when the consumer is closed."""
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None


class _AsyncSubscribed(_AsyncReceiver[_SubscribedT]):
    """Base of consumers with subscriptions."""

    async def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message."""
        await self._call(self._inner.acknowledge, message)

    async def negative_acknowledge(self, message: Message) -> None:
        """Request redelivery of a message after the redelivery delay."""
        await self._call(self._inner.negative_acknowledge, message)


class AsyncQueueConsumer(_AsyncSubscribed[QueueConsumer]):
    """`QueueConsumer` for asyncio."""


class AsyncStreamConsumer(_AsyncSubscribed[StreamConsumer]):
    """`StreamConsumer` for asyncio."""

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all messages received before it; see `StreamConsumer.acknowledge_cumulative`."""
        await self._call(self._inner.acknowledge_cumulative, message)

    async def detach(self) -> None:
        """Close it, but keep its session for the grace period."""
        await asyncio.to_thread(self._inner.detach)
        await self.close()


class AsyncCheckpointConsumer(_AsyncReceiver[CheckpointConsumer]):
    """`CheckpointConsumer` for asyncio."""

    def checkpoint(self) -> Checkpoint:
        """Return the positions after all messages that `receive` returned."""
        return self._inner.checkpoint()


class AsyncScalableClient(_Async[ScalableClient]):
    """`ScalableClient` for asyncio.

    Args:
        service_url: service URL of the brokers.
        options: those of `ScalableClient`.
    """

    def __init__(self, service_url: str, options: ClientOptions | None = None) -> None:
        super().__init__(ScalableClient(service_url, options))

    async def create_producer(self, topic: str, options: ProducerOptions | None = None) -> AsyncScalableProducer:
        """Create a producer. It always waits for room, so `block_if_queue_full` has no effect."""
        options = replace(options or ProducerOptions(), block_if_queue_full=False)
        return AsyncScalableProducer(
            await self._make(
                self._inner.create_producer, topic, replace(options or ProducerOptions(), block_if_queue_full=False)
            )
        )

    async def subscribe(
        self, topic: str, subscription_name: str, options: ConsumerOptions | None = None
    ) -> AsyncQueueConsumer:
        """Create a consumer without order; see `ScalableClient.subscribe`."""
        return AsyncQueueConsumer(await self._make(self._inner.subscribe, topic, subscription_name, options))

    async def subscribe_stream(
        self, topic: str, subscription_name: str, options: ConsumerOptions | None = None
    ) -> AsyncStreamConsumer:
        """Create a consumer with order per key; see `ScalableClient.subscribe_stream`."""
        return AsyncStreamConsumer(await self._make(self._inner.subscribe_stream, topic, subscription_name, options))

    async def create_checkpoint_consumer(
        self, topic: str, start: StartPosition = "earliest"
    ) -> AsyncCheckpointConsumer:
        """Create a consumer whose positions the application stores."""
        return AsyncCheckpointConsumer(await self._make(self._inner.create_checkpoint_consumer, topic, start))
