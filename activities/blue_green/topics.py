"""State of a namespace's topics: whether they are loaded, who uses them, and what their deletion would lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from activities.blue_green.context import AnyBlueGreenTask
from activities.lifecycle.context import ActivityContext
from activities.pulsar.stored_topics import after_end, stored
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError, AdminUnsupported
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import COMPACTION, REPLICATOR, Client, InternalInfo, TopicStats, is_brokers_cursor
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.status import ProgressTask, ProgressUnit, ReadingName, Side

_BLOCKED = "already migrated"


class TopicState(NamedTuple):
    """State of a topic at one check.

    Attributes:
        topic: a topic without partitions, or one partition.
        stats: statistics of the topic; None if it is not loaded.
        blocked: it is not loaded, and cannot be loaded while the flag of its namespace is set.
    """

    topic: TopicName
    stats: TopicStats | None
    blocked: bool = False

    @property
    def gone(self) -> bool:
        """True if the topic does not exist."""
        return self.stats is None and not self.blocked


class Traffic(NamedTuple):
    """Counters of a topic that change when clients send or acknowledge, and the number of its producers."""

    sent: int = 0
    backlog: int = 0
    publishers: int = 0


def topics_of(admin: PulsarAdminReader, namespace: str) -> list[TopicName]:
    """Return the persistent topics of a namespace, each partition by itself, without Pulsar's own topics.

    The list is empty if the namespace does not exist.
    """
    try:
        return sorted(map(TopicName.parse, admin.topics.names(namespace)))
    except AdminNotFound:
        return []


def check_topic(admin: PulsarAdminReader, topic: TopicName) -> TopicState:
    """Return the state of a topic; this loads it, if possible.

    Raises:
        AdminError: a broker did not answer, or refused.
    """
    try:
        return TopicState(topic, admin.topics.stats(topic))
    except AdminNotFound:
        return TopicState(topic, None)
    except AdminServerError as error:
        if _BLOCKED in str(error):
            return TopicState(topic, None, blocked=True)
        raise


def load_topics(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[TopicState]:
    """Load topics of blue, report the progress, and return their states."""
    done = 0

    def load(topic: TopicName) -> TopicState:
        nonlocal done
        state = check_topic(task.blue.admin, topic)
        done += 1
        return state

    task.context.measure(ProgressTask.LOAD, ProgressUnit.TOPICS, len(topics), lambda: done)
    return task.each(topics, load)


def is_terminated(admin: PulsarAdminReader, topic: TopicName) -> bool:
    """Return whether a topic is terminated, or does not exist.

    Brokers do not mark a topic that a client has terminated, but redirect its clients as those of others (5.0.1).
    """
    info = stored(admin, topic)
    # mutant: blue-green/topic-that-a-client-terminated-holds-writes
    return info is None or info.terminated_position is not None


def others_of(clients: Iterable[Client]) -> list[Client]:
    """Return the clients of a topic that are not our own."""
    return [client for client in clients if NOTE not in (client.metadata or {})]


def traffic_of(stats: TopicStats) -> Traffic:
    """Return the traffic counters of a topic."""
    # Brokers can count a backlog below 0 (#5543).
    backlog = sum(max(0, subscription.msg_backlog) for subscription in stats.client_subscriptions.values())
    return Traffic(stats.msg_in_counter, backlog, len(stats.publishers))


def report_blue_backlog(context: ActivityContext, topics: Iterable[TopicStats]) -> int:
    """Report backlog and producers of blue's topics, and return the backlog of their subscriptions in messages."""
    traffic = list(map(traffic_of, topics))
    backlog = sum(topic.backlog for topic in traffic)
    context.read(ReadingName.BACKLOG, Side.BLUE, backlog)
    context.read(ReadingName.PUBLISHERS, Side.BLUE, sum(topic.publishers for topic in traffic))
    return backlog


def named(items: Sequence[FailedItem]) -> tuple[FailedItem, ...]:
    """Return the first items of a long list, with at least one of each namespace: batches count failed namespaces."""
    firsts = {item.path.rpartition("/")[0]: item for item in reversed(items)}
    heads = list(firsts.values())
    rest = [item for item in items if item not in heads]
    return (*heads, *rest[: max(NAMED - len(heads), 0)])


def cursors_of(info: InternalInfo) -> list[str]:
    """Return the stored cursors of a topic's clients, without those of deduplication and replication."""
    return [name for name in info.cursors if not is_brokers_cursor(name)]


# Terminated topics: who uses them, and what their deletion would lose -------------------------------------------------


class DeletionRules(NamedTuple):
    """Rules for the deletion of terminated topics.

    Attributes:
        admin: admin interface of the cluster with the topics.
        other: name of the cluster that serves their clients now.
        discard: messages that retention keeps, and tables of compacted topics, may be deleted.
        option: field of the input that allows this.
    """

    admin: PulsarAdminReader
    other: str
    discard: bool
    option: str


