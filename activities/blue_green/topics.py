"""How topics of a namespace stand: loaded, stranded or gone, with which clients and backlogs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from activities.lifecycle.context import ActivityContext
from activities.pulsar.stored_topics import stored
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import InternalInfo, TopicStats, is_brokers_cursor
from clients.pulsar.names import TopicName
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.names import BACKLOG_GAUGE, PUBLISHERS_GAUGE

_BLOCKED = "already migrated"


class TopicLook(NamedTuple):
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


def look_at(admin: PulsarAdminReader, topic: TopicName) -> TopicLook:
    """How a topic is; loads it where that is possible.

    Raises:
        AdminError: it could not be found out.
    """
    try:
        return TopicLook(topic, admin.topics.stats(topic))
    except AdminNotFound:
        return TopicLook(topic, None)
    except AdminServerError as error:
        if _BLOCKED in str(error):
            return TopicLook(topic, None, blocked=True)
        raise


def is_terminated(admin: PulsarAdminReader, topic: TopicName) -> bool:
    """Return whether a topic's clients are sent elsewhere for good, or it is gone."""
    info = stored(admin, topic)
    return info is None or info.migrated


def traffic_of(stats: TopicStats) -> Traffic:
    """What has moved so far."""
    backlog = sum(one.msg_backlog for one in stats.client_subscriptions.values())
    return Traffic(stats.msg_in_counter, backlog, len(stats.publishers))


def show_blue(context: ActivityContext, topics: Iterable[TopicStats]) -> int:
    """Tell dashboards how topics of blue are; returns the messages that their subscriptions have left."""
    found = list(map(traffic_of, topics))
    backlog = sum(one.backlog for one in found)
    context.reading(BACKLOG_GAUGE, "blue", backlog)
    context.reading(PUBLISHERS_GAUGE, "blue", sum(one.publishers for one in found))
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
