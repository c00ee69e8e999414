"""Backlogs that are copied to green: messages, positions of subscriptions, and concurrent attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pulsar as untyped_pulsar
import pytest
from pulsar import schema as untyped_schema

from activities.blue_green.copy.copied_cursors import compare_cursors, compare_entries, place_cursors
from activities.blue_green.copy.subscription_copy import Idle, SubscriptionCopy, copy_tail, forget_copies, seed_topics
from clients.cas.store import write_alone
from clients.errors import RetryableError, StoreConflict, StoreError, StoreUnsupported, Superseded
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.reader import RawReader
from clients.stores import Access, open_cas
from models.blue_green.copies import CopyProof
from models.lifecycle.claim import CLAIM, Attempt, PacedClaim
from models.store_url import parse_store_url
from spark.blue_green.copy_record import CopyRecord, copy_record, recorded_copies
from spark.blue_green.spec import PRODUCER, CopyEnds
from spark.engine import SparkEngine
from tests.support.blue_green.environment import BLUE, GREEN, Clusters
from tests.support.waiting import wait_for

# The package has no type hints.
pulsar: Any = untyped_pulsar
schema: Any = untyped_schema

TENANT = "copies"
NAMESPACE = f"{TENANT}/all"
COMPRESSIONS = ("LZ4", "ZLib", "ZSTD", "SNAPPY")
QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
ME = Attempt("blue-green/blue", "run-1", 1, 1, 1)

MakeCopy = Callable[..., SubscriptionCopy]


@pytest.fixture(scope="module")
def engine() -> Iterator[SparkEngine]:
    """A local session."""
    started = SparkEngine("local[2]")
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def namespace(clusters: Clusters) -> Clusters:
    """A namespace on both clusters."""
    for admin, cluster in ((clusters.blue_admin, BLUE), (clusters.green_admin, GREEN)):
        admin.tenants.create(TENANT, Tenant(admin_roles=(), allowed_clusters=(cluster,)))
        admin.namespaces.create(NAMESPACE, {"replication_clusters": [cluster]})
        admin.namespaces.set_schema_compatibility(NAMESPACE, "ALWAYS_COMPATIBLE")
    return clusters


@pytest.fixture
def make_copy(namespace: Clusters, engine: SparkEngine) -> Iterator[MakeCopy]:
    """Copies on behalf of attempts; each one takes the claim."""
    clusters = namespace
    store = parse_store_url(clusters.blue.metadata_url)

    def make(attempt: Attempt = ME, **ends: Any) -> SubscriptionCopy:
        claim = PacedClaim(
            workflow_id=attempt.workflow_id,
            run_id=attempt.run_id,
            started_ms=attempt.started_ms,
            epoch=attempt.epoch,
            attempt=attempt.attempt,
        )
        with open_cas(store, Access()) as records:
            node = records.get(CLAIM)
            if node is None:
                records.create(CLAIM, claim.encode())
            else:
                records.set(CLAIM, claim.encode(), node.version)
        return SubscriptionCopy(
            engine=engine,
            tag=engine.new_tag("copy"),
            ends=CopyEnds(
                store=store,
                attempt=attempt,
                blue_url=clusters.blue.broker_url,
                green_url=clusters.green.broker_url,
                green_admin=tuple(clusters.green.admin_urls),
                ledgers=store.model_copy(update={"root": f"{store.root}/ledgers"}),
                **ends,
            ),
            blue=clusters.blue_admin,
            green=clusters.green_admin,
            fence=lambda: None,
            check=lambda: None,
            progress=lambda _done, _total: None,
        )

    yield make
    with open_cas(store, Access()) as records:
        node = records.get(CLAIM)
        if node is not None:
            records.delete(CLAIM, node.version)


class Order(schema.Record):
    """The first version of a schema."""

    number = schema.Integer()


class PricedOrder(schema.Record):
    """The second one."""

    _schema_name = "Order"
    number = schema.Integer()
    price = schema.Integer()


class Topic:
    """A topic that both clusters have, with the same subscriptions."""

    def __init__(self, clusters: Clusters, name: str, *subscriptions: str) -> None:
        self.name = TopicName(TENANT, "all", name)
        self._clusters = clusters
        for admin in (clusters.blue_admin, clusters.green_admin):
            admin.topics.create(self.name)
            for subscription in subscriptions:
                admin.subscriptions.create(self.name, subscription)

    def send(self, begin: int, end: int, record: Callable[[int], Any] | None = None, **options: Any) -> None:
        """Send keyed messages with properties and event times to blue."""
        client = pulsar.Client(self._clusters.blue.broker_url, logger=QUIET)
        producer = client.create_producer(str(self.name), send_timeout_millis=120_000, **options)
        for number in range(begin, end):
            producer.send_async(
                record(number) if record else f"message {number}".encode(),
                _ignore,
                partition_key=f"key {number % 3}",
                properties={"number": str(number)},
                event_timestamp=1_000 + number,
            )
        producer.flush()
        client.close()

    def acknowledge(self, subscription: str, numbers: set[int]) -> None:
        """Acknowledge messages on blue by their numbers, each by itself."""
        client = pulsar.Client(self._clusters.blue.broker_url, logger=QUIET)
        consumer = client.subscribe(str(self.name), subscription, consumer_type=pulsar.ConsumerType.Shared)
        remaining = set(numbers)
        while remaining:
            received = consumer.receive(30_000)
            number = int(received.properties()["number"])
            if number in remaining:
                consumer.acknowledge(received)
                remaining.discard(number)
        client.close()

    def roll(self, clusters: Clusters) -> None:
        """Begin a new ledger on both sides."""
        clusters.blue_admin.topics.unload(self.name)
        clusters.green_admin.topics.unload(self.name)

    def received(self, url: str, subscription: str, *, least: int) -> list[tuple[Any, ...]]:
        """Return all that a subscription gets, with every attribute; acknowledged afterwards.

        Args:
            url: of brokers.
            subscription: whose.
            least: how many are due, which brokers that are busy may give slowly; silence after them is the end.
        """
        client = pulsar.Client(url, logger=QUIET)
        consumer = client.subscribe(str(self.name), subscription)
        messages: list[tuple[Any, ...]] = []
        while True:
            try:
                message = consumer.receive(30_000 if len(messages) < least else 3_000)
            except pulsar.Timeout:
                break
            messages.append(
                (
                    message.data(),
                    message.partition_key(),
                    message.properties(),
                    message.event_timestamp(),
                    message.publish_timestamp(),
                    message.producer_name(),
                    message.schema_version() if hasattr(message, "schema_version") else None,
                    message.redelivery_count(),
                )
            )
        client.close()
        return messages


def numbers(received: list[tuple[Any, ...]]) -> list[int]:
    """Return the numbers of messages."""
    return [int(message[2]["number"]) for message in received]


def test_everything_is_kept(namespace: Clusters, make_copy: MakeCopy) -> None:
    """Batches, compressions, chunks and several ledgers: green's consumers get what blue's would, and nothing else."""
    topic = Topic(namespace, "kept", "idle", "holes", "active")
    # Full batches, however long the process must wait between two messages.
    batches: dict[str, Any] = {"batching_max_messages": 5, "batching_max_publish_delay_ms": 60_000}
    topic.send(0, 40, batching_enabled=True, producer_name="app", **batches)
    for index, compression in enumerate(COMPRESSIONS):
        topic.roll(namespace)
        kind = getattr(pulsar.CompressionType, compression)
        topic.send(40 + 10 * index, 50 + 10 * index, batching_enabled=False, compression_type=kind)
    topic.acknowledge("holes", set(range(10)) | {42, 43, 44, 51, 60})
    topic.acknowledge("active", set(range(80)))
    idle = {topic.name: ("idle", "holes")}
    copy = make_copy()
    seeded = seed_topics(copy, idle)
    assert (seeded.topics, seeded.entries, seeded.messages) == (1, 8 + 40, 80)
    topic.roll(namespace)
    client = pulsar.Client(namespace.blue.broker_url, logger=QUIET)
    producer = client.create_producer(str(topic.name), batching_enabled=False, chunking_enabled=True)
    producer.send(b"c" * 2_500_000, properties={"number": "80"})
    client.close()
    topic.send(81, 90, batching_enabled=False)
    tail = copy_tail(copy, idle)
    assert (tail.entries, copy_tail(copy, idle).entries) == (3 + 9, 0)
    placed = place_cursors(copy, idle)
    assert (placed.copied, placed.after_copy) == (2, 1)
    proof = compare(copy, idle)
    assert (proof.differences, proof.entries, proof.subscriptions) == ((), 60, 2)
    # Again, as an attempt would that lost its answer.
    assert place_cursors(copy, idle) == placed
    namespace.green_admin.topics.unload(topic.name)
    remaining = set(range(10, 90)) - {42, 43, 44, 51, 60}
    due = {"idle": 90, "holes": len(remaining), "active": 0}
    on_blue = {name: topic.received(namespace.blue.broker_url, name, least=due[name]) for name in ("idle", "holes")}
    on_green = {name: topic.received(namespace.green.broker_url, name, least=least) for name, least in due.items()}
    # Deliveries are counted again.
    assert [message[:-1] for message in on_green["idle"]] == [message[:-1] for message in on_blue["idle"]]
    assert [message[:-1] for message in on_green["holes"]] == [message[:-1] for message in on_blue["holes"]]
    assert numbers(on_green["idle"]) == list(range(90))
    assert sorted(numbers(on_green["holes"])) == sorted(remaining)
    assert on_green["active"] == []


def test_through_brokers(namespace: Clusters, make_copy: MakeCopy) -> None:
    """If bookies cannot be read, blue's brokers return the same bytes; a subscription begins in the middle."""
    topic = Topic(namespace, "brokers", "idle")
    topic.send(0, 30, batching_enabled=False)
    topic.acknowledge("idle", set(range(12)))
    idle = {topic.name: ("idle",)}
    copy = make_copy()
    copy = replace(copy, ends=replace(copy.ends, ledgers=None))
    assert seed_topics(copy, idle).entries == 18
    place_cursors(copy, idle)
    proof = compare(copy, idle)
    assert (proof.differences, proof.entries, proof.unacknowledged) == ((), 18, 18)
    # By its bookies, the comparison reads the same.
    recorded = copy.record(topic.name)
    assert recorded is not None
    copy.note(topic.name, recorded, compared=0)
    assert compare_cursors(copy, idle).differences == (f"{topic.name}: 18 entries were not compared",)
    assert compare(make_copy(), idle) == proof
    assert numbers(topic.received(namespace.green.broker_url, "idle", least=18)) == list(range(12, 30))
    with open_cas(copy.ends.store, copy.ends.access) as store:
        there = recorded_copies(store, NAMESPACE)
        assert topic.name in there
        assert forget_copies(store, NAMESPACE, copy.fence) == len(there)
    assert compare(copy, idle).topics == 0


