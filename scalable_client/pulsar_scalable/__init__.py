"""Python client for scalable topics of Apache Pulsar (PIP-460 and PIP-468), also on brokers older than Pulsar 5.

with ScalableClient("pulsar://localhost:6650") as client:
    with client.create_producer("orders") as producer:
        producer.send(b"one", partition_key="customer-1")
    with client.subscribe_stream("orders", "billing") as consumer:
        message = consumer.receive()
        consumer.acknowledge(message)
"""

from pulsar_scalable import errors
from pulsar_scalable.checkpoint_consumer import Checkpoint, CheckpointConsumer
from pulsar_scalable.client import ScalableClient
from pulsar_scalable.enums import Compression, InitialPosition
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.messages import Message, MessageId
from pulsar_scalable.options import ClientOptions, ConsumerOptions, ProducerOptions
from pulsar_scalable.producer import ScalableProducer
from pulsar_scalable.queue_consumer import QueueConsumer
from pulsar_scalable.stream_consumer import StreamConsumer

__all__ = [
    "Checkpoint",
    "CheckpointConsumer",
    "ClientOptions",
    "Compression",
    "ConsumerOptions",
    "InitialPosition",
    "Message",
    "MessageId",
    "ProducerOptions",
    "QueueConsumer",
    "ScalableClient",
    "ScalableError",
    "ScalableProducer",
    "StreamConsumer",
    "errors",
]
