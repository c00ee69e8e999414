"""Blockers and warnings of topics that are to become scalable."""

from __future__ import annotations

import pytest

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from activities.scalable_topic.checks.topic import check_controlled, check_segments, check_topic, undrained_streams
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topics import COMPACTION, Client, TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, ScalableRecord
from tests.support.clients.memory_store import MemoryStore

_TOPIC = TopicName("acme", "shop", "orders")
_SCHEMAS = (Schema.model_validate({"version": 0, "type": "STRING", "data": ""}),)
_ABSENT = ScalableRecord(RecordState.ABSENT)


def _findings(topic: TopicInventory, record: ScalableRecord = _ABSENT) -> Findings:
    findings = Findings()
    check_topic(findings, topic, record)
    return findings


def _with(name: TopicName = _TOPIC, **stats: object) -> TopicInventory:
    return TopicInventory(name, schemas=_SCHEMAS, parts=(TopicPartition(name, TopicStats.model_validate(stats)),))


def _subscription(name: str, **fields: object) -> TopicInventory:
    return _with(subscriptions={name: {"type": "Shared", "isDurable": True, **fields}})


@pytest.mark.parametrize(
    ("partitions", "there", "existing"),
    [
        (0, ["0000-ffff-0", "0000-ffff-1"], ["0000-ffff-1"]),
        (0, ["0000-ffff-0", "0000-7fff-1", "0000-ffff-2"], []),
        (2, ["8000-ffff-3", "0000-7fff-2", "0000-7fff-0"], ["0000-7fff-2", "8000-ffff-3"]),
        (2, [], []),
    ],
)
def test_segments_of_an_earlier_topic(partitions: int, there: list[str], existing: list[str]) -> None:
    """A segment that the migration would create must not exist; segments of other names are ignored."""
    findings = Findings()
    check_segments(findings, TopicInventory(_TOPIC, partitions=partitions), there)
    assert [blocker.code for blocker in findings.blockers] == (["SEGMENTS_LEFT"] if existing else [])
    assert all(", ".join(existing) in blocker.cause for blocker in findings.blockers)


@pytest.mark.parametrize(
    ("name", "controlled"),
    [
        ("orders.scalable.layout", True),
        ("orders.scalable.0000-7fff-12", True),
        ("other.scalable.0000-7fff-12", False),
        ("orders.scalable.0000-7fff", False),
        ("orders", False),
    ],
)
def test_parts_of_controlled_topics(name: str, controlled: bool) -> None:
    """A segment or the layout of a topic with a controller is refused; another topic that is named like one is not."""
    findings, store = Findings(), MemoryStore()
    store.create("/pulsar/pulsar-migrate/topics/acme/shop/orders", b"{}")
    check_controlled(findings, TopicName("acme", "shop", name), store)
    assert [blocker.code for blocker in findings.blockers] == (["CONTROLLED"] if controlled else [])


def test_a_copy_that_was_not_ended() -> None:
    """The subscription that keeps a copy has no consumer, and would keep messages of segments as well."""
    assert [blocker.code for blocker in _findings(_subscription("pulsar-migrate-copy")).blockers] == ["COPY_NOT_ENDED"]
    assert _findings(_subscription("copy")).blockers == []


def test_plain_topic() -> None:
    """A topic with a schema and without clients has no findings."""
    findings = _findings(_with())
    assert (findings.blockers, findings.warnings) == ([], [])


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (_with(_TOPIC._replace(domain="non-persistent")), "NOT_A_STORED_TOPIC"),
        (_with(_TOPIC._replace(topic="__change_events")), "NOT_A_STORED_TOPIC"),
        (_with(_TOPIC._replace(topic="a b")), "NAME_NEEDS_ENCODING"),
        (TopicInventory(_TOPIC, schemas=_SCHEMAS, parts=(TopicPartition(_TOPIC, None, "no"),)), "TOPIC_NOT_LOADED"),
        (_with(subscriptions={COMPACTION: {}}), "COMPACTED"),
        (TopicInventory(_TOPIC, schemas=_SCHEMAS, policies={"compactionThreshold": 1}), "COMPACTED"),
        (_with(replication={"west": {}}), "REPLICATED"),
        (_subscription("a/b"), "SUBSCRIPTION_NAME"),
        (_subscription("s", isReplicated=True), "SUBSCRIPTION_REPLICATED"),
        (_subscription("s", msgDelayed=1), "DELAYED_MESSAGES"),
    ],
)
def test_blockers(topic: TopicInventory, code: str) -> None:
    """Each obstacle is a blocker of its own, with the topic and a cure."""
    (blocker,) = _findings(topic).blockers
    assert blocker.code == code
    assert str(topic.name) in blocker.cause
    assert blocker.cure


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (RecordState.GOOD, "ALREADY_SCALABLE"),
        (RecordState.EMPTY, "RECORD_EMPTY"),
        (RecordState.BROKEN, "RECORD_BROKEN"),
    ],
)
def test_records_that_are_there(state: RecordState, code: str) -> None:
    """An existing record of any state keeps the topic from being migrated."""
    assert [blocker.code for blocker in _findings(_with(), ScalableRecord(state)).blockers] == [code]


def test_what_the_migration_waits_for() -> None:
    """The migration waits for ordered backlogs and legacy clients, and does not refuse the topic."""
    client = Client(address="/10.0.0.1:1", client_version="Pulsar-Java-v4.0.7", producer_name="p")
    subscriptions = {
        "stream": {"type": "Failover", "msgBacklog": 3},
        "drained": {"type": "Exclusive"},
        "queue": {"type": "Key_Shared", "msgBacklog": 5},
        "reader": {"type": "Exclusive", "msgBacklog": 7, "isDurable": False},
        "unused": {"msgBacklog": 9},
    }
    topic = _with(subscriptions=subscriptions, publishers=[client])
    findings = _findings(topic)
    client_there = f"producer p at 10.0.0.1:1 (Pulsar-Java-v4.0.7) on {_TOPIC}"
    assert undrained_streams(topic) == {"stream": 3}
    assert findings.blockers == []
    unknown = (
        f"brokers do not know how unused of {_TOPIC} are consumed: they have had no consumer since the topic was "
        "loaded, and will be read by queue consumers. If one is ordered, connect its consumer briefly before the topic "
        "becomes scalable"
    )
    assert findings.warnings == [
        f"the migration of {_TOPIC} waits until ordered subscriptions have no backlog: stream (3 messages)",
        unknown,
        f"the migration of {_TOPIC} waits for 1 connections of clients that cannot follow: {client_there}",
    ]


@pytest.mark.parametrize(("name", "count"), [("orders-q-DLQ", 1), ("orders-RETRY", 1), ("DLQ", 0), ("a-DLQ-b", 0)])
def test_topics_of_dead_letters(name: str, count: int) -> None:
    """A dead-letter topic gets a warning, since older clients produce to it only when a message fails."""
    warnings = _findings(_with(_TOPIC._replace(topic=name))).warnings
    assert [warning.startswith(f"persistent://acme/shop/{name} is named like") for warning in warnings] == [
        True
    ] * count


def test_topic_without_a_schema() -> None:
    """A topic without a schema gets a warning, since V5 clients with a schema may be refused."""
    (warning,) = _findings(TopicInventory(_TOPIC)).warnings
    assert warning.startswith(f"{_TOPIC} has no schema")
