"""A cluster for many rounds, each of which has a namespace of its own."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.tenants import Tenant
from tests.faults.lifecycle.stack_pool import Cluster

TENANT = "rounds"
"""Has the namespaces of all rounds."""

_ACCESS = AdminAccess(timeout=30)


class SharedCluster:
    """A cluster with a tenant for rounds; a context manager.

    Args:
        cluster: with its brokers, on an ensemble of ZooKeepers or on one of them.
        name: of the cluster, as its brokers have it.

    Attributes:
        admin: of its brokers, once it is entered.
        rounds: how many rounds it has had.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.stack, self.ensemble = cluster
        self.rounds = 0
        self._name = name
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self.admin = self._opened.enter_context(PulsarAdmin.open(_ACCESS, self.stack.admin_urls))
        with suppress(AdminConflict):
            self.admin.tenants.create(TENANT, Tenant(allowed_clusters=(self._name,)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        self.stack.down(graceful=False)
        if self.ensemble:
            self.ensemble.__exit__()
