"""The use of a topic decides whether it is flipped; both clusters are doubles here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks.clusters import check_replication
from activities.blue_green.checks.use import (
    TopicUse,
    await_movable,
    check_expiry,
    pending_acknowledgements,
    require_movable,
)
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.write_limit import unfinished_of
from activities.lifecycle.context import Deadline
from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition, is_system_topic, is_transaction_topic
from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import Client, EntryHead, InternalInfo, ReplicationStats, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from tests.support.blue_green.sides import side
from tests.unit.blue_green.test_differences import SPACE, namespace

TOPIC = TopicName.parse(f"{SPACE}/t")
DOWN = TopicStats(replication={"west": ReplicationStats(replication_backlog=7)})
IDLE = TopicStats(replication={"west": ReplicationStats()})
USED = TopicStats(replication={"west": ReplicationStats()}, publishers=(Client(),))
LAGGING = TopicStats(replication={"west": ReplicationStats(connected=True, replication_backlog=7)})
READY = TopicStats(replication={"west": ReplicationStats(connected=True)})
CHUNKED = TopicStats(msg_chunk_published=True)
IN_TRANSACTIONS = TopicStats(ongoing_txn_count=1, committed_txn_count=2)
IN_USE = TopicStats(subscriptions={"s": SubscriptionStats()})
OLD = TopicStats(subscriptions={"s": SubscriptionStats(consumers=(Client(address="/h:1", client_version="2.10.2"),))})


def task(*reads: TopicStats, info: InternalInfo | None = None, **fields: object) -> BlueGreenTask:
    """Return a task on two clusters; reads of blue's only topic return these stats in turn, then the last of them."""
    readings: Iterator[TopicStats] = iter(reads)
    last = reads[-1:] or (TopicStats(),)

    def stats(_: TopicName) -> TopicStats:
        return next(readings, last[0])

    def each(items: Iterable[Any], work: Any) -> list[Any]:
        return [work(item) for item in items]

    def ignore(*_: object) -> None:
        return None

    def names(_: str) -> list[str]:
        return [str(TOPIC)]

    def internal_info(_: TopicName) -> InternalInfo:
        return info or InternalInfo()

    def absent(name: str) -> None:
        raise AdminNotFound(name, method="GET", url=name)

    broker = SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=dict))
    needed: dict[str, object] = {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    return cast(
        "BlueGreenTask",
        SimpleNamespace(
            input=BlueGreenInput.model_validate({**needed, "quiesce_timeout": "PT1M", **fields}),
            blue=SimpleNamespace(
                admin=SimpleNamespace(topics=SimpleNamespace(stats=stats, names=names, internal_info=internal_info)),
                brokers=lambda: [("a", broker)],
            ),
            green=SimpleNamespace(
                admin=SimpleNamespace(
                    brokers=SimpleNamespace(runtime_configuration=dict), namespaces=SimpleNamespace(policies=absent)
                ),
                brokers=lambda: [("a", broker)],
            ),
            each=each,
            context=SimpleNamespace(
                pause=ignore, waiting_for=ignore, clear_waiting=ignore, check=ignore, deadline=Deadline
            ),
        ),
    )


def guards() -> list[NamespaceGuard]:
    """Return the guard of the namespace."""
    return [cast("NamespaceGuard", SimpleNamespace(namespace=SPACE))]


def topic(stats: TopicStats, **policies: Any) -> TopicInventory:
    """Return a topic without partitions."""
    return TopicInventory(TOPIC, parts=(TopicPartition(TOPIC, stats),), policies=policies)


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        (CHUNKED, "in chunks"),
        (IN_TRANSACTIONS, r"used in transactions \(1 open, 2 committed\)"),
        (OLD, "/h:1 cannot follow: 2.10.2 is older"),
    ],
)
def test_use_that_a_flip_would_break(stats: TopicStats, why: str) -> None:
    """Days after PRECHECK a topic takes chunks, or takes part in transactions, or has an old client."""
    require_movable(task(), [(TOPIC, READY)])
    with pytest.raises(StoreConflict, match=f"{TOPIC}: .*{why}"):
        require_movable(task(), [(TOPIC, stats)])
    with pytest.raises(StoreConflict, match=why):
        await_movable(task(DOWN, stats), guards(), drained=True)


