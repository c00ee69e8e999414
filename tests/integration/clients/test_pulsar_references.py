"""References to ledgers in a real broker's metadata, compared with the existing ledgers; rewritten nodes are served."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Generator
from contextlib import closing
from itertools import chain
from typing import Any

import pytest

from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.pulsar.attribution import set_schema_attribution
from clients.pulsar.compression import Compression
from clients.pulsar.managed_ledgers import compacted_ledger, decode_cursor_entry, unpack
from clients.pulsar.names import TopicName
from clients.pulsar.references import LedgerReference, ReferenceKind, references
from clients.stores import Access
from clients.zookeeper import Coordination, ZooKeeperReader
from models.store_url import parse_store_url
from pulsar_devstack.servers.admin import StackAdmin, topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.bookie_cluster import cursor_node
from tests.support.clients.bookies import recover_ledger
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")
schema: Any = importlib.import_module("pulsar.schema")

# Two versions of one schema, of which the second can be read by readers of the first.
VERSIONS: list[Any] = [
    type("Event", (schema.Record,), {"name": schema.String(), **more})
    for more in ({}, {"size": schema.Integer(required_default=True)})
]
TOPICS = "/managed-ledgers/public/default/persistent"
MESSAGES = 25
#: Header and CRC32C of an entry.
BEFORE_PAYLOAD = 32 + 4
ACKNOWLEDGED = set(range(12)) | {15, 18}


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A broker with short ledgers, an index of delayed messages on the bookies, and compressed topics."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "brokerDeleteInactiveTopicsEnabled": "false",
        # Else a broker that is killed has forgotten what was acknowledged in the second after a stored acknowledgement.
        "managedLedgerDefaultMarkDeleteRateLimit": "0",
        "delayedDeliveryTrackerFactoryClassName": (
            "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
        ),
        "delayedDeliveryMinIndexCountPerBucket": "5",
        "managedLedgerInfoCompressionType": "LZ4",
        "managedLedgerInfoCompressionThresholdInBytes": "1",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=2, brokers=1, broker_settings=settings))
    fill(stack)
    return stack


def fill(stack: Stack) -> None:
    """Create topics with cursors, schemas, a compacted topic and delayed messages."""
    client = quiet_client(stack.broker_url)
    compacted = TopicName.parse("compact")
    with closing(client), StackAdmin(stack.admin_urls[0]) as admin:
        consumer = client.subscribe(topic_url("plain"), "sub", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic_url("plain"), batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%d" % number)
        for _ in range(MESSAGES):
            message = consumer.receive(10_000)
            if int(message.data()) in ACKNOWLEDGED:
                consumer.acknowledge(message)
        for kind in VERSIONS:
            client.create_producer(topic_url("events"), schema=schema.JsonSchema(kind)).send(kind(name="a"))
        producer = client.create_producer(topic_url("compact"), batching_enabled=False)
        for number in range(9):
            producer.send(b"%d" % number, partition_key=f"key-{number % 3}")
        admin.topics.compact(compacted)
        wait_until_equal("the compaction", lambda: admin.topics.compaction(compacted).status, "SUCCESS", 60)
        client.subscribe(topic_url("delayed"), "later", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic_url("delayed"), batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%d" % number, deliver_after=datetime.timedelta(seconds=3600 + number * 60))
        wait_for("an index of delayed messages", lambda: of_kind(stack, ReferenceKind.DELAYED_INDEX), 60)


@pytest.fixture
def store(stack: Stack) -> Generator[Coordination]:
    """The brokers' store."""
    with Coordination(parse_store_url(stack.zk_url)) as coordination:
        yield coordination


def of_kind(stack: Stack, kind: ReferenceKind) -> list[LedgerReference]:
    """Return the references of one kind."""
    with ZooKeeperReader(parse_store_url(stack.zk_url)) as reader:
        return sorted(reference for reference in chain.from_iterable(references(reader)) if reference.kind is kind)


def ledgers(stack: Stack) -> dict[int, LedgerMetadata]:
    """Return all ledgers of the bookies."""
    with LedgerDirectory(parse_store_url(stack.zk_url + "/ledgers"), Access()) as directory:
        return {record.ledger_id: record.metadata for record in chain.from_iterable(directory.scan())}


def of_component(stack: Stack, component: str) -> set[int]:
    """Return the ledgers that Pulsar made for this component."""
    return {number for number, metadata in ledgers(stack).items() if metadata.component == component}


def ids(mentioned: list[LedgerReference]) -> set[int]:
    """Return the ids of the ledgers that are mentioned."""
    return {reference.ledger_id for reference in mentioned}