def users_of(admin: PulsarAdminReader, topic: TopicName) -> str:
    """Return the producers, subscriptions and remote clusters that still use a topic, in words; empty for none."""
    state = check_topic(admin, topic)
    if stats := state.stats:
        waiting = [name for name, sub in stats.client_subscriptions.items() if sub.msg_backlog or sub.consumers]
        users = [f"{len(stats.publishers)} producers"] if stats.publishers else []
        remote = [
            f"replication to {name}"
            for name, replication in stats.replication.items()
            if replication.replication_backlog
        ]
        return ", ".join([*users, *(f"subscription {name}" for name in waiting), *remote])
    info = stored(admin, topic) if state.blocked else None
    return needed_by(info) if info else ""


def needed_by(info: InternalInfo) -> str:
    """Return the subscriptions and clusters that need messages of an unloaded topic, in words; empty for none."""
    names = [name for name in cursors_of(info) if not _is_drained(info, name)]
    subscriptions = [f"subscriptions {', '.join(names)}"] if names else []
    # mutant: blue-green/deletion-of-what-another-cluster-lacks
    return ", ".join([*subscriptions, *(f"replication to {remote}" for remote in _unreplicated(info))])


def deletion_refusal(rules: DeletionRules, topic: TopicName) -> str:
    """Return why a terminated topic must not be deleted; empty if it may. Call it before every deletion.

    Args:
        rules: rules for the deletion.
        topic: the terminated topic.
    """
    use = users_of(rules.admin, topic)
    info = stored(rules.admin, topic)
    if info is None:
        return ""
    # mutant: blue-green/cleanup-of-what-retention-keeps
    return use or retained(rules, topic, info) or ("" if info.migrated else "it was not terminated by the migration")


def retained(rules: DeletionRules, topic: TopicName, info: InternalInfo) -> str:
    """Return which retained messages, or which table of a compacted topic, a deletion would lose; empty for none.

    Args:
        rules: rules for the deletion.
        topic: the terminated topic.
        info: its stored managed ledger.
    """
    if rules.discard:
        return ""
    # The table is in a ledger of its own, which stays when all entries are consumed and deleted.
    if COMPACTION in info.cursors:  # mutant: blue-green/deletion-of-compacted-tables
        return f'{rules.other} lacks the table of its compaction, and "{rules.option}" is not set'
    entries = entries_of(info)
    if not entries:
        return ""
    retention = _retention(rules.admin, topic)
    if retention.retention_time_in_minutes == 0 or retention.retention_size_in_m_b == 0:
        return ""
    return f'retention keeps {entries:,} entries that {rules.other} lacks, and "{rules.option}" is not set'


def entries_of(info: InternalInfo) -> int:
    """Return the number of stored entries of a terminated topic."""
    return sum(count for _, count in lengths_of(info))


def lengths_of(info: InternalInfo) -> list[tuple[int, int]]:
    """Return the ledgers of a terminated topic, each with the number of its entries."""
    end = info.terminated_position
    # Brokers store 0 entries for the last ledger, also after the termination.
    return [
        (
            ledger.ledger_id,
            end.entry_id + 1 if end and end.ledger_id == ledger.ledger_id and not ledger.entries else ledger.entries,
        )
        for ledger in info.ledgers
    ]


def _unreplicated(info: InternalInfo) -> Iterator[str]:
    """Yield the clusters that may lack messages of a topic, by the stored positions.

    After a crash of a broker the stored position is old, so that the cluster may have all messages.
    """
    for name in info.cursors:
        if name.startswith(REPLICATOR) and not _is_at_end(info, name):
            yield name.removeprefix(REPLICATOR)


def _is_drained(info: InternalInfo, name: str) -> bool:
    """Return whether a subscription of an unloaded, terminated topic has acknowledged all messages.

    Brokers delete it at their next check only. Without a ledger of the cursor, the stored position is the newest one.
    The number of entries in the last ledger is stored once a topic is terminated.
    """
    if info.terminated_position is None:  # mutant: blue-green/topic-whose-end-is-unknown
        return False
    # mutant: blue-green/stored-position-that-may-be-old
    return _cursor(info, name).get("cursorsLedgerId") == -1 and _is_at_end(info, name) and not after_end(info)


def _is_at_end(info: InternalInfo, name: str) -> bool:
    stored_at = _cursor(info, name).get("markDelete")
    at = (stored_at["ledgerId"], stored_at["entryId"]) if stored_at else (-1, -1)
    return not any(count and (ledger, count - 1) > at for ledger, count in lengths_of(info))


def _cursor(info: InternalInfo, name: str) -> dict[str, Any]:
    cursor = info.cursors[name]
    return cast("dict[str, Any]", cursor) if isinstance(cursor, dict) else {}


def _retention(admin: PulsarAdminReader, topic: TopicName) -> Retention:
    """Return the retention of a topic."""
    # Brokers with topic policies switched off refuse this request.
    with suppress(AdminUnsupported):
        return admin.topics.retention(topic.whole)  # mutant: blue-green/cleanup-of-partitions
    if own := admin.namespaces.retention(topic.namespace_path):
        return own
    defaults = admin.brokers.runtime_configuration()
    return Retention(
        retention_time_in_minutes=int(defaults["defaultRetentionTimeInMinutes"]),
        retention_size_in_m_b=int(defaults["defaultRetentionSizeInMB"]),
    )
