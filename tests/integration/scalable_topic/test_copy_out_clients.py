"""Copies of scalable topics as real clients see them: what they sent, and where they send afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pulsar import schema as untyped_schema

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.key_hashes import partition_of
from clients.pulsar.names import StoredTopic, TopicName, stored_topic
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.batches import unpack
from clients.pulsar.wire.frames import Message, framed
from clients.pulsar.wire.producer import RawProducer
from models.scalable_topic.copies import KeyHash
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import Language, ProducerPlan, TopicPlan
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_devstack.traffic.runner import Traffic
from pulsar_wire.pulsar_api_pb2 import KeyValue, MessageMetadata
from tests.support.scalable_topic.copies import (
    APP,
    Copier,
    make_space,
    open_copier,
    received,
    require_all,
    require_certificate,
    send_as_regular,
    stored_in,
    topic,
)
from tests.support.scalable_topic.topics import make_scalable, pulsar

# The package has no type hints.
schema: Any = untyped_schema

COMPRESSIONS = ("LZ4", "ZLib", "ZSTD", "SNAPPY")
HASHES = {Language.PYTHON: KeyHash.CPP, Language.JAVA: KeyHash.JAVA, Language.JAVA_V5: KeyHash.MURMUR3}
PARTITIONS = 5


@pytest.fixture(scope="module")
def copier(stack: Stack, admin: PulsarAdmin) -> Generator[Copier]:
    """Copies in a namespace of which brokers delete nothing."""
    make_space(admin)
    with open_copier(stack) as copier:
        yield copier


class Order(schema.Record):
    """The first version of a schema."""

    number = schema.Integer()


class PricedOrder(schema.Record):
    """The second one."""

    _schema_name = "Order"
    number = schema.Integer()
    price = schema.Integer()


def test_each_library_has_a_hash_of_its_own(
    stack: Stack, admin: PulsarAdmin, copier: Copier, toolchain: Toolchain, tmp_path: Path
) -> None:
    """With their defaults, producers in Python, in Java and for scalable topics choose what we compute."""
    name = topic("hashes")
    admin.topics.create_partitioned(name, PARTITIONS)
    producers = [ProducerPlan(language.value, str(name), language, keys=20) for language in HASHES]
    plan = TopicPlan(str(name), PARTITIONS, tuple(producers), ())
    with Traffic.in_programs(stack.broker_url, [plan], tmp_path, with_scalable_clients(toolchain)) as traffic:
        traffic.wait_for_more(40)
        traffic.stop()
    keys = {(key, number) for number in range(PARTITIONS) for key, _ in _messages(stack, name.of_partition(number))}
    assert len(keys) == 20 * len(HASHES)
    for key, number in keys:
        language = Language(key.partition("/")[0])
        assert partition_of(key, PARTITIONS, HASHES[language]) == number


def test_producers_go_on_while_their_topic_is_copied(
    stack: Stack, admin: PulsarAdmin, copier: Copier, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Through a migration, a split and a merge; when they have stopped, one more call has all, in the stored order."""
    name, target = topic("live"), topic("live-copy")
    admin.topics.create_partitioned(name, 3)
    producers = [ProducerPlan(f"producer-{number}", str(name), Language.JAVA_V5) for number in range(2)]
    plan = TopicPlan(str(name), 3, tuple(producers), ())
    with Traffic.in_programs(stack.broker_url, [plan], tmp_path, with_scalable_clients(toolchain)) as traffic:
        traffic.wait_for_more(20)
        make_scalable(stack, admin, name)
        admin.scalable_topics.set_auto_scale_policy(name, AutoScalePolicy(enabled=False))
        traffic.wait_for_more(20)
        first = copier.copy_with_retries(name, target, partitions=2, subscriptions=(APP,))
        assert first.messages >= 40
        admin.scalable_topics.split(name, admin.scalable_topics.layout(name).active[0].segment_id)
        traffic.wait_for_more(20)
        left_child, right_child = admin.scalable_topics.layout(name).active[2:4]
        admin.scalable_topics.merge(name, left_child.segment_id, right_child.segment_id)
        traffic.wait_for_more(20)
        copier.copy_with_retries(name, target, partitions=2)
        audit = traffic.stop()
    assert audit.acknowledged == sum(producer.sent for producer in audit.producers)
    last = copier.copy_with_retries(name, target, partitions=2)
    require_certificate(last, audit.acknowledged)
    parts = [target.of_partition(number) for number in range(2)]
    copied = _by_key(stack, parts)
    # A child's id is always the higher one.
    layout = sorted(admin.scalable_topics.layout(name).segments.items())
    sent = _by_key(stack, [stored_topic(segment.topic(f"{name.namespace_path}/{name.topic}")) for _, segment in layout])
    assert copied == sent
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in sent.values())
    assert sum(map(len, copied.values())) == audit.acknowledged
    for number, partition in enumerate(parts):
        assert {partition_of(key, 2, KeyHash.JAVA) for key in _by_key(stack, [partition])} == {number}