def test_schema_versions(namespace: Clusters, make_copy: MakeCopy) -> None:
    """Messages name the versions of their schema; they are copied where green has both, and not where it lacks one."""
    topic = Topic(namespace, "schemas", "idle")
    for begin, kind in ((0, Order), (5, PricedOrder)):
        topic.send(begin, begin + 5, lambda number, kind=kind: kind(number=number), schema=schema.JsonSchema(kind))
    versions = namespace.blue_admin.schemas.versions(topic.name)
    assert [version.version for version in versions] == [0, 1]
    idle = {topic.name: ("idle",)}
    for count, version in enumerate(versions, 1):
        with pytest.raises(StoreUnsupported, match=f"version {count - 1} of its schema is missing"):
            seed_topics(make_copy(), idle)
        assert namespace.green_admin.topics.internal_stats(topic.name).last_confirmed_entry.endswith(":-1")
        namespace.green_admin.schemas.add(topic.name, version.type, version.data, version.properties)
    copy = make_copy()
    assert seed_topics(copy, idle).messages == 10
    place_cursors(copy, idle)
    client = pulsar.Client(namespace.green.broker_url, logger=QUIET)
    consumer = client.subscribe(str(topic.name), "idle", schema=schema.JsonSchema(PricedOrder))
    received = [consumer.receive(30_000) for _ in range(10)]
    assert [message.value().number for message in received] == list(range(10))
    assert [int.from_bytes(message.schema_version().encode("latin1")) for message in received] == [0] * 5 + [1] * 5
    client.close()


