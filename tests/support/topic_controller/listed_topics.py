"""Topics of a controlled topic that brokers list."""

from __future__ import annotations

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from tests.support.waiting import wait_until_equal

_LIMIT = 30.0


def listed_topics(admin: PulsarAdmin, name: TopicName) -> list[str]:
    """Return the names of segments and the layout topic that a broker lists."""
    return [topic for topic in admin.topics.names(name.namespace_path) if f"/{name.topic}.scalable." in topic]


def wait_until_none_is_listed(admin: PulsarAdmin, name: TopicName) -> None:
    """Wait until a broker lists no topic of a deleted controlled topic, also if another broker has deleted them."""
    wait_until_equal(f"topics of {name}", lambda: listed_topics(admin, name), [], _LIMIT)
