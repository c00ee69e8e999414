"""Two ways to send a namespace's clients to green: by the broker's mechanism alone, and once writes are quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clients.pulsar.admin.errors import AdminError
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from pulsar_devstack.moving.clusters import BLUE, TwoClusters

_LIMIT = 60.0
_LOOK_EVERY = 0.1
_QUIET_LOOKS = 3


def flip_bare(clusters: TwoClusters, namespace: str) -> None:
    """What a broker offers: green's address, then the namespace's flag, and nothing more."""
    clusters.blue.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
    clusters.blue.namespaces.set_migrated(namespace, migrated=True)


def flip_quiet(clusters: TwoClusters, namespace: str, topics: Sequence[TopicName]) -> None:
    """Hold writes back until every topic is ended, and send clients away once all is acknowledged.

    Args:
        clusters: blue and green.
        namespace: `tenant/namespace`.
        topics: all of it, by partition.
    """
    blue = clusters.blue
    blue.namespaces.set_publish_rate(namespace, PublishRate(publish_throttling_rate_in_byte=1))
    try:
        _await_quiet(lambda: [blue.topics.stats(topic) for topic in topics])
        blue.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
        blue.namespaces.set_migrated(namespace, migrated=True)
        _await(lambda: all(_ended(clusters, topic) for topic in topics))
    finally:
        blue.namespaces.remove_publish_rate(namespace)


def _ended(clusters: TwoClusters, topic: TopicName) -> bool:
    try:
        return clusters.blue.topics.internal_info(topic).migrated
    except AdminError as error:
        # Deleted already, which brokers do after the end.
        return error.status is not None


def _await_quiet(look: Callable[[], list[TopicStats]]) -> None:
    """Until nothing more arrives, and everything was acknowledged.

    Both, as a broker can block itself if the last acknowledgement comes when the topic is ended.
    """
    deadline = time.monotonic() + _LIMIT
    counters: list[list[int]] = []
    while True:
        found = look()
        counters.append([topic.msg_in_counter for topic in found])
        drained = not any(one.msg_backlog for topic in found for one in topic.subscriptions.values())
        if drained and len(counters) >= _QUIET_LOOKS and len({tuple(one) for one in counters[-_QUIET_LOOKS:]}) == 1:
            return
        _in_time(deadline)


def _await(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not holds():
        _in_time(deadline)


def _in_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"no flip in {_LIMIT:g} s")
    time.sleep(_LOOK_EVERY)
