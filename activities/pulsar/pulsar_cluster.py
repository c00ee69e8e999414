"""One attempt's view of a cluster: its brokers' admin interface and binary protocol, and their metadata store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Generic, Self, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.parallel import MAX_CONCURRENT_REQUESTS, ItemT, ResultT, map_concurrent
from activities.lifecycle.runtime import Runtime
from activities.pulsar.registrations import brokers
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
"""Seconds that a broker may take for a request that it has; a cold one took half a minute."""


class PulsarCluster(Generic[AccessT_co]):
    """The cluster that an input names; a context manager.

    Args:
        runtime: what the process shares.
        input: of the workflow.
        attempt: which attempt of it this is.
        context: of the activity.
    """

    def __init__(self, runtime: Runtime, input: AccessT_co, attempt: Attempt, context: ActivityContext) -> None:
        self.runtime = runtime
        self.input = input
        self.attempt = attempt
        self.context = context
        self._open = ExitStack()
        access = runtime.admin_of(input.credentials)
        self.admin = self._open.enter_context(
            PulsarAdmin.open(access, input.admin_urls, connections=MAX_CONCURRENT_REQUESTS)
        )

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

    def change_or_never(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change that arrives soon after the look at the fence, or never; see `late_requests`."""
        access = self.runtime.admin_of(self.input.credentials)
        return change_or_never(access, self.input.admin_urls, connect=connect, fence=fence, change=change)

    def await_late_requests(self, age: float = 0.0) -> bool:
        """Wait until no such change of an earlier attempt can arrive any more; whether that had to be waited for.

        Args:
            age: seconds since that attempt was given up.
        """
        left = IDLE_LIMIT + LONGEST_REQUEST - age
        if left <= 0:
            return False
        with self.context.waiting(WaitKind.STORE, "requests of an earlier attempt, which may still arrive"):
            self.context.pause(left)
        return True

    def each(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Do the same for many items, some at once; see `parallel.map_concurrent`."""
        return map_concurrent(self.context, items, work)

    def brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Every broker that is active, with its address, for what each must know."""
        session = self._session()
        return [(name, PulsarAdminReader(session, urls)) for name, urls in self._broker_urls()]

    def writable_brokers(self) -> list[tuple[str, PulsarAdmin]]:
        """Return the same for what each decides by its own settings when it is asked for a change."""
        session = self._session()
        return [(name, PulsarAdmin(session, urls)) for name, urls in self._broker_urls()]

    def service_url(self) -> str:
        """The addresses of all brokers' binary protocol; of one kind, with TLS or without.

        Raises:
            NoServer: none is registered.
        """
        access, address = self.runtime.admin_of(self.input.credentials), self.input.metadata_url
        with open_reader(self.input.store, self.stores) as reader:
            urls = [registered_service_url(broker.data, access) for broker in brokers(reader)]
        if not urls:
            raise NoServer(f"no broker is registered in {address}; start one", server=address)
        scheme = urls[0].partition("://")[0]
        hosts = [url.partition("://")[2].rstrip("/") for url in urls if url.startswith(f"{scheme}://")]
        return f"{scheme}://{','.join(hosts)}"

    def _session(self) -> HttpSession:
        return self._open.enter_context(HttpSession(self.runtime.admin_of(self.input.credentials)))

    def _broker_urls(self) -> list[tuple[str, list[str]]]:
        access = self.runtime.admin_of(self.input.credentials)
        with open_reader(self.input.store, self.stores) as reader:
            return [(service.name, registered_urls(service.data, access)) for service in brokers(reader)]
