"""What the steps of one blue-green migration share: both clusters, the claim, and the records of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Self

from activities.lifecycle import parallel
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.parallel import LANES, ItemT, ResultT
from activities.lifecycle.runtime import Runtime
from activities.pulsar import namespace_guard as guards
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.registrations import brokers
from clients.cas.claims import ClaimKeeper, read_claim
from clients.cas.store import CasStore
from clients.errors import NoServer, StoreUnsupported
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.admin.late_requests import change_or_never
from clients.store import StoreReader
from clients.stores import Access, open_cas, open_reader
from models.blue_green.claims import BlueGreenClaim, NamespaceClaim
from models.blue_green.input import BlueGreenInput, PulsarCluster
from models.lifecycle.claim import Attempt
from models.releases import Behaviour, Release, UnsupportedRelease, parse_release

REQUEST_LIMIT = 5.0
"""Seconds after which a request to a broker is given up; a change may still be made so long after its order."""


class BlueGreenTask:
    """One attempt's view of its migration; a context manager.

    Args:
        runtime: what the process shares.
        input: of the migration, or of one of its batches.
        attempt: which attempt of the migration this is.
        context: of the activity.
    """

    def __init__(self, runtime: Runtime, input: BlueGreenInput, attempt: Attempt, context: ActivityContext) -> None:
        self.runtime = runtime
        self.input = input
        self.attempt = attempt
        self.context = context
        self._open = ExitStack()
        self._brokers: dict[str, list[tuple[str, PulsarAdminReader]]] = {}
        self._sessions: dict[str, HttpSession] = {}
        self.blue = self._admin(input.blue)
        self.green = self._admin(input.green)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def names(self) -> dict[str, str]:
        """Names of clusters, as policies of blue have them, to those that green has for the same."""
        return {self.input.cluster: self.input.green_cluster}

    @cached_property
    def blue_release(self) -> Release:
        """Blue's release; the oldest where brokers differ.

        Raises:
            StoreUnsupported: it is not supported.
        """
        return _oldest(self.blue_brokers())

    @cached_property
    def blue_scalable(self) -> PulsarAdminReader | None:
        """A broker of blue that knows scalable topics; None without any. Blue may be in the middle of an upgrade."""
        knowing = (admin for _, admin in self.blue_brokers() if _release(admin).has(Behaviour.SCALABLE_TOPICS))
        return next(knowing, None)

    @cached_property
    def green_release(self) -> Release:
        """Green's release, likewise."""
        return _oldest(self.green_brokers())

    @contextmanager
    def blue_store(self) -> Generator[CasStore]:
        """Blue's metadata store."""
        with open_cas(self.input.blue.store, self.stores(self.input.blue)) as store:
            yield store

    @contextmanager
    def green_store(self) -> Generator[CasStore]:
        """Green's metadata store."""
        with open_cas(self.input.green.store, self.stores(self.input.green)) as store:
            yield store

    def stores(self, cluster: PulsarCluster) -> Access:
        """How the metadata store of one of both clusters is talked to."""
        return self.runtime.stores_of(cluster.credentials)

    def survey(self, census: FeatureCensus, namespaces: Collection[str]) -> None:
        """Have a census take what blue uses, and the policies of some namespaces, `tenant/namespace` of each.

        Raises:
            StoreError: blue's metadata store cannot be read.
        """
        blue = self.input.blue
        tenants = {name.partition("/")[0] for name in namespaces}
        survey(
            census,
            blue.store,
            self.stores(blue),
            self.runtime.admin_of(blue.credentials),
            namespaces.__contains__,
            tenants=tenants,
        )

    def keeper(self, store: CasStore) -> ClaimKeeper[BlueGreenClaim]:
        """The claim of the migration on one of the stores."""
        return ClaimKeeper(store, BlueGreenClaim, self.attempt)

    def blue_brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Every broker of blue that is active, with its address, for what each has to know."""
        return self._brokers_of(self.input.blue)

    def blue_brokers_now(self) -> list[tuple[str, PulsarAdminReader]]:
        """Every broker of blue that is registered now: one may have gone, or come, since this attempt began."""
        self._brokers.pop(self.input.blue.metadata_url, None)
        return self.blue_brokers()

    def green_brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Every broker of green that is active, likewise."""
        return self._brokers_of(self.input.green)

    def blue_reading_store(self) -> StoreReader:
        """Blue's metadata store, for bulk reading; a context manager."""
        return open_reader(self.input.blue.store, self.stores(self.input.blue))

    def change_blue(
        self,
        *,
        look: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change on blue that arrives soon after its fence was checked, or never; see `late_requests`.

        Every request that removes something is made so: a worker that froze after the fence must not send it when the
        clients have come back, perhaps months later. Each broker is asked by the address that it has registered until
        the one that is in charge has answered, and never through a proxy, which could keep the request.

        Args:
            look: opens the connection to a broker; one that any broker answers, also of a topic that cannot be loaded.
            fence: raises where this attempt is late.
            change: the request.
        """
        return self._change(self.input.blue, look, fence, change)

    def change_green(
        self,
        *,
        look: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change on green, likewise."""
        return self._change(self.input.green, look, fence, change)

    def each(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Do the same for many items, some at once; see `parallel.each`."""
        return parallel.each(self.context, items, work)

    def _brokers_of(self, cluster: PulsarCluster) -> list[tuple[str, PulsarAdminReader]]:
        access, key = self.runtime.admin_of(cluster.credentials), cluster.metadata_url
        if key not in self._sessions:
            self._sessions[key] = self._open.enter_context(HttpSession(access, LANES))
        if key not in self._brokers:
            session = self._sessions[key]
            with open_reader(cluster.store, self.stores(cluster)) as reader:
                found = [(service.name, registered_urls(service.data, access)) for service in brokers(reader)]
            self._brokers[key] = [(name, PulsarAdminReader(session, urls)) for name, urls in found]
        return self._brokers[key]

    def _change(
        self,
        cluster: PulsarCluster,
        look: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        urls = [url for _, admin in self._brokers_of(cluster) for url in admin.urls]
        if not urls:
            raise NoServer(f"no broker is registered in {cluster.metadata_url}", server=cluster.metadata_url)
        access = self.runtime.admin_of(cluster.credentials)
        return change_or_never(access, urls, look=look, fence=fence, change=change)

    def _admin(self, cluster: PulsarCluster) -> PulsarAdmin:
        access = self.runtime.admin_of(cluster.credentials)
        return self._open.enter_context(PulsarAdmin.open(access, cluster.admin_urls, connections=LANES))


def _oldest(brokers: Iterable[tuple[str, PulsarAdminReader]]) -> Release:
    return min(_release(admin) for _, admin in brokers)


def _release(admin: PulsarAdminReader) -> Release:
    try:
        return parse_release(admin.brokers.version())
    except UnsupportedRelease as error:
        raise StoreUnsupported(str(error)) from error


class NamespaceGuard(guards.NamespaceGuard[NamespaceClaim]):
    """The right of one attempt to change one namespace, on blue and on green; its record is in blue's store."""

    def __init__(self, store: CasStore, me: Attempt, namespace: str) -> None:
        super().__init__(store, me, namespace, NamespaceClaim)


def is_held(task: BlueGreenTask, store: CasStore) -> bool:
    """Whether the task's run holds blue; if not, it has ended, or a later run has taken over."""
    held = read_claim(store, BlueGreenClaim)
    return held is not None and held.claim.is_of(task.attempt)


class MigrationGuard:
    """The right of one attempt to change what belongs to the whole cluster.

    Args:
        keeper: the claim on one of the stores.
    """

    def __init__(self, keeper: ClaimKeeper[BlueGreenClaim]) -> None:
        self._keeper = keeper

    @property
    def held(self) -> bool:
        """Whether this run holds the claim."""
        found = self._keeper.read()
        return found is not None and found.claim.is_of(self._keeper.me)

    def take(self) -> BlueGreenClaim:
        """Take the claim for this run, as its first step does; a later step must not, since its run may have ended."""
        return self._keeper.take()

    def renew(self) -> BlueGreenClaim:
        """Move the claim to this attempt; every earlier one stops.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run has ended, or a newer attempt or run has begun.
        """
        return self._keeper.renew()

    def release(self) -> None:
        """Remove the claim."""
        self._keeper.release()

    def require(self) -> BlueGreenClaim:
        """The fence, asked right before each change."""
        return self._keeper.require()

    def note(self, **fields: object) -> BlueGreenClaim:
        """Write into the claim what is about to be changed, or was."""
        return self._keeper.renew(**fields)
