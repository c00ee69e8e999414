"""Blue and green of many rounds, and the state of both that a migration may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import NamedTuple, Self

from activities.blue_green.cluster import KEEP_LOADED
from activities.blue_green.namespace_redirect import records
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from clients.stores import Access, open_cas_reader
from models.blue_green.claims import Stage
from models.blue_green.input import BlueGreenInput
from models.lifecycle.claim import CLAIM, namespace_record
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from tests.faults.lifecycle.stack_pool import Cluster
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.clients.dynamic_settings import dynamic_values

_ACCESS = AdminAccess(timeout=30)
_NOTES = (CLAIM, f"{CLAIM}-namespaces", f"{CLAIM}-clients")
"""Nodes of a migration in a metadata store, which are gone after its end."""


class ClusterState(NamedTuple):
    """State of both clusters that a migration may change.

    Attributes:
        flags: whether clients of a namespace are sent to green.
        rates: the limit on what may be sent to a namespace of blue.
        settings: dynamic settings of blue's brokers.
        running: what each of blue's brokers runs on, of what a migration changes.
        cluster: where all of blue's clients are sent, or would be.
        notes: claims and records on blue and on green, by their path; without those that stay of what has moved.
        green: topics of green, with their subscriptions.
    """

    flags: Mapping[str, bool]
    rates: Mapping[str, PublishRate | None]
    settings: Mapping[str, str]
    running: list[dict[str, str]]
    cluster: ClusterMigration | None
    notes: Mapping[str, bytes]
    green: Mapping[str, list[str]]


class BlueAndGreen:
    """Two clusters for many rounds, each of which has namespaces of its own; a context manager.

    Args:
        blue: with two brokers, on an ensemble of ZooKeepers or on one of them.
        green: with one broker.

    Attributes:
        rounds: how many rounds it has had.
    """

    def __init__(self, blue: Cluster, green: Stack) -> None:
        self.blue, self.ensemble = blue
        self.green = green
        self.rounds = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        blue = self._opened.enter_context(PulsarAdmin.open(_ACCESS, self.blue.admin_urls))
        green = self._opened.enter_context(PulsarAdmin.open(_ACCESS, self.green.admin_urls))
        self.clusters = Clusters(self.blue, self.green, blue, green)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        self.blue.down(graceful=False)
        self.green.down(graceful=False)
        if self.ensemble:
            self.ensemble.__exit__()

    def input(self, tenant: str, **more: object) -> BlueGreenInput:
        """Return the migration of a tenant, with limits that end soon what cannot continue."""
        fields: dict[str, object] = {
            "namespaces": [f"{tenant}/*"],
            "quiesce_timeout": "PT90S",
            "flip_timeout": "PT60S",
            "drain_timeout": "PT100S",
            "grace_window": "PT0S",
            "complete_cluster": False,
        }
        return self.clusters.input(**{**fields, **more})

    def cluster_state(self, namespaces: Iterable[str]) -> ClusterState:
        """Return the current state."""
        names, blue, green = list(namespaces), self.clusters.blue_admin, self.clusters.green_admin
        topics = [TopicName.parse(topic) for name in names for topic in _topics(green, name)]
        return ClusterState(
            flags=self.flags(names),
            rates={name: blue.namespaces.publish_rate(name) for name in names},
            settings=dynamic_values(blue),
            running=[self._running(url) for url in self.blue.admin_urls],
            cluster=blue.clusters.migration(BLUE),
            notes=dict(self.notes()),
            green={str(topic): sorted(green.subscriptions.names(topic)) for topic in topics},
        )

    @staticmethod
    def _running(url: str) -> dict[str, str]:
        with PulsarAdmin.open(_ACCESS, [url]) as admin:
            configuration = admin.brokers.runtime_configuration()
        return {name: configuration.get(name, "") for name in KEEP_LOADED}

    def flags(self, namespaces: Iterable[str]) -> dict[str, bool]:
        """Return whether clients of namespaces are sent to green."""
        with _reader(self.blue) as store:
            return {name: read_flag(store, name) for name in namespaces}

    def notes(self) -> Iterator[tuple[str, bytes]]:
        """Yield what migrations have written for themselves into both metadata stores."""
        for name, stack in (("blue", self.blue), ("green", self.green)):
            with _reader(stack) as store:
                ignored = {
                    namespace_record(namespace)
                    for namespace, record in records(store).items()
                    if record.stage is Stage.KEPT
                }
                for path in _NOTES:
                    yield from ((f"{name}:{at}", value) for at, value in _below(store, path) if at not in ignored)

    def copies(self) -> dict[str, bytes]:
        """Return the records of copies, which are not needed once their namespaces have moved."""
        with _reader(self.blue) as store:
            return dict(_below(store, f"{CLAIM}-copies"))

    def half_moved(self, namespace: str, *, moved: bool) -> list[str]:
        """Return topics of blue that are ended although their namespace stays, or serve although it has moved."""
        blue = self.clusters.blue_admin
        wrong: list[str] = []
        for topic in map(TopicName.parse, _topics(blue, namespace)):
            info = stored(blue, topic)
            if info and moved and not info.migrated:
                wrong.append(f"{topic} is not terminated")
            elif info and not moved and (info.terminated_position or info.migrated):
                wrong.append(f"{topic} is terminated")
        return wrong

    def forget(self, namespaces: Iterable[str]) -> None:
        """Delete what a round has left, so that the next one finds brokers as this one did."""
        clusters = self.clusters
        if (migration := clusters.blue_admin.clusters.migration(BLUE)) and migration.migrated:
            clusters.blue_admin.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
        for name in namespaces:
            for admin in (clusters.blue_admin, clusters.green_admin):
                with suppress(AdminNotFound):
                    admin.namespaces.set_migrated(name, migrated=False)
                    admin.namespaces.delete(name, force=True)


def _reader(stack: Stack) -> CasReader:
    return open_cas_reader(parse_store_url(stack.metadata_url), Access())


def _topics(admin: PulsarAdmin, namespace: str) -> list[str]:
    try:
        return sorted(admin.topics.names(namespace))
    except AdminNotFound:
        return []


def _below(store: CasReader, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield a record with all below it that hold something."""
    if (node := store.get(path)) and node.value:
        yield path, node.value
    for child in store.children(path):
        yield from _below(store, f"{path}/{child}")
