"""The two clusters of a benchmark, each with a store and a bookie of its own, and what runs migrations."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from activities.blue_green.provisioning.ledger_ids import raise_ids
from bench.lifecycle.measure import execute, reported, serving_worker
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.errors import AdminError
from clients.stores import Access
from models.blue_green.input import BlueGreenInput
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import TopicPlan
from pulsar_devstack.traffic.two_clusters import BLUE, GREEN, TwoClusters

_SETTINGS = {"clusterMigrationCheckDurationSeconds": "1", "forceDeleteNamespaceAllowed": "true"}
_ACCESS = AdminAccess(timeout=20)
# Enough for each broker to get some.
_CHECKED = 8


class Servers:
    """Both clusters, blue with two brokers and green with one, from the entry of the context to its end.

    Args:
        folder: for data and logs.
        tools: the programs.
    """

    def __init__(self, folder: Path, tools: Toolchain) -> None:
        self._logs = folder
        self._blue = Stack(_spec(BLUE, brokers=2, temporal=True), folder / BLUE, tools)
        self._green = Stack(_spec(GREEN, brokers=1), folder / GREEN, tools)
        self._open = ExitStack()
        self._checks = 0

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(opening.enter_context, (self._blue, self._green)))
            self.migrations = opening.enter_context(
                Migrations.serving(self._blue, self._green, self._blue.temporal_address, self._logs)
            )
            # Ours would do it; the peer gets it too.
            raise_ids(self.migrations.input("bench/any"), Access(), Access(), lambda: None)
            blue = opening.enter_context(PulsarAdmin.open(_ACCESS, self._blue.admin_urls))
            green = opening.enter_context(PulsarAdmin.open(_ACCESS, self._green.admin_urls))
            urls = ClusterUrls(service_url=self._green.admin_urls[0], broker_service_url=self._green.broker_url)
            self.clusters = TwoClusters(blue, green, self._blue.broker_url, urls)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def broker_logs(self) -> list[Path]:
        """The log of each broker of both clusters."""
        return [
            stack[f"broker-{number}"].log
            for stack in (self._blue, self._green)
            for number in range(1, stack.state.spec.brokers + 1)
        ]

    def recovered(self) -> bool:
        """Restart all brokers of blue if they cannot load new topics any more; returns whether that was so."""
        self._checks += 1
        namespace = f"check/n{self._checks}"
        topics = [TopicPlan(f"persistent://{namespace}/t{number}", 0, (), ()) for number in range(_CHECKED)]
        try:
            self.clusters.prepare(namespace, topics)
        except AdminError:
            for number in range(1, self._blue.state.spec.brokers + 1):
                self._blue[f"broker-{number}"].restart()
            return True
        with suppress(AdminError):
            self.clusters.leave(namespace)
        return False


def _spec(cluster: str, *, brokers: int, temporal: bool = False) -> StackSpec:
    return StackSpec(
        zookeepers=1, bookies=1, brokers=brokers, cluster=cluster, broker_settings=_SETTINGS, temporal=temporal
    )


@dataclass(frozen=True)
class Migrations:
    """Runs migrations, one after the other.

    Attributes:
        blue: the cluster that is left.
        green: the one that takes over.
        temporal: `host:port` of the server.
    """

    blue: Stack
    green: Stack
    temporal: str

    @classmethod
    @contextmanager
    def serving(cls, blue: Stack, green: Stack, temporal: str, logs: Path) -> Generator[Migrations]:
        """Start a worker and wait until it is ready; it ends with the context. Its log is in `logs`."""
        with serving_worker(temporal, logs):
            yield cls(blue, green, temporal)

    def input(self, namespaces: str, **more: object) -> BlueGreenInput:
        """Return the input for the namespaces of a pattern, with further fields."""
        return BlueGreenInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": BLUE,
                "blue": _reached(self.blue),
                "green_cluster": GREEN,
                "green": _reached(self.green),
                "namespaces": [namespaces],
                "waves": {"gate": "none"},
                "grace_window": "PT0S",
                "complete_cluster": False,
                **more,
            }
        )

    def run(self, namespaces: str, **more: object) -> dict[str, float]:
        """Move the namespaces of a pattern, to the end of the migration; returns the workflow's own figures.

        Raises:
            MigrationFailed: it failed.
        """
        return reported(execute(self.temporal, "BlueGreenMigration", self.input(namespaces, **more)))


def _reached(stack: Stack) -> dict[str, object]:
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "service_url": stack.admin_urls[0],
        "broker_service_url": stack.broker_url,
    }
