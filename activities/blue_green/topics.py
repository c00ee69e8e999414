"""The state of a namespace's topics: loaded, stranded or gone, who uses them, and what their deletion would lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from activities.blue_green.context import AnyBlueGreenTask
from activities.lifecycle.context import ActivityContext
from activities.pulsar.stored_topics import stored
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError, AdminUnsupported
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import REPLICATOR, InternalInfo, TopicStats, is_brokers_cursor
from clients.pulsar.names import TopicName
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.names import BACKLOG_GAUGE, PUBLISHERS_GAUGE
from models.lifecycle.status import ProgressTask, ProgressUnit

_BLOCKED = "already migrated"


class TopicState(NamedTuple):
    """One look at a topic.

    Attributes:
        topic: a topic without partitions, or one partition.
        stats: how it is; None where it is not loaded.
        blocked: it is not loaded, and cannot be while its clients are sent elsewhere.
    """

    topic: TopicName
    stats: TopicStats | None
    blocked: bool = False

    @property
    def gone(self) -> bool:
        """Whether there is no such topic any more."""
        return self.stats is None and not self.blocked


class Traffic(NamedTuple):
    """What moves when somebody sends, receives or acknowledges, and how many can send."""

    sent: int = 0
    backlog: int = 0
    publishers: int = 0


def topics_of(admin: PulsarAdminReader, namespace: str) -> list[TopicName]:
    """Persistent topics of a namespace: those without partitions, and each partition; without Pulsar's own.

    There are none where the namespace is gone.
    """
    try:
        return sorted(map(TopicName.parse, admin.topics.names(namespace)))
    except AdminNotFound:
        return []


def check_topic(admin: PulsarAdminReader, topic: TopicName) -> TopicState:
    """How a topic is; loads it where that is possible.

    Raises:
        AdminError: it could not be found out.
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
    """Look at topics of blue, which loads them; tells how far it is."""
    done = 0

    def one(topic: TopicName) -> TopicState:
        nonlocal done
        look = check_topic(task.blue, topic)
        done += 1
        return look

    task.context.measure(ProgressTask.LOAD, ProgressUnit.TOPICS, len(topics), lambda: done)
    return task.each(topics, one)


def is_terminated(admin: PulsarAdminReader, topic: TopicName) -> bool:
    """Return whether a topic's clients are sent elsewhere for good, or it is gone."""
    info = stored(admin, topic)
    return info is None or info.migrated


def traffic_of(stats: TopicStats) -> Traffic:
    """What has moved so far."""
    backlog = sum(client_subscription.msg_backlog for client_subscription in stats.client_subscriptions.values())
    return Traffic(stats.msg_in_counter, backlog, len(stats.publishers))


def report_blue_backlog(context: ActivityContext, topics: Iterable[TopicStats]) -> int:
    """Tell dashboards how topics of blue are; returns the messages that their subscriptions have left."""
    found = list(map(traffic_of, topics))
    backlog = sum(one.backlog for one in found)
    context.set_gauge(BACKLOG_GAUGE, "blue", backlog)
    context.set_gauge(PUBLISHERS_GAUGE, "blue", sum(one.publishers for one in found))
    return backlog


def named(items: Sequence[FailedItem]) -> tuple[FailedItem, ...]:
    """The first items of a long list, among them one of each namespace, which its batch counts by."""
    firsts = {item.path.rpartition("/")[0]: item for item in reversed(items)}
    heads = list(firsts.values())
    rest = [item for item in items if item not in heads]
    return (*heads, *rest[: max(NAMED - len(heads), 0)])


def cursors_of(info: InternalInfo) -> list[str]:
    """Return the cursors of clients of a topic as it is stored: those of deduplication and replication are left out."""
    return [name for name in info.cursors if not is_brokers_cursor(name)]


# Topics that were ended: who uses them, and what their deletion would lose --------------------------------------------


class DeletionRules(NamedTuple):
    """What a deletion of topics that were ended may take with it.

    Attributes:
        admin: of the cluster that loses the topics.
        other: name of the cluster that serves their clients.
        discard: messages that retention keeps are given up.
        option: field of the input that says so.
    """

    admin: PulsarAdminReader
    other: str
    discard: bool
    option: str


