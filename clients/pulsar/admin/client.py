"""The admin interface of a Pulsar cluster, whole or for reading only.

with PulsarAdmin.open(access, ["https://broker-1:8443"]) as admin:
    admin.topics.create(TopicName.parse("acme/orders/new"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from clients.closeable import Closeable
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.bookie_clusters import BookieClusters, BookieClustersReader
from clients.pulsar.admin.brokers import Brokers, BrokersReader
from clients.pulsar.admin.clusters import Clusters, ClustersReader
from clients.pulsar.admin.http import Endpoint, HttpSession, ReadEndpoint
from clients.pulsar.admin.namespaces import Namespaces, NamespacesReader
from clients.pulsar.admin.scalable_topics import ScalableTopics, ScalableTopicsReader
from clients.pulsar.admin.schemas import Schemas, SchemasReader
from clients.pulsar.admin.subscriptions import Subscriptions, SubscriptionsReader
from clients.pulsar.admin.tenants import Tenants, TenantsReader
from clients.pulsar.admin.topic_policies import TopicPolicies, TopicPoliciesReader
from clients.pulsar.admin.topics import Topics, TopicsReader


class PulsarAdminReader(Closeable):
    """Reads; it has no method that changes anything. For many threads; a context manager.

    Args:
        session: sends the requests; may be shared, and `close` ends it for all.
        urls: addresses of brokers of one cluster, `https://host:port`; another is asked when one cannot be reached.
    """

    def __init__(self, session: HttpSession, urls: Sequence[str]) -> None:
        self._session = session
        self._reading = ReadEndpoint(session, urls)

    @classmethod
    def open(cls, access: AdminAccess, urls: Sequence[str], *, connections: int = 8) -> Self:
        """Return a client with a session of its own.

        Args:
            access: timeout, TLS and credentials.
            urls: addresses of brokers of one cluster.
            connections: how many requests may run at once.

        Raises:
            AdminDenied: a file of the TLS settings cannot be used.
        """
        return cls(HttpSession(access, connections), urls)

    @property
    def session(self) -> HttpSession:
        """Endpoint that sends the requests."""
        return self._session

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of brokers."""
        return self._reading.urls

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._session.close()

    @property
    def brokers(self) -> BrokersReader:
        """Brokers and their configuration."""
        return BrokersReader(self._reading)

    @property
    def clusters(self) -> ClustersReader:
        """The clusters that this one knows."""
        return ClustersReader(self._reading)

    @property
    def tenants(self) -> TenantsReader:
        """The tenants."""
        return TenantsReader(self._reading)

    @property
    def namespaces(self) -> NamespacesReader:
        """Namespaces and their policies."""
        return NamespacesReader(self._reading)

    @property
    def topics(self) -> TopicsReader:
        """Topics."""
        return TopicsReader(self._reading)

    @property
    def topic_policies(self) -> TopicPoliciesReader:
        """Policies that are set on topics themselves."""
        return TopicPoliciesReader(self._reading)

    @property
    def subscriptions(self) -> SubscriptionsReader:
        """Subscriptions of topics."""
        return SubscriptionsReader(self._reading)

    @property
    def schemas(self) -> SchemasReader:
        """Schemas of topics."""
        return SchemasReader(self._reading)

    @property
    def scalable_topics(self) -> ScalableTopicsReader:
        """Scalable topics."""
        return ScalableTopicsReader(self._reading)

    @property
    def bookie_clusters(self) -> BookieClustersReader:
        """The plugin of PIP-477."""
        return BookieClustersReader(self._reading)


class PulsarAdmin(PulsarAdminReader):
    """Reads and changes. For many threads; a context manager.

    Args:
        session: sends the requests; may be shared, and `close` ends it for all.
        urls: addresses of brokers of one cluster, `https://host:port`; another is asked when one cannot be reached.
        before_change: called right before each request that changes something, which is not sent if it raises.
    """

    def __init__(
        self, session: HttpSession, urls: Sequence[str], before_change: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(session, urls)
        self._calls = Endpoint(session, urls, before_change)

    def guarded(self, before_change: Callable[[], None]) -> PulsarAdmin:
        """Return the same over the same session, which stays this one's to close; see `before_change` of the class."""
        return PulsarAdmin(self._session, self.urls, before_change)

    @property
    def brokers(self) -> Brokers:
        """Brokers and their configuration."""
        return Brokers(self._calls)

    @property
    def clusters(self) -> Clusters:
        """The clusters that this one knows."""
        return Clusters(self._calls)

    @property
    def tenants(self) -> Tenants:
        """The tenants."""
        return Tenants(self._calls)

    @property
    def namespaces(self) -> Namespaces:
        """Namespaces and their policies."""
        return Namespaces(self._calls)

    @property
    def topics(self) -> Topics:
        """Topics."""
        return Topics(self._calls)

    @property
    def topic_policies(self) -> TopicPolicies:
        """Policies that are set on topics themselves."""
        return TopicPolicies(self._calls)

    @property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions of topics."""
        return Subscriptions(self._calls)

    @property
    def schemas(self) -> Schemas:
        """Schemas of topics."""
        return Schemas(self._calls)

    @property
    def scalable_topics(self) -> ScalableTopics:
        """Scalable topics."""
        return ScalableTopics(self._calls)

    @property
    def bookie_clusters(self) -> BookieClusters:
        """The plugin of PIP-477."""
        return BookieClusters(self._calls)
