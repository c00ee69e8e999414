"""Two clusters with the same topics and subscriptions, and two ways to move the clients of a namespace between them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.errors import AdminConflict, AdminError
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.plan import TopicPlan

BLUE, GREEN = "blue", "green"
_BUNDLES = 4
_PARALLEL = 8
_FLIP_LIMIT = 60.0
_POLL = 0.1
_QUIET_POLLS = 3


@dataclass(frozen=True)
class TwoClusters:
    """Both clusters, each with a superuser.

    Attributes:
        blue: admin interface of the cluster that is left.
        green: of the one that takes over.
        blue_url: `pulsar://…`, where all clients begin.
        green_urls: where they are sent.
    """

    blue: PulsarAdmin
    green: PulsarAdmin
    blue_url: str
    green_urls: ClusterUrls

    def prepare(self, namespace: str, topics: Sequence[TopicPlan], *, on_green: bool = True) -> None:
        """Create a namespace with its topics and subscriptions, on blue, and on green as well."""
        for admin, cluster in ((self.blue, BLUE), (self.green, GREEN))[: 1 + on_green]:
            create_namespace(admin, cluster, namespace, topics)

    def leave(self, namespace: str) -> None:
        """Delete what a flip has left, so that the next one finds brokers as this one did."""
        self.blue.namespaces.set_migrated(namespace, migrated=False)
        for admin in (self.blue, self.green):
            admin.namespaces.delete(namespace, force=True)


def create_namespace(admin: PulsarAdmin, cluster: str, namespace: str, topics: Sequence[TopicPlan]) -> None:
    """Create a namespace on one cluster, with its tenant, its topics and their subscriptions."""
    with suppress(AdminConflict):
        admin.tenants.create(namespace.partition("/")[0], Tenant(allowed_clusters=(cluster,)))
    admin.namespaces.create(namespace, {"replication_clusters": [cluster], "bundles": {"numBundles": _BUNDLES}})
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(partial(_create, admin), topics))


def pieces(plan: TopicPlan) -> list[TopicName]:
    """Return a topic itself, or its partitions."""
    name = TopicName.parse(plan.topic)
    return [name.of_partition(number) for number in range(plan.partitions)] or [name]


def _create(admin: PulsarAdmin, plan: TopicPlan) -> None:
    name = TopicName.parse(plan.topic)
    if plan.partitions:
        admin.topics.create_partitioned(name, plan.partitions)
    else:
        admin.topics.create(name)
    for subscription in plan.subscriptions:
        admin.subscriptions.create(name, subscription)


def flip_bare(clusters: TwoClusters, namespace: str) -> None:
    """Set only what a broker offers: green's address, then the namespace's flag."""
    clusters.blue.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
    clusters.blue.namespaces.set_migrated(namespace, migrated=True)


def flip_when_idle(clusters: TwoClusters, namespace: str, topics: Sequence[TopicName]) -> None:
    """Block writes until every topic is ended, and redirect clients after everything is acknowledged.

    Args:
        clusters: blue and green.
        namespace: `tenant/namespace`.
        topics: all of it, by partition.
    """
    blue = clusters.blue
    blue.namespaces.set_publish_rate(namespace, PublishRate(publish_throttling_rate_in_byte=1))
    try:
        _wait_until_idle(lambda: [blue.topics.stats(topic) for topic in topics])
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


def _wait_until_idle(read_stats: Callable[[], list[TopicStats]]) -> None:
    """Wait until no more messages arrive, and all are acknowledged.

    Both are needed: a broker can deadlock if the last acknowledgement arrives while the topic is ended.
    """
    deadline = time.monotonic() + _FLIP_LIMIT
    counters: list[list[int]] = []
    while True:
        stats = read_stats()
        counters.append([topic.msg_in_counter for topic in stats])
        drained = not any(subscription.msg_backlog for topic in stats for subscription in topic.subscriptions.values())
        if (
            drained
            and len(counters) >= _QUIET_POLLS
            and len({tuple(counter) for counter in counters[-_QUIET_POLLS:]}) == 1
        ):
            return
        _in_time(deadline)


def _await(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _FLIP_LIMIT
    while not holds():
        _in_time(deadline)


def _in_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"no flip in {_FLIP_LIMIT:g} s")
    time.sleep(_POLL)
