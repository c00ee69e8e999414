"""Subscriptions that are created on topics which clients use already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from activities.pulsar.pulsar_cluster import PulsarCluster
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.topics import EARLIEST, Position
from clients.pulsar.names import TopicName


def create_subscription(
    cluster: PulsarCluster,
    topic: TopicName,
    name: str,
    *,
    after: Position | None,
    fence: Callable[[], object],
    replicated: bool,
    properties: Mapping[str, str] | None,
) -> None:
    """Create a subscription soon after the fence was checked, or never; leave one that exists, and no topic, as it is.

    Args:
        cluster: of the topic.
        topic: the topic.
        name: of the subscription.
        after: the last message that it does not get; None if it starts at the earliest one.
        fence: raises if this attempt is late.
        replicated: whether its position is carried to other clusters.
        properties: notes of users.
    """
    # A subscription that is created at a message gets that message first.
    position = Position(ledger_id=after.ledger_id, entry_id=after.entry_id + 1) if after else EARLIEST
    with suppress(AdminConflict, AdminNotFound):
        cluster.change_or_never(
            connect=lambda admin: admin.subscriptions.names(topic),
            fence=fence,
            change=lambda admin: admin.subscriptions.create(
                topic, name, position, replicated=replicated, properties=properties
            ),
        )