def users_of(admin: PulsarAdminReader, topic: TopicName) -> str:
    """Return who still needs a topic; empty for nobody."""
    look = check_topic(admin, topic)
    if look.stats is not None:
        waiting = [name for name, sub in look.stats.client_subscriptions.items() if sub.msg_backlog or sub.consumers]
        users = [f"{len(look.stats.publishers)} producers"] if look.stats.publishers else []
        remote = [f"replication to {name}" for name, one in look.stats.replication.items() if one.replication_backlog]
        return ", ".join([*users, *(f"subscription {name}" for name in waiting), *remote])
    info = stored(admin, topic) if look.blocked else None
    return needed_by(info) if info else ""


def needed_by(info: InternalInfo) -> str:
    """Return who still needs messages of a topic that is not loaded; empty for nobody."""
    names = cursors_of(info)
    parts = [f"subscriptions {', '.join(names)}"] if names else []
    # mutant: blue-green/deletion-of-what-another-cluster-lacks
    return ", ".join([*parts, *(f"replication to {remote}" for remote in _unreplicated(info))])


def deletion_refusal(rules: DeletionRules, topic: TopicName) -> str:
    """Return why a topic must not be deleted; empty where it may. Every deletion of a topic asks this.

    Args:
        rules: what may be lost.
        topic: that was ended.
    """
    use = users_of(rules.admin, topic)
    info = stored(rules.admin, topic)
    if info is None:
        return ""
    # mutant: blue-green/cleanup-of-what-retention-keeps
    return use or retained(rules, topic, info) or ("" if info.migrated else "it was not terminated by the migration")


def retained(rules: DeletionRules, topic: TopicName, info: InternalInfo) -> str:
    """Return what readers may still want of a topic and the other cluster lacks; empty for nothing.

    Args:
        rules: what may be lost.
        topic: that was ended.
        info: of it, as it is stored.
    """
    entries = entries_of(info)
    if rules.discard or not entries:
        return ""
    kept = _retention(rules.admin, topic)
    if kept.retention_time_in_minutes == 0 or kept.retention_size_in_m_b == 0:
        return ""
    return f'retention keeps {entries:,} entries that {rules.other} lacks, and "{rules.option}" is not set'


def entries_of(info: InternalInfo) -> int:
    """Return how many entries are stored of a topic that was ended."""
    return sum(count for _, count in _lengths(info))


def _lengths(info: InternalInfo) -> list[tuple[int, int]]:
    """Return each ledger with the number of its entries."""
    end = info.terminated_position
    # What is stored of the last ledger says 0, also when it was ended with its topic.
    return [
        (
            ledger.ledger_id,
            end.entry_id + 1 if end and end.ledger_id == ledger.ledger_id and not ledger.entries else ledger.entries,
        )
        for ledger in info.ledgers
    ]


def _unreplicated(info: InternalInfo) -> Iterator[str]:
    """Return the clusters that may lack messages of a topic, by the positions that are stored.

    A cursor whose broker crashed has an older position in the store: then its cluster may have everything.
    """
    for name, cursor in info.cursors.items():
        if not name.startswith(REPLICATOR):
            continue
        stored_at = cast("dict[str, Any]", cursor).get("markDelete") if isinstance(cursor, dict) else None
        at = (stored_at["ledgerId"], stored_at["entryId"]) if stored_at else (-1, -1)
        if any(count and (ledger, count - 1) > at for ledger, count in _lengths(info)):
            yield name.removeprefix(REPLICATOR)


def _retention(admin: PulsarAdminReader, topic: TopicName) -> Retention:
    """Return how long a cluster keeps what a topic's subscriptions do not need any more."""
    # Brokers that have policies of topics switched off do not tell.
    with suppress(AdminUnsupported):
        return admin.topics.retention(topic.whole)  # mutant: blue-green/cleanup-of-partitions
    if own := admin.namespaces.retention(topic.namespace_path):
        return own
    defaults = admin.brokers.runtime_configuration()
    return Retention(
        retention_time_in_minutes=int(defaults["defaultRetentionTimeInMinutes"]),
        retention_size_in_m_b=int(defaults["defaultRetentionSizeInMB"]),
    )