def _by_key(stack: Stack, topics: Sequence[StoredTopic]) -> dict[str, list[int]]:
    """Return the numbers of each key's messages in the order in which they are stored."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for stored in topics:
        for key, properties in _messages(stack, stored):
            numbers[key].append(int(properties["number"]))
    return dict(numbers)


def test_batches_and_compressions(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Consumers of the copy get all messages; what is sent to it later follows in the partition of its key."""
    name, target = topic("forms"), topic("forms-copy")
    admin.topics.create_partitioned(name, 2)
    for index, compression in enumerate(COMPRESSIONS):
        numbers = range(50 * index, 50 * (index + 1))
        kind = getattr(pulsar.CompressionType, compression)
        send_as_regular(
            stack, name, numbers, compression_type=kind, batching_enabled=bool(index % 2), batching_max_messages=10
        )
    send_as_regular(stack, name, range(200, 250), batching_enabled=True, batching_max_messages=25)
    make_scalable(stack, admin, name)
    copied = copier.copy(name, target, partitions=3, hashing=KeyHash.CPP, subscriptions=(APP, "later"))
    require_certificate(copied, 250)
    assert copied.entries < 250
    require_all(received(stack, target, APP, 250), range(250))
    # The client that sent before sends to the copy now.
    send_as_regular(stack, target, range(250, 300))
    require_all(received(stack, target, "later", 300), range(300))


def test_chunks(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """A message that was sent in several entries is one for consumers of the copy, with a key and without."""
    name, target = topic("chunks"), topic("chunks-copy")
    admin.topics.create(name)
    bodies = {f"message {number}": bytes([number]) * 30_000 for number in range(4)}
    access = WireAccess()
    with RawProducer(stack.broker_url, name, access, name="app", notes={}, on_stored=lambda _place: None) as producer:
        for number, (text, body) in enumerate(bodies.items()):
            for chunk in _chunks(text, body, "key" if number % 2 else ""):
                producer.send(chunk)
        producer.flush()
    make_scalable(stack, admin, name)
    copied = copier.copy(name, target, partitions=3, subscriptions=(APP,))
    assert copied.entries == 3 * len(bodies)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer: Any = client.subscribe(str(target), APP)
        got = [consumer.receive(30_000) for _ in bodies]
        assert {message.properties()["text"]: message.data() for message in got} == bodies
        consumer.close()


def _chunks(text: str, body: bytes, key: str) -> Iterator[Message]:
    third = len(body) // 3
    for number in range(3):
        metadata = MessageMetadata(
            producer_name="app",
            sequence_id=0,
            publish_time=1,
            properties=[KeyValue(key="text", value=text)],
            uuid=f"app-{text}",
            num_chunks_from_msg=3,
            total_chunk_msg_size=len(body),
            chunk_id=number,
            uncompressed_size=len(body),
        )
        if key:
            metadata.partition_key = key
        yield framed(metadata, body[number * third : (number + 1) * third])


def test_schema_versions(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Messages name the versions of their schema by number, which are the same for the copy."""
    name, target = topic("orders"), topic("orders-copy")
    # Before the topic is there: a broker that has loaded it learns of new policies some time after the answer.
    admin.namespaces.set_schema_compatibility(name.namespace_path, "ALWAYS_COMPATIBLE")
    admin.topics.create(name)
    with closing(quiet_client(stack.broker_url)) as client:
        for begin, kind in ((0, Order), (5, PricedOrder)):
            producer: Any = client.create_producer(str(name), schema=schema.JsonSchema(kind))
            for number in range(begin, begin + 5):
                producer.send(kind(number=number), partition_key="key")
            producer.close()
    admin.namespaces.set_schema_compatibility(name.namespace_path, "FULL")
    make_scalable(stack, admin, name)
    copier.copy(name, target, partitions=2, subscriptions=(APP,))
    assert _versions(admin, target) == _versions(admin, name)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer: Any = client.subscribe(str(target), APP, schema=schema.JsonSchema(PricedOrder))
        got = [consumer.receive(30_000) for _ in range(10)]
        assert [message.value().number for message in got] == list(range(10))
        assert [int.from_bytes(message.schema_version().encode("latin1")) for message in got] == [0] * 5 + [1] * 5
        consumer.close()
    assert admin.topic_policies.get(target, "schemaCompatibilityStrategy") is None


def _messages(stack: Stack, topic: StoredTopic) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield key and properties of each message of a partition, or a segment."""
    for entry in stored_in(stack, topic):
        for metadata in [single.metadata for single in unpack(entry)] if entry.is_batch else [entry.metadata]:
            yield metadata.partition_key, {pair.key: pair.value for pair in metadata.properties}


def _versions(admin: PulsarAdmin, name: TopicName) -> list[tuple[int, str, str]]:
    return [(version.version, version.type, version.data) for version in admin.schemas.versions(name)]
