"""Connections of one attempt to a cluster: admin interface, binary protocol, and metadata store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Protocol, Self

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.parallel import MAX_CONCURRENT_REQUESTS, ResultT
from activities.lifecycle.runtime import Runtime
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.registrations import Service, brokers
from clients.cas.store import CasStore
from clients.errors import NoServer, StoreUnsupported
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.brokers import registered_service_url, registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.admin.late_requests import IDLE_LIMIT, change_or_never
from clients.stores import Access, open_cas, open_reader
from models.lifecycle import cluster
from models.lifecycle.status import WaitKind
from models.releases import Behaviour, Release, UnsupportedRelease, parse_release
from models.store_url import StoreUrl

LONGEST_REQUEST = 30.0
"""Seconds that a broker may take to answer a request; one that had just started took half a minute."""


class Addresses(cluster.Addresses, Protocol):
    """Addresses of the servers of a cluster, and which credentials they need."""

    @property
    def credentials(self) -> str:
        """Name of the credentials in the worker's settings."""
        ...

    @property
    def store(self) -> StoreUrl:
        """The metadata store, parsed."""
        ...


class PulsarCluster:
    """A cluster that an input names; a context manager.

    Args:
        runtime: of the process.
        addresses: of the cluster.
        context: of the activity.
        proxied: the admin interface may be reached through a proxy, which the precheck of other kinds refuses.
    """

    def __init__(
        self, runtime: Runtime, addresses: Addresses, context: ActivityContext, *, proxied: bool = False
    ) -> None:
        self.addresses = addresses
        self._proxied = proxied
        self._runtime = runtime
        self._context = context
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def access(self) -> AdminAccess:
        """Access to the brokers.

        Raises:
            NoCredentials: the settings lack the credentials that the input names.
        """
        return self._runtime.admin_of(self.addresses.credentials)

    @cached_property
    def admin(self) -> PulsarAdmin:
        """The admin interface; errors as for `access`."""
        opened = PulsarAdmin.open(self.access, self.addresses.admin_urls, connections=MAX_CONCURRENT_REQUESTS)
        return self._open.enter_context(opened)

    @property
    def stores(self) -> Access:
        """Access to the metadata store."""
        return self._runtime.stores_of(self.addresses.credentials)

    @contextmanager
    def store(self) -> Generator[CasStore]:
        """Open the brokers' metadata store."""
        with open_cas(self.addresses.store, self.stores) as store:
            yield store

    def change_or_never(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change that arrives soon after its fence was checked, or never; see `late_requests`.

        Use it for every request that no later attempt would undo. A worker that froze after the fence must not send the
        request after a rollback, perhaps months later. Brokers are asked until the owner has answered, and never
        through a proxy, which could delay the request.

        Args:
            connect: request that opens the connection; every broker answers it, also for a topic that it cannot load.
            fence: raises if this attempt is late.
            change: the request.

        Raises:
            NoServer: no broker is registered.
            AdminError: there was no answer, or one that is not a success.
        """
        urls = self.addresses.admin_urls
        if self._proxied and not (urls := tuple(url for _, own in self._broker_urls for url in own)):
            raise self._no_broker()
        return change_or_never(self.access, urls, connect=connect, fence=fence, change=change)

    def await_late_requests(self, age: float = 0.0) -> bool:
        """Wait until no change of an earlier attempt can arrive any more; return whether a wait was needed.

        Args:
            age: seconds since that attempt was given up.
        """
        remaining = IDLE_LIMIT + LONGEST_REQUEST - age
        if remaining <= 0:
            return False
        with self._context.waiting(WaitKind.STORE, "requests of an earlier attempt, which may still arrive"):
            self._context.pause(remaining)
        return True

    def registrations(self) -> list[Service]:
        """Return the registrations of all active brokers in the metadata store."""
        with open_reader(self.addresses.store, self.stores) as reader:
            return brokers(reader)

    def brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return every broker that was active when this attempt first asked, with its address."""
        return [(name, PulsarAdminReader(self._session, urls)) for name, urls in self._broker_urls]

    def brokers_now(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return every broker that is active now; `brokers` returns the same from then on."""
        self.__dict__.pop("_broker_urls", None)
        return self.brokers()

    def writable_brokers(self) -> list[tuple[str, PulsarAdmin]]:
        """Return the brokers of `brokers`, for changes that depend on the broker's own settings."""
        return [(name, PulsarAdmin(self._session, urls)) for name, urls in self._broker_urls]

    def survey(self, census: FeatureCensus, namespaces: Collection[str]) -> None:
        """Add the features of the cluster, and the policies of some namespaces (`tenant/namespace`), to a census.

        Raises:
            StoreError: the metadata store cannot be read.
        """
        tenants = {name.partition("/")[0] for name in namespaces}
        survey(census, self.addresses.store, self.stores, self.access, namespaces.__contains__, tenants=tenants)

    @cached_property
    def release(self) -> Release:
        """The release; the oldest if brokers differ.

        Raises:
            StoreUnsupported: the release is not supported.
            NoServer: no broker is registered.
        """
        releases = [_release(admin) for _, admin in self.brokers()]
        if not releases:
            raise self._no_broker()
        return min(releases)

    @cached_property
    def scalable(self) -> PulsarAdminReader | None:
        """A broker that supports scalable topics; None for none. During an upgrade only some brokers do."""
        supporting = (admin for _, admin in self.brokers() if _release(admin).has(Behaviour.SCALABLE_TOPICS))
        return next(supporting, None)

    def service_url(self) -> str:
        """Return the service URL of all brokers; all addresses with TLS, or all without.

        Raises:
            NoServer: no broker is registered.
        """
        access = self.access
        urls = [registered_service_url(broker.data, access) for broker in self.registrations()]
        if not urls:
            raise self._no_broker()
        scheme = urls[0].partition("://")[0]
        hosts = [url.partition("://")[2].rstrip("/") for url in urls if url.startswith(f"{scheme}://")]
        return f"{scheme}://{','.join(hosts)}"

    @cached_property
    def _session(self) -> HttpSession:
        return self._open.enter_context(HttpSession(self.access, MAX_CONCURRENT_REQUESTS))

    @cached_property
    def _broker_urls(self) -> list[tuple[str, list[str]]]:
        access = self.access
        return [(service.name, registered_urls(service.data, access)) for service in self.registrations()]

    def _no_broker(self) -> NoServer:
        address = self.addresses.metadata_url
        return NoServer(f"no broker is registered in {address}; start one", server=address)


def _release(admin: PulsarAdminReader) -> Release:
    try:
        return parse_release(admin.brokers.version())
    except UnsupportedRelease as error:
        raise StoreUnsupported(str(error)) from error
