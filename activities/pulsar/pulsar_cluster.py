"""Connections of one attempt to a cluster: admin interface, binary protocol, and metadata store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Generic, Self, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.parallel import MAX_CONCURRENT_REQUESTS, ItemT, ResultT, map_concurrent
from activities.lifecycle.runtime import Runtime
from activities.pulsar.registrations import Service, brokers
from clients.cas.store import CasStore
from clients.errors import NoServer
from clients.pulsar.admin.brokers import registered_service_url, registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.admin.late_requests import IDLE_LIMIT, change_or_never
from clients.stores import Access, open_cas, open_reader
from models.lifecycle.claim import Attempt
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.status import WaitKind

AccessT_co = TypeVar("AccessT_co", bound=ClusterAccess, covariant=True)

LONGEST_REQUEST = 30.0
"""Seconds that a broker may take to answer a request; one that had just started took half a minute."""


class PulsarCluster(Generic[AccessT_co]):
    """The cluster that an input names; a context manager.

    Args:
        runtime: of the process.
        input: of the workflow.
        attempt: which attempt of the workflow this is.
        context: of the activity.
    """

    def __init__(self, runtime: Runtime, input: AccessT_co, attempt: Attempt, context: ActivityContext) -> None:
        self.runtime = runtime
        self.input = input
        self.attempt = attempt
        self.context = context
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def admin(self) -> PulsarAdmin:
        """The admin interface.

        Raises:
            NoCredentials: the settings lack the credentials that the input names.
        """
        access = self.runtime.admin_of(self.input.credentials)
        opened = PulsarAdmin.open(access, self.input.admin_urls, connections=MAX_CONCURRENT_REQUESTS)
        return self._open.enter_context(opened)

    @property
    def stores(self) -> Access:
        """Access to the metadata store."""
        return self.runtime.stores_of(self.input.credentials)

    @contextmanager
    def store(self) -> Generator[CasStore]:
        """Open the brokers' metadata store."""
        with open_cas(self.input.store, self.stores) as store:
            yield store

    def change_or_never(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change that arrives soon after the check of the fence, or never; see `late_requests`."""
        access = self.runtime.admin_of(self.input.credentials)
        return change_or_never(access, self.input.admin_urls, connect=connect, fence=fence, change=change)

    def await_late_requests(self, age: float = 0.0) -> bool:
        """Wait until no change of an earlier attempt can arrive any more; return whether a wait was needed.

        Args:
            age: seconds since that attempt was given up.
        """
        remaining = IDLE_LIMIT + LONGEST_REQUEST - age
        if remaining <= 0:
            return False
        with self.context.waiting(WaitKind.STORE, "requests of an earlier attempt, which may still arrive"):
            self.context.pause(remaining)
        return True

    def each(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Call `work` for all items, some concurrently; see `parallel.map_concurrent`."""
        return map_concurrent(self.context, items, work)

    def registrations(self) -> list[Service]:
        """Return the registrations of all active brokers in the metadata store."""
        with open_reader(self.input.store, self.stores) as reader:
            return brokers(reader)

    def brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return every active broker, with its address."""
        session = self._session()
        return [(name, PulsarAdminReader(session, urls)) for name, urls in self._broker_urls()]

    def writable_brokers(self) -> list[tuple[str, PulsarAdmin]]:
        """Return every active broker with its address, for changes that depend on the broker's own settings."""
        session = self._session()
        return [(name, PulsarAdmin(session, urls)) for name, urls in self._broker_urls()]

    def service_url(self) -> str:
        """Return the service URL of all brokers; all addresses with TLS, or all without.

        Raises:
            NoServer: no broker is registered.
        """
        access, address = self.runtime.admin_of(self.input.credentials), self.input.metadata_url
        urls = [registered_service_url(broker.data, access) for broker in self.registrations()]
        if not urls:
            raise NoServer(f"no broker is registered in {address}; start one", server=address)
        scheme = urls[0].partition("://")[0]
        hosts = [url.partition("://")[2].rstrip("/") for url in urls if url.startswith(f"{scheme}://")]
        return f"{scheme}://{','.join(hosts)}"

    def _session(self) -> HttpSession:
        return self._open.enter_context(HttpSession(self.runtime.admin_of(self.input.credentials)))

    def _broker_urls(self) -> list[tuple[str, list[str]]]:
        access = self.runtime.admin_of(self.input.credentials)
        return [(service.name, registered_urls(service.data, access)) for service in self.registrations()]