def head(producer: str, chunk: int = 0, chunks: int = 1, minutes_ago: float = 0) -> Callable[[], EntryHead]:
    """Return a function that makes an entry as it is stored; its time counts from the call."""
    return lambda: EntryHead(producer, datetime.now(UTC) - timedelta(minutes=minutes_ago), chunk, chunks)


@pytest.mark.parametrize(
    ("heads", "cut"),
    [
        ([], False),
        ([head("a")], False),
        ([head("a", 2, 3), head("a", 1, 3), head("a", 0, 3)], False),
        ([head("a", 1, 3), head("a", 0, 3)], True),
        ([head("b"), head("b"), head("a", 0, 2)], True),
        # Given up by its producer, or by one that is not there any more.
        ([head("a"), head("a", 0, 2)], False),
        ([head("gone", 0, 2), head("a"), head("b")], False),
        ([head("a", 0, 2, minutes_ago=90)], False),
        # More entries of another producer than are read: unknown whether its producers send in chunks.
        ([*[head("b")] * 40, head("a", 0, 2)], False),
        ([*[head("b", 1, 2)] * 40, head("a", 0, 2)], True),
        ([*[head("b", 1, 2)] * 20, head("a")], False),
        ([*[head("b", 1, 2)] * 20], False),
    ],
)
def test_messages_of_which_a_part_is_stored(heads: list[Callable[[], EntryHead]], *, cut: bool) -> None:
    """The last entry of a connected producer shows whether the rest of its message would go to green."""
    assert bool(unfinished_of((make() for make in heads), {"a", "b"})) is cut


def test_replicators_are_waited_for() -> None:
    """Replicators connect after a topic was loaded, and finish while writes are held back."""
    await_movable(task(DOWN, READY), guards(), drained=False)
    await_movable(task(LAGGING), guards(), drained=False)
    await_movable(task(DOWN, LAGGING, READY), guards(), drained=True)
    # Nothing is left, and nothing will come.
    await_movable(task(IDLE), guards(), drained=False)
    await_movable(task(USED), guards(), drained=True)


@pytest.mark.parametrize(
    ("stats", "drained", "why"),
    [
        (DOWN, False, "west is not connected"),
        (USED, False, "west is not connected"),
        (DOWN, True, "7 messages are not in west yet"),
        (LAGGING, True, "7 messages are not in west yet"),
    ],
)
def test_replicators_that_are_not_ready(stats: TopicStats, *, drained: bool, why: str) -> None:
    """A topic that would take no messages after its flip is not flipped."""
    with pytest.raises(StoreConflict, match=why):
        await_movable(task(stats, quiesce_timeout="PT0.1S"), guards(), drained=drained)


def test_blockers_of_use() -> None:
    """Each use has a blocker of its own that names the topics."""
    for stats, code in (
        (CHUNKED, "BLUE_CHUNKED_MESSAGES"),
        (IN_TRANSACTIONS, "BLUE_TRANSACTIONS"),
    ):
        use, findings = TopicUse(), Findings()
        use.add(task(), namespace(topic(stats)))
        use.judge(task(), findings)
        assert [(blocker.code, str(TOPIC) in blocker.cause) for blocker in findings.blockers] == [(code, True)]


def test_a_backlog_of_replication_is_a_warning() -> None:
    """A backlog of replication is only a warning: the flip checks again whether it is gone."""
    use, findings = TopicUse(), Findings()
    use.add(task(), namespace(topic(LAGGING)))
    use.judge(task(), findings)
    assert findings.blockers == []
    assert f"{TOPIC} (7 messages for west)" in findings.warnings[0]


def test_acknowledgements_in_transactions() -> None:
    """Brokers' logs of such acknowledgements are found in the metadata store: brokers do not list them as topics."""

    def children(path: str) -> list[str]:
        assert path == "/managed-ledgers/acme/ord/persistent"
        return ["t", "t-s__transaction_pending_ack", "%C3%A4-s__transaction_pending_ack"]

    store = cast("CasReader", SimpleNamespace(children=children))
    logs = [f"persistent://acme/ord/{name}-s__transaction_pending_ack" for name in ("t", "ä")]
    assert pending_acknowledgements(store, "acme/ord") == logs
    use = TopicUse(transaction_topics=logs)
    assert use.question.endswith(", ".join(logs))


