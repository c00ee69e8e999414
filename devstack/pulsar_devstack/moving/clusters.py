"""Two clusters, and what a flip finds there: topics and subscriptions on blue and on green."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from pulsar_devstack.moving.plan import TopicPlan

BLUE, GREEN = "blue", "green"
_BUNDLES = 4
_PARALLEL = 8


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
    """A topic itself, or its partitions."""
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
