"""Clusters, as a cluster knows itself and others, and the flag that moves one's clients to another (PIP-188)."""

from __future__ import annotations

from pydantic import TypeAdapter

from clients.pulsar.admin.answers import NAMES, Answer
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.names import encoded


class ClusterUrls(Answer):
    """Addresses of a cluster; at least one address of each pair is given.

    Attributes:
        service_url: admin interface, `http://…`.
        service_url_tls: the same by HTTPS.
        broker_service_url: `pulsar://…`.
        broker_service_url_tls: the same with TLS, `pulsar+ssl://…`.
    """

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None


class ClusterMigration(Answer):
    """Redirect of a cluster's clients to another cluster.

    Attributes:
        migrated: whether they are redirected.
        migrated_cluster_url: addresses of the other cluster; None or empty if they were not stored.
    """

    migrated: bool
    migrated_cluster_url: ClusterUrls | None = None


class _Isolation(Answer):
    namespaces: tuple[str, ...] = ()


_URLS = TypeAdapter(ClusterUrls)
_ISOLATION = TypeAdapter(dict[str, _Isolation])
_MIGRATION = TypeAdapter(ClusterMigration)


class ClustersReader:
    """The clusters that a cluster knows."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self) -> list[str]:
        """Return all clusters, including its own; `global` may be among them."""
        return self._endpoint.get_as(NAMES, "/clusters")

    def get(self, name: str) -> ClusterUrls:
        """Return the addresses of a cluster.

        Raises:
            AdminNotFound: it is not known.
        """
        return self._endpoint.get_as(_URLS, f"/clusters/{encoded(name)}")

    def isolated_namespaces(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return a cluster's isolation policies, with the patterns of namespaces that have brokers of their own."""
        policies = self._endpoint.find_as(_ISOLATION, f"/clusters/{encoded(name)}/namespaceIsolationPolicies") or {}
        return {policy: rules.namespaces for policy, rules in policies.items()}

    def migration(self, name: str) -> ClusterMigration | None:
        """Return the redirect of a cluster's clients; None if it was never set."""
        return self._endpoint.find_as(_MIGRATION, f"/clusters/{encoded(name)}/migrate")


class Clusters(ClustersReader):
    """The clusters that a cluster knows, with the calls that change them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(self, name: str, urls: ClusterUrls) -> None:
        """Register a cluster.

        Raises:
            AdminConflict: it is known.
        """
        self._calls.put(f"/clusters/{encoded(name)}", urls.body())

    def update(self, name: str, urls: ClusterUrls) -> None:
        """Replace the addresses of a cluster; an address that is not given here is removed."""
        self._calls.post(f"/clusters/{encoded(name)}", urls.body())

    def delete(self, name: str) -> None:
        """Remove a cluster.

        Raises:
            AdminPreconditionFailed: namespaces use it.
        """
        self._calls.delete(f"/clusters/{encoded(name)}")

    def set_migration(self, name: str, urls: ClusterUrls, *, migrated: bool) -> None:
        """Redirect a cluster's clients to another one, or only store its addresses.

        The broker accepts any name and any body, and keeps only the given fields: an address that is not given is
        removed. Read it back.

        Args:
            name: the broker's own cluster.
            urls: of the other one; both an admin interface and a broker must be named.
            migrated: whether clients are sent there now.

        Raises:
            ValueError: an address is missing, with which the broker would block every load of a topic.
        """
        # Brokers before 5.0.0, 4.2.5 and 4.0.14 accept `{}` (#26473).
        if not (urls.service_url or urls.service_url_tls) or not (
            urls.broker_service_url or urls.broker_service_url_tls
        ):
            raise ValueError("the other cluster needs an address of its admin interface and one of its brokers")
        self._calls.post(f"/clusters/{encoded(name)}/migrate", urls.body(), {"migrated": migrated})