def test_lost_and_late_attempts(namespace: Clusters, make_copy: MakeCopy) -> None:
    """The next attempt takes over unrecorded messages of the lost one, which can send nothing when it continues."""
    topic = Topic(namespace, "late", "idle")
    topic.send(0, 60, batching_enabled=False)
    idle = {topic.name: ("idle",)}
    entries = list(_read(namespace, topic))
    stored: list[EntryPosition] = []
    copy = make_copy()
    frozen = RawProducer(
        namespace.green.broker_url,
        topic.name,
        copy.ends.green_access,
        name=PRODUCER,
        notes=copy.ends.notes,
        on_stored=stored.append,
    )
    _send(frozen, entries[:25])
    assert len(stored) == 25
    seeded = seed_topics(make_copy(replace_attempt(2)), idle)
    assert (seeded.entries, seeded.already_copied) == (60, 25)
    with pytest.raises(RetryableError):
        _send(frozen, entries[25:])
    frozen.close()
    # Its driver wakes up as well: the claim is another's.
    with pytest.raises(Superseded):
        seed_again_with_more(namespace, topic, copy, idle)
    newest = make_copy(replace_attempt(3))
    assert copy_tail(newest, idle).entries == 5
    place_cursors(newest, idle)
    proof = compare(newest, idle)
    assert (proof.differences, proof.entries) == ((), 65)
    assert numbers(topic.received(namespace.green.broker_url, "idle", least=65)) == list(range(65))