def test_live_broker(stack: Stack) -> None:
    """Every ledger is referred to by its kind, except the compacted topic's, which only the cursor's ledger names."""
    # The broker writes a bucket of the delayed index in the background, and names its ledger when it is full.
    wait_until_equal(
        "buckets of the delayed index that are not named",
        lambda: ids(of_kind(stack, ReferenceKind.DELAYED_INDEX)) ^ of_component(stack, "delayed-index-bucket"),
        set[int](),
        30,
    )
    data, cursors = of_kind(stack, ReferenceKind.DATA), of_kind(stack, ReferenceKind.CURSOR)
    schemas, delayed = of_kind(stack, ReferenceKind.SCHEMA), of_kind(stack, ReferenceKind.DELAYED_INDEX)
    assert ids(data) | ids(cursors) == of_component(stack, "managed-ledger")
    assert {"plain/sub", "compact/__compaction"} <= {cursor.path.removeprefix(TOPICS + "/") for cursor in cursors}
    assert ids(schemas) == of_component(stack, "schema")
    assert len([schema for schema in schemas if schema.path == "/schemas/public/default/events"]) == 2
    assert ids(delayed) == of_component(stack, "delayed-index-bucket")
    assert {reference.path for reference in delayed} == {f"{TOPICS}/delayed/later"}
    assert of_kind(stack, ReferenceKind.COMPACTED) == []
    assert len(of_component(stack, "compacted-ledger")) == 1
    with StackAdmin(stack.admin_urls[0]) as admin:
        for topic in ("plain", "events", "compact", "delayed"):
            mine = [cursor for cursor in (*data, *cursors) if f"{cursor.path}/".startswith(f"{TOPICS}/{topic}/")]
            assert ids(mine) == admin.ledgers(topic)
            assert [reference.ledger_id for reference in mine if reference.last] == [
                max(ids([reference for reference in mine if reference in data]))
            ]


def test_broker_compresses(store: Coordination) -> None:
    """The nodes of topics in these tests are compressed."""
    node = store.get(f"{TOPICS}/plain")
    assert node
    assert unpack(node[0])[0] is Compression.LZ4


def test_rewritten_schema_is_served(stack: Stack, store: Coordination) -> None:
    """A live broker serves both versions of a schema with attributions, and removing those restores its bytes."""
    path = "/schemas/public/default/events"
    node = store.get(path)
    assert node
    stamped = set_schema_attribution(node[0], "A", "B")
    assert stamped
    stat = store.set(path, stamped, node[1].version)
    assert {reference.cluster for reference in of_kind(stack, ReferenceKind.SCHEMA) if reference.path == path} == {"B"}
    with StackAdmin(stack.admin_urls[0]) as admin:
        assert [version.version for version in admin.schemas.versions(TopicName.parse("events"))] == [0, 1]
    back = set_schema_attribution(stamped, "B", None)
    assert back == node[0]
    store.set(path, node[0], stat.version)


def test_crash_and_clean_stop(stack: Stack, store: Coordination) -> None:
    """After a crash the cursor's ledger names the compacted topic's; rewritten cursors keep their place.

    A clean stop puts the compacted topic's ledger into the cursor's node, so that nothing is left unreferenced.
    """
    stack["broker-1"].kill()
    [cursor] = [
        reference
        for reference in of_kind(stack, ReferenceKind.CURSOR)
        if reference.path == f"{TOPICS}/compact/__compaction"
    ]
    url = parse_store_url(stack.zk_url + "/ledgers")
    with LedgerDirectoryWriter(url, Access()) as directory, Bookies(directory.bookies) as bookies:
        record = recover_ledger(directory, bookies, cursor.ledger_id)
        last = LedgerReader(bookies).read_entry(cursor.ledger_id, record.metadata, record.metadata.last_entry)
    named = compacted_ledger(decode_cursor_entry(last[BEFORE_PAYLOAD:]))
    assert {named} == of_component(stack, "compacted-ledger")

    for reference in of_kind(stack, ReferenceKind.CURSOR):
        node = store.get(reference.path)
        assert node
        store.set(reference.path, cursor_node.attributed(node[0], "B"), node[1].version)
    assert {reference.cluster for reference in of_kind(stack, ReferenceKind.CURSOR)} == {"B"}

    stack["broker-1"].start()
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(topic_url("plain"), "sub", consumer_type=pulsar.ConsumerType.Shared)
        due = set(range(MESSAGES)) - ACKNOWLEDGED
        assert {int(consumer.receive(20_000).data()) for _ in due} == due
        reader = client.create_reader(topic_url("compact"), pulsar.MessageId.earliest, is_read_compacted=True)
        assert {reader.read_next(20_000).partition_key() for _ in range(3)} == {"key-0", "key-1", "key-2"}

    stack["broker-1"].stop()
    kinds = (kind for kind in ReferenceKind if kind is not ReferenceKind.CURSOR)
    assert of_kind(stack, ReferenceKind.CURSOR) == []
    assert {reference.ledger_id for kind in kinds for reference in of_kind(stack, kind)} == ledgers(stack).keys()
    assert {named} == ids(of_kind(stack, ReferenceKind.COMPACTED))
