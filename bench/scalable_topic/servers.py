"""The cluster of a benchmark: two brokers of Pulsar 5.0, and what runs migrations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.scalable_topic.subject import Migrations
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas_reader
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan

CLUSTER = "bench"
_ACCESS = AdminAccess(timeout=60)
_BUNDLES = 4
_PARALLEL = 8


class Servers:
    """Brokers, their store, and a worker, from the entry of the context to its end.

    Args:
        folder: for data and logs.
        tools: the programs.

    Attributes:
        stack: the servers.
        admin: of the brokers.
        store: where brokers keep layouts.
        migrations: runs ours.
    """

    def __init__(self, folder: Path, tools: Toolchain) -> None:
        spec = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=CLUSTER, temporal=True)
        self.stack = Stack(spec, folder / CLUSTER, tools)
        self._logs = folder
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            stack = opening.enter_context(self.stack)
            self.migrations = opening.enter_context(Migrations.serving(stack, CLUSTER, self._logs))
            self.admin = opening.enter_context(PulsarAdmin.open(_ACCESS, stack.admin_urls))
            self.store = opening.enter_context(open_cas_reader(parse_store_url(stack.metadata_url), Access()))
            with suppress(AdminConflict):
                self.admin.tenants.create(CLUSTER, Tenant(allowed_clusters=(CLUSTER,)))
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def create(self, namespace: str, topics: Sequence[ScalableTopicPlan]) -> None:
        """Create a namespace with its topics, without subscriptions."""
        policies = {"replication_clusters": [CLUSTER], "bundles": {"numBundles": _BUNDLES}}
        self.admin.namespaces.create(namespace, policies)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(self._create, topics))

    def _create(self, plan: ScalableTopicPlan) -> None:
        name = TopicName.parse(plan.topic)
        if plan.partitions:
            self.admin.topics.create_partitioned(name, plan.partitions)
        else:
            self.admin.topics.create(name)