@pytest.mark.parametrize("placed", [False, True])
def test_a_late_attempt_acknowledges_nothing(placed: bool, namespace: Clusters, make_copy: MakeCopy) -> None:
    """An attempt that saw a consumer freezes; when the next one has copied the subscription, its messages stay."""
    topic = Topic(namespace, f"acknowledged-{placed}", "idle")
    topic.send(0, 3, batching_enabled=False)
    frozen, idle = make_copy(), {topic.name: ("idle",)}
    seed_topics(frozen, idle)
    after_copy: Idle = {topic.name: ()}
    if placed:
        place_cursors(frozen, after_copy)
    proofs: list[CopyProof] = []
    fences: list[int] = []
    next_attempt = make_copy(replace_attempt(2))

    def place_in_next_attempt() -> None:
        fences.append(1)
        # The second time is after the subscription was opened.
        if len(fences) == 2:
            wait_for("the next attempt to place the cursor", lambda: _placed(next_attempt, idle), 90)
            proofs.append(compare(next_attempt, idle))

    with pytest.raises(RetryableError):
        place_cursors(replace(frozen, fence=place_in_next_attempt), after_copy)
    assert [(proof.differences, proof.unacknowledged) for proof in proofs] == [((), 3)]
    assert numbers(topic.received(namespace.green.broker_url, "idle", least=3)) == list(range(3))


