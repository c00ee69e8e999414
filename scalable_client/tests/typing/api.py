"""The public interface as an application uses it: pyright checks the types, and nothing here is run.

A line that a type checker must refuse is marked; pyright reports a mark that is not needed.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from typing import assert_type

from pulsar_scalable import (
    Checkpoint,
    CheckpointConsumer,
    ClientOptions,
    Compression,
    ConsumerOptions,
    InitialPosition,
    Message,
    MessageId,
    ProducerOptions,
    QueueConsumer,
    ScalableClient,
    ScalableError,
    ScalableProducer,
    StreamConsumer,
    errors,
)
from pulsar_scalable.aio import (
    AsyncCheckpointConsumer,
    AsyncQueueConsumer,
    AsyncScalableClient,
    AsyncScalableProducer,
    AsyncStreamConsumer,
)


def produce(client: ScalableClient) -> None:
    """Send messages, and wait for each or for none."""
    with client.create_producer(
        "orders",
        ProducerOptions(compression_type=Compression.ZLIB, properties={"team": "billing"}, batching_enabled=True),
    ) as producer:
        assert_type(producer, ScalableProducer)
        assert_type(producer.send(b"one", partition_key="customer", properties={"a": "b"}), MessageId)
        producer.send_async(b"two", stored, partition_key="customer")
        assert_type(producer.last_sequence_id(), int)
        producer.flush()
        producer.send("text")  # pyright: ignore[reportArgumentType]
    client.create_producer("orders", ProducerOptions(compression_type="ZLIB"))  # pyright: ignore[reportArgumentType]
    client.create_producer("orders", ProducerOptions(batching="yes"))  # pyright: ignore[reportCallIssue]


def stored(error: ScalableError | None, message_id: MessageId | None) -> None:
    """Take the outcome of one message."""
    del error, message_id


def share(client: ScalableClient) -> None:
    """Share the messages of a subscription with other consumers."""
    with client.subscribe("orders", "work", ConsumerOptions(initial_position=InitialPosition.Latest)) as consumer:
        assert_type(consumer, QueueConsumer)
        for message in assert_type(consumer.batch_receive(10, 100), list[Message]):
            consumer.acknowledge(message)
            consumer.acknowledge(message.message_id())
            consumer.negative_acknowledge(message)
        consumer.acknowledge(b"id")  # pyright: ignore[reportArgumentType]
        consumer.acknowledge_cumulative(consumer.receive())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def in_order(client: ScalableClient) -> None:
    """Receive in order per key, and read all that a message has."""
    with client.subscribe_stream("orders", "billing", ConsumerOptions(consumer_name="billing-1")) as consumer:
        assert_type(consumer, StreamConsumer)
        message = consumer.receive(timeout_millis=1000)
        assert_type(message, Message)
        assert_type(message.data(), bytes)
        assert_type(message.properties(), dict[str, str])
        assert_type(message.partition_key(), str)
        assert_type(message.publish_timestamp(), int)
        assert_type(message.segment_id(), int)
        assert_type(message.message_id().serialize(), bytes)
        assert_type(consumer.segments, list[int])
        consumer.acknowledge_cumulative(message)
        consumer.detach()


def replay(client: ScalableClient, saved: bytes) -> bytes:
    """Keep positions outside of the broker."""
    with client.create_checkpoint_consumer("orders", Checkpoint.deserialize(saved)) as consumer:
        assert_type(consumer, CheckpointConsumer)
        assert_type(consumer.receive(), Message)
        assert_type(consumer.checkpoint(), Checkpoint)
    client.create_checkpoint_consumer("orders", "newest")  # pyright: ignore[reportArgumentType]
    return client.create_checkpoint_consumer("orders", "latest").checkpoint().serialize()


def reason_of(error: ScalableError) -> str:
    """Return the reason of an error by its type."""
    if isinstance(error, errors.TopicNotFound | errors.NotAuthorized):
        return f"{error.code}: {error.message}"
    return str(error)


async def on_a_loop(service_url: str) -> None:
    """Use the same API with asyncio."""
    async with AsyncScalableClient(service_url, ClientOptions(operation_timeout_seconds=10)) as client:
        async with await client.create_producer("orders") as producer:
            assert_type(producer, AsyncScalableProducer)
            assert_type(await producer.send(b"one", partition_key="customer"), MessageId)
        queue = await client.subscribe("orders", "work")
        assert_type(queue, AsyncQueueConsumer)
        async for message in queue:
            assert_type(message, Message)
            await queue.acknowledge(message)
        stream = await client.subscribe_stream("orders", "billing")
        assert_type(stream, AsyncStreamConsumer)
        await stream.acknowledge_cumulative(await stream.receive(timeout_millis=1000))
        checkpoints = await client.create_checkpoint_consumer("orders", "earliest")
        assert_type(checkpoints, AsyncCheckpointConsumer)
        assert_type(checkpoints.checkpoint(), Checkpoint)
