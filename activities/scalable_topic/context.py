"""What the steps of one migration to a scalable topic share: the cluster, the claim, and the topic as it is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Self

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.registrations import brokers
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.topic_inventory import TopicInventory, TopicReader
from activities.scalable_topic.guards import Guard
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasStore
from clients.errors import StoreNotFound
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas, open_reader
from models.lifecycle.claim import Attempt, Claim
from models.scalable_topic.claims import GuardedNamespace
from models.scalable_topic.input import ScalableTopicInput


class TopicTask:
    """One attempt's view of its migration; a context manager.

    Args:
        runtime: what the process shares.
        input: of the migration.
        attempt: which attempt of the migration this is.
        context: of the activity.
    """

    def __init__(self, runtime: Runtime, input: ScalableTopicInput, attempt: Attempt, context: ActivityContext) -> None:
        self.runtime = runtime
        self.input = input
        self.attempt = attempt
        self.context = context
        self._open = ExitStack()
        self.name = TopicName.parse(input.topic)
        self.admin = self._open.enter_context(PulsarAdmin.open(runtime.admin_of(input.credentials), input.admin_urls))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def stores(self) -> Access:
        """How the metadata store is talked to."""
        return self.runtime.stores_of(self.input.credentials)

    @contextmanager
    def store(self) -> Generator[CasStore]:
        """The brokers' metadata store."""
        with open_cas(self.input.store, self.stores) as store:
            yield store

    def keeper(self, store: CasStore) -> ClaimKeeper[Claim]:
        """The claim of the migration on the cluster."""
        return ClaimKeeper(store, Claim, self.attempt)

    def guard(self, store: CasStore, namespace: str = "") -> Guard:
        """The right to change a namespace; by default that of the topic."""
        return Guard(store, self.attempt, namespace or self.name.namespace_path, GuardedNamespace)

    def brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Every broker that is active, with its address, for what each has to know."""
        access = self.runtime.admin_of(self.input.credentials)
        session = self._open.enter_context(HttpSession(access))
        with open_reader(self.input.store, self.stores) as reader:
            found = [(service.name, registered_urls(service.data, access)) for service in brokers(reader)]
        return [(name, PulsarAdminReader(session, urls)) for name, urls in found]

    def find_topic(self) -> TopicInventory | None:
        """The regular topic as it is; None where there is none."""
        reader = TopicReader(self.admin, self.context.check)
        try:
            partitions = self.admin.topics.partitions(self.name)
        except AdminNotFound:
            return None
        return reader.partitioned(self.name) if partitions else reader.plain(self.name)

    def read_topic(self) -> TopicInventory:
        """The regular topic as it is.

        Raises:
            StoreNotFound: it is gone.
        """
        if (topic := self.find_topic()) is None:
            raise StoreNotFound(f"{self.name} is gone: somebody has deleted it", server=self.input.admin_urls[0])
        return topic