@pytest.mark.parametrize("check", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_late_attempt_resets_nothing(check: int, namespace: Clusters, make_copy: MakeCopy) -> None:
    """An attempt freezes after it has checked its fence, before it resets a cursor that the next one places."""
    names = ("one", "two")
    topic = Topic(namespace, f"reset-{check}", *names)
    topic.send(0, 3, batching_enabled=False)
    for number, name in enumerate(names, 1):
        topic.acknowledge(name, {number})
    frozen, idle = make_copy(), {topic.name: names}
    seed_topics(frozen, idle)
    # They had consumers then, and start after the copy.
    place_cursors(frozen, {topic.name: ()})
    next_attempt = make_copy(replace_attempt(2))
    fences: list[int] = []

    def fence() -> None:
        fences.append(1)
        if len(fences) == check:
            wait_for("the next attempt to place the cursors", lambda: _placed(next_attempt, idle), 90)
        elif len(fences) > check:
            raise Superseded("the next attempt has started")

    with pytest.raises(StoreError):
        place_cursors(replace(frozen, fence=fence), idle)
    assert compare(next_attempt, idle).differences == ()
    assert [numbers(topic.received(namespace.green.broker_url, name, least=2)) for name in names] == [[0, 2], [0, 1]]


def test_foreign_messages_are_refused(namespace: Clusters, make_copy: MakeCopy) -> None:
    """A topic on green that others send to, or sent to, gets no copy; neither does one that is not there."""
    topic = Topic(namespace, "foreign", "idle")
    topic.send(0, 5, batching_enabled=False)
    idle = {topic.name: ("idle",)}
    client = pulsar.Client(namespace.green.broker_url, logger=QUIET)
    producer = client.create_producer(str(topic.name))
    with pytest.raises(StoreConflict, match="has 1 producers on the new cluster"):
        seed_topics(make_copy(), idle)
    producer.send(b"not a copy")
    client.close()
    with pytest.raises(StoreConflict, match="has messages that are not copies"):
        seed_topics(make_copy(), idle)
    gone = Topic(namespace, "gone", "idle")
    gone.send(0, 5, batching_enabled=False)
    namespace.green_admin.topics.delete(gone.name, force=True)
    with pytest.raises(StoreConflict, match="provision it there first"):
        seed_topics(make_copy(), {gone.name: ("idle",)})


def test_a_copy_that_is_gone_is_made_again(namespace: Clusters, make_copy: MakeCopy) -> None:
    """Green's topic was deleted and created again since it was copied: the copy begins from its first entry."""
    topic = Topic(namespace, "again", "idle")
    topic.send(0, 6, batching_enabled=False)
    idle = {topic.name: ("idle",)}
    copy = make_copy()
    assert seed_topics(copy, idle).entries == 6
    assert compare_entries(copy, idle) == ()
    namespace.green_admin.topics.delete(topic.name, force=True)
    namespace.green_admin.topics.create(topic.name)
    namespace.green_admin.subscriptions.create(topic.name, "idle")
    assert seed_topics(copy, idle).entries == 6
    place_cursors(copy, idle)
    assert (compare(copy, idle).differences, compare(copy, idle).entries) == ((), 6)
    namespace.green_admin.topics.delete(topic.name, force=True)
    client = pulsar.Client(namespace.green.broker_url, logger=QUIET)
    client.create_producer(str(topic.name)).send(b"not a copy")
    client.close()
    with pytest.raises(StoreConflict, match="has other messages instead of its copy"):
        seed_topics(copy, idle)


def test_a_copy_without_entries_starts_earlier(namespace: Clusters, make_copy: MakeCopy) -> None:
    """An attempt died after it had noted where its copy starts; a subscription that is idle now has older messages."""
    topic = Topic(namespace, "earlier", "idle")
    topic.send(0, 6, batching_enabled=False)
    last = EntryPosition.parse(namespace.blue_admin.topics.internal_stats(topic.name).last_confirmed_entry)
    copy, idle = make_copy(), {topic.name: ("idle",)}
    with open_cas(copy.ends.store, copy.ends.access) as store:
        write_alone(store, copy_record(str(topic.name)), CopyRecord(start=(last.ledger_id, 3)).encode(), None)
    assert seed_topics(copy, idle).entries == 6
    place_cursors(copy, idle)
    assert (compare(copy, idle).differences, compare(copy, idle).entries) == ((), 6)


def test_partitions_and_nothing_to_copy(namespace: Clusters, make_copy: MakeCopy) -> None:
    """Each partition is copied by itself; one whose subscriptions have nothing left gets no copy."""
    whole = TopicName(TENANT, "all", "parts")
    for admin in (namespace.blue_admin, namespace.green_admin):
        admin.topics.create_partitioned(whole, 2)
        admin.subscriptions.create(whole, "idle")
    client = pulsar.Client(namespace.blue.broker_url, logger=QUIET)
    producer = client.create_producer(str(whole.of_partition(1)), batching_enabled=False)
    for number in range(7):
        producer.send(b"x", properties={"number": str(number)})
    client.close()
    copy = make_copy()
    idle = {whole.of_partition(number): ("idle",) for number in range(2)}
    assert (seeded := seed_topics(copy, idle)).topics == 1
    assert seeded.entries == 7
    place_cursors(copy, idle)
    assert compare(copy, idle).unacknowledged == 7


def test_a_moved_cursor_is_a_difference(namespace: Clusters, make_copy: MakeCopy) -> None:
    """The comparison reports a subscription at another position, and entries that were not copied."""
    topic = Topic(namespace, "moved", "idle")
    topic.send(0, 10, batching_enabled=False)
    idle = {topic.name: ("idle",)}
    copy = make_copy()
    seed_topics(copy, idle)
    place_cursors(copy, idle)
    topic.acknowledge("idle", {4})
    (difference,) = compare(copy, idle).differences
    assert "other entries left on green" in difference
    topic.send(10, 11, batching_enabled=False)
    assert any("1 entries of blue were not copied" in text for text in compare(copy, idle).differences)


def compare(copy: SubscriptionCopy, idle: Idle) -> CopyProof:
    """Compare the entries that were not compared yet, and the cursors."""
    differences = compare_entries(copy, idle)
    proof = compare_cursors(copy, idle)
    return proof.model_copy(update={"differences": (*differences, *proof.differences)})


def _placed(copy: SubscriptionCopy, idle: Idle) -> bool:
    # As Temporal repeats the step.
    with suppress(RetryableError):
        place_cursors(copy, idle)
        return True
    return False


def replace_attempt(number: int) -> Attempt:
    """Return a later attempt of the same run."""
    return ME._replace(attempt=number)


def seed_again_with_more(clusters: Clusters, topic: Topic, copy: SubscriptionCopy, idle: dict[Any, Any]) -> None:
    """Send more messages, and try to copy them with an attempt that was superseded."""
    topic.send(60, 65, batching_enabled=False)
    assert clusters.blue_admin.topics.stats(topic.name).subscriptions["idle"].msg_backlog == 65
    seed_topics(copy, idle)


def _ignore(_result: object, _message_id: object) -> None:
    """Ignore the result: the flush waits for all."""


def _send(producer: RawProducer, entries: list[tuple[EntryPosition, Message]]) -> None:
    for _, message in entries:
        producer.send(message)
    producer.flush()


def _read(clusters: Clusters, topic: Topic) -> Iterator[tuple[EntryPosition, Message]]:
    last = EntryPosition.parse(clusters.blue_admin.topics.internal_stats(topic.name).last_confirmed_entry)
    access = CopyEnds(parse_store_url(clusters.blue.metadata_url), ME, "", "", ()).blue_access
    with RawReader(clusters.blue.broker_url, topic.name, access, notes={}) as reader:
        yield from reader.entries(last)
