"""What is left of a topic of blue: who uses it, and what would be gone with it."""

from __future__ import annotations

from contextlib import suppress

from activities.blue_green.context import BlueGreenTask
from activities.blue_green.topics import cursors_of, look_at, subscriptions_of
from activities.lifecycle.stored_topics import stored
from clients.pulsar.admin.errors import AdminUnsupported
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName


def use_of(task: BlueGreenTask, topic: TopicName) -> str:
    """Who still needs a topic of blue; empty for nobody."""
    look = look_at(task.blue, topic)
    if look.stats is not None:
        waiting = [name for name, sub in subscriptions_of(look.stats).items() if sub.msg_backlog or sub.consumers]
        users = [f"{len(look.stats.publishers)} producers"] if look.stats.publishers else []
        return ", ".join([*users, *(f"subscription {name}" for name in waiting)])
    info = stored(task.blue, topic) if look.blocked else None
    return f"subscriptions {', '.join(cursors_of(info))}" if info and cursors_of(info) else ""


def cleanup_refusal(task: BlueGreenTask, topic: TopicName) -> str:
    """Why a topic of blue must not be deleted; empty where it may."""
    use = use_of(task, topic)
    info = stored(task.blue, topic)
    if info is None:
        return ""
    return use or _retained(task, topic, info) or ("" if info.migrated else "it was not terminated by the migration")


def _retained(task: BlueGreenTask, topic: TopicName, info: InternalInfo) -> str:
    """What readers may still want of a topic: green has none of it."""
    entries, end = sum(ledger.entries for ledger in info.ledgers), info.terminated_position
    # The last ledger says 0, also when it was ended with its topic.
    if end and info.ledgers and (last := info.ledgers[-1]).ledger_id == end.ledger_id and not last.entries:
        entries += end.entry_id + 1
    if task.input.cleanup_retained or not entries:
        return ""
    kept = _retention(task, topic)
    if kept.retention_time_in_minutes == 0 or kept.retention_size_in_m_b == 0:
        return ""
    return (
        f'retention keeps {entries:,} entries that {task.input.green_cluster} lacks, and "cleanup_retained" is not set'
    )


def _retention(task: BlueGreenTask, topic: TopicName) -> Retention:
    """How long blue keeps what a topic's subscriptions do not need any more."""
    # Brokers that have policies of topics switched off do not tell.
    with suppress(AdminUnsupported):
        return task.blue.topics.retention(topic.whole)
    if own := task.blue.namespaces.retention(topic.namespace_path):
        return own
    defaults = task.blue.brokers.runtime_configuration()
    return Retention(
        retention_time_in_minutes=int(defaults["defaultRetentionTimeInMinutes"]),
        retention_size_in_m_b=int(defaults["defaultRetentionSizeInMB"]),
    )
