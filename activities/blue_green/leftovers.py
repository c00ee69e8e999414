"""What is left of a topic that was ended: who uses it, and what its deletion would lose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

from activities.blue_green.topics import cursors_of, look_at
from activities.pulsar.stored_topics import stored
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminUnsupported
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import REPLICATOR, InternalInfo
from clients.pulsar.names import TopicName


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


def use_of(admin: PulsarAdminReader, topic: TopicName) -> str:
    """Return who still needs a topic; empty for nobody."""
    look = look_at(admin, topic)
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
    use = use_of(rules.admin, topic)
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
        (one.ledger_id, end.entry_id + 1 if end and end.ledger_id == one.ledger_id and not one.entries else one.entries)
        for one in info.ledgers
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
