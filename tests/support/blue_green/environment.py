"""Two real clusters: blue, with two brokers, and green, each with a metadata store and a bookie of its own.

All modules of a session share them, so a test works in a tenant of its own and leaves all servers running.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.late_requests import change_or_never
from models.blue_green.input import BlueGreenInput
from models.releases import Release, parse_release
from pulsar_devstack.servers.provision import with_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.two_clusters import TwoClusters
from tests.support.stacks import SharedStack

BLUE, GREEN = "blue", "green"
NAMES = {BLUE: GREEN}
"""What blue's cluster is called on green."""

KEPT_TOPICS = {"brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "3600"}
"""Lines of `broker.conf`: by default brokers delete topics without subscriptions after a minute without clients."""

# The broker's default is 0: no topic is ever moved. Chunks are made small, since bookies refuse larger entries.
_SETTINGS = {
    "clusterMigrationCheckDurationSeconds": "1",
    "maxMessageSize": "1000000",
    "forceDeleteNamespaceAllowed": "true",
    **KEPT_TOPICS,
}
# Off in 5.0, unless it is configured; 4.x does not know the setting, and has them.
_SHADOWS = {"enableShadowTopics": "true"}
BLUE_SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=BLUE, broker_settings={**_SETTINGS, **_SHADOWS})
GREEN_SPEC = StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=GREEN, broker_settings=_SETTINGS)
OXIA_SPEC = StackSpec(oxias=1, bookies=1, brokers=1, metadata="oxia", cluster=GREEN, broker_settings=_SETTINGS)
"""Green with its metadata in Oxia."""


@dataclass(frozen=True)
class Clusters:
    """Both clusters, and a superuser of each."""

    blue: Stack
    green: Stack
    blue_admin: PulsarAdmin
    green_admin: PulsarAdmin

    @property
    def green_urls(self) -> ClusterUrls:
        """Return the addresses to which clients of blue are redirected."""
        return ClusterUrls(service_url=self.green.admin_urls[0], broker_service_url=self.green.broker_url)

    def input(self, **more: object) -> BlueGreenInput:
        """Return the migration from blue to green."""
        return BlueGreenInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": BLUE,
                "blue": _reached(self.blue),
                "green_cluster": GREEN,
                "green": _reached(self.green),
                **more,
            }
        )

    def failback_input(self, **more: object) -> BlueGreenInput:
        """Return the migration from green back to blue."""
        return BlueGreenInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": GREEN,
                "blue": _reached(self.green),
                "green_cluster": BLUE,
                "green": _reached(self.blue),
                **more,
            }
        )

    def change_green(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], Any],
    ) -> Any:
        """Make a change on green that does not arrive late."""
        access = AdminAccess(timeout=30)
        return change_or_never(access, self.green.admin_urls, connect=connect, fence=fence, change=change)

    @property
    def green_release(self) -> Release:
        """The release of green's brokers."""
        return parse_release(self.green_admin.brokers.version())

    @property
    def two(self) -> TwoClusters:
        """The two clusters as the traffic programs need them."""
        return TwoClusters(self.blue_admin, self.green_admin, self.blue.broker_url, self.green_urls)


@pytest.fixture(scope="session")
def blue_tools(toolchain: Toolchain) -> Toolchain:
    """Return what blue runs on: the release that `PULSAR_MIGRATE_BLUE` names (4.0, 4.2 or 5.0), by default green's."""
    line = os.environ.get("PULSAR_MIGRATE_BLUE")
    return with_release(toolchain, line) if line else toolchain


@pytest.fixture(scope="session")
def clusters(shared_stack: SharedStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """Both clusters, which contain only what tests leave there."""
    with open_clusters(shared_stack(BLUE_SPEC, blue_tools), shared_stack(GREEN_SPEC)) as both:
        yield both


@pytest.fixture(scope="session")
def clusters_to_oxia(shared_stack: SharedStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """The same blue, and a green that keeps its metadata in Oxia."""
    with open_clusters(shared_stack(BLUE_SPEC, blue_tools), shared_stack(OXIA_SPEC)) as both:
        yield both


@contextmanager
def open_clusters(blue: Stack, green: Stack) -> Generator[Clusters]:
    """Yield two stacks as blue and green."""
    access = AdminAccess(timeout=30)
    with (
        PulsarAdmin.open(access, blue.admin_urls) as blue_admin,
        PulsarAdmin.open(access, green.admin_urls) as green_admin,
    ):
        yield Clusters(blue, green, blue_admin, green_admin)


def restart_brokers(stack: Stack) -> None:
    """Restart all brokers, one after the other, so that they forget the producers that they have redirected."""
    for server in stack:
        if server.kind == "broker":
            server.restart()


def _reached(stack: Stack) -> dict[str, object]:
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "service_url": stack.admin_urls[0],
        "broker_service_url": stack.broker_url,
    }