def test_topics_of_transactions() -> None:
    """Topics with brokers' transactions are distinguished from clients' topics, and from brokers' other topics."""
    names = [
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot-partition-0",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
        "t-s__transaction_pending_ack",
    ]
    assert all(is_transaction_topic(TOPIC._replace(topic=name)) for name in names)
    assert all(is_system_topic(TOPIC._replace(topic=name)) for name in (*names, "__change_events"))
    assert not any(is_transaction_topic(TOPIC._replace(topic=name)) for name in ("t", "__change_events"))


def test_replication_of_namespaces_and_topics() -> None:
    """To green it is a blocker, and so is a copy of what is replicated to a third cluster; policies of topics count."""
    for policies, own in (
        ({"replication_clusters": ["b", "g"]}, {}),
        ({"replication_clusters": ["b"]}, {"replication": ["b", "g"]}),
        ({"replication_clusters": ["b"]}, {"replication": ["b"], "global/replication": ["g"]}),
    ):
        findings = Findings()
        check_replication(task(), findings, namespace(topic(READY, **own), **policies))
        assert [blocker.code for blocker in findings.blockers] == ["REPLICATED_TO_GREEN"]
    for policies, own in (
        ({"replication_clusters": ["b", "west"]}, {}),
        ({"replication_clusters": ["b"]}, {"global/replication": ["west"]}),
    ):
        waiting, copying = Findings(), Findings()
        assert check_replication(task(), waiting, namespace(topic(READY, **own), **policies)) == {"west"}
        check_replication(task(idle_subscriptions="copy"), copying, namespace(topic(READY, **own), **policies))
        assert (waiting.blockers, len(waiting.warnings)) == ([], 1)
        assert [blocker.code for blocker in copying.blockers] == ["COPY_REPLICATED"]
    alone = Findings()
    check_replication(task(idle_subscriptions="copy"), alone, namespace(topic(READY), replication_clusters=["b"]))
    assert (alone.blockers, alone.warnings) == ([], [])


@pytest.mark.parametrize(
    ("brokers", "policy", "own", "refused"),
    [
        ("66", None, {}, True),
        ("67", None, {}, False),
        ("0", None, {}, False),
        ("5", 0, {}, False),
        ("0", 5, {}, True),
        ("0", 5, {"subscriptionExpirationTime": 67}, False),
        ("0", None, {"subscriptionExpirationTime": 5}, True),
        ("0", None, {"global/subscriptionExpirationTime": 5}, True),
        ("0", None, {"subscriptionExpirationTime": 67, "global/subscriptionExpirationTime": 5}, False),
    ],
)
def test_subscriptions_that_expire_while_blue_is_drained(
    brokers: str, policy: int | None, own: dict[str, int], *, refused: bool
) -> None:
    """A subscription that green may delete from the last check to the end of `drain_timeout` is a blocker.

    The policy next to the topic counts.
    """
    findings = Findings()
    settings = {"subscriptionExpirationTimeMinutes": brokers}
    inventory = namespace(topic(IN_USE, **own), subscription_expiration_time_minutes=policy)
    check_expiry(task(), findings, inventory, settings)
    assert [blocker.code for blocker in findings.blockers] == ["GREEN_EXPIRES_SUBSCRIPTIONS"] * refused
    unused = Findings()
    check_expiry(task(), unused, namespace(topic(READY, **own)), settings)
    assert unused.blockers == []


@pytest.mark.parametrize(("seconds", "warned"), [(None, False), (0, False), (3600, True), (3601, False)])
def test_messages_that_expire_while_blue_is_drained(seconds: int | None, *, warned: bool) -> None:
    """Messages that green may give up within `drain_timeout` are a warning."""
    findings = Findings()
    check_expiry(task(), findings, namespace(topic(IN_USE), message_ttl_in_seconds=seconds), {})
    assert (findings.blockers, len(findings.warnings)) == ([], int(warned))
