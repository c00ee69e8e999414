"""Task of a blue-green step: both clusters, the claim, and the records of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from activities.lifecycle import parallel
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.parallel import MAX_CONCURRENT_REQUESTS, ItemT, ResultT
from activities.lifecycle.runner import attempt_number
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
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
from clients.stores import Access, open_cas, open_reader
from models.blue_green.batch import BatchInput, attempt_of
from models.blue_green.claims import BlueGreenClaim, NamespaceClaim, Stage
from models.blue_green.input import KIND, BlueGreenInput, PulsarCluster
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.releases import Behaviour, Release, UnsupportedRelease, parse_release

BlueGreenInputT = TypeVar("BlueGreenInputT", bound=BlueGreenInput)

REQUEST_LIMIT = 5.0
"""Timeout of a request to a broker, in seconds. A broker may still make the change until then."""


class BothClusters(StepTask[BlueGreenInputT]):
    """An attempt at a step of a migration, or of one of its batches. Arguments as in `StepTask`."""

    kind = KIND

    def __init__(
        self,
        runtime: Runtime,
        execution: Execution[BlueGreenInputT],
        attempt: Attempt,
        context: ActivityContext,
    ) -> None:
        super().__init__(runtime, execution, attempt, context)
        self._brokers: dict[str, list[tuple[str, PulsarAdminReader]]] = {}
        self._sessions: dict[str, HttpSession] = {}

    @cached_property
    def blue(self) -> PulsarAdmin:
        """Blue's admin interface.

        Raises:
            NoCredentials: the worker has no credentials with the name from the input.
        """
        return self._admin(self.input.blue)

    @cached_property
    def green(self) -> PulsarAdmin:
        """Green's admin interface; see `blue`."""
        return self._admin(self.input.green)

    @property
    def names(self) -> dict[str, str]:
        """Names of clusters on green, by their names in policies of blue."""
        return {self.input.cluster: self.input.green_cluster}

    @cached_property
    def blue_release(self) -> Release:
        """Blue's release; the oldest if brokers differ.

        Raises:
            StoreUnsupported: the release is not supported.
        """
        return _oldest(self.blue_brokers())

    @cached_property
    def blue_scalable(self) -> PulsarAdminReader | None:
        """A broker of blue that supports scalable topics; None for none. During an upgrade only some brokers do."""
        supporting = (admin for _, admin in self.blue_brokers() if _release(admin).has(Behaviour.SCALABLE_TOPICS))
        return next(supporting, None)

    @cached_property
    def green_release(self) -> Release:
        """Green's release; see `blue_release`."""
        return _oldest(self.green_brokers())

    @contextmanager
    def blue_store(self) -> Generator[CasStore]:
        """Open blue's metadata store."""
        with open_cas(self.input.blue.store, self.stores(self.input.blue)) as store:
            yield store

    @contextmanager
    def green_store(self) -> Generator[CasStore]:
        """Open green's metadata store."""
        with open_cas(self.input.green.store, self.stores(self.input.green)) as store:
            yield store

    def stores(self, cluster: PulsarCluster) -> Access:
        """Return credentials and timeout for the metadata store of a cluster."""
        return self.runtime.stores_of(cluster.credentials)

    def survey(self, census: FeatureCensus, namespaces: Collection[str]) -> None:
        """Add what blue uses to a census, and the policies of some namespaces, `tenant/namespace`.

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
        """Return the keeper of the migration's claim on a store."""
        return ClaimKeeper(store, BlueGreenClaim, self.attempt)

    def blue_brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return the active brokers of blue, each with its address."""
        return self._brokers_of(self.input.blue)

    def blue_brokers_now(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return the brokers of blue that are registered now, and not those at the start of this attempt."""
        self._brokers.pop(self.input.blue.metadata_url, None)
        return self.blue_brokers()

    def green_brokers(self) -> list[tuple[str, PulsarAdminReader]]:
        """Return the active brokers of green, each with its address."""
        return self._brokers_of(self.input.green)

    def change_blue(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change on blue that arrives soon after its fence was checked, or never; see `late_requests`.

        Use it for every request that deletes something. A worker that froze after the fence must not send the request
        after a failback, perhaps months later. Brokers are asked by their registered addresses until the owner has
        answered, and never through a proxy, which could delay the request.

        Args:
            connect: request that opens the connection; every broker answers it, also for a topic that it cannot load.
            fence: raises if this attempt is late.
            change: the request.
        """
        return self._change(self.input.blue, connect, fence, change)

    def change_green(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        """Make a change on green; see `change_blue`."""
        return self._change(self.input.green, connect, fence, change)

    def each(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Return the results of a function for many items, some at the same time; see `parallel.map_concurrent`."""
        return parallel.map_concurrent(self.context, items, work)

    def _brokers_of(self, cluster: PulsarCluster) -> list[tuple[str, PulsarAdminReader]]:
        access, key = self.runtime.admin_of(cluster.credentials), cluster.metadata_url
        if key not in self._sessions:
            self._sessions[key] = self.open.enter_context(HttpSession(access, MAX_CONCURRENT_REQUESTS))
        if key not in self._brokers:
            session = self._sessions[key]
            with open_reader(cluster.store, self.stores(cluster)) as reader:
                registered = [(service.name, registered_urls(service.data, access)) for service in brokers(reader)]
            self._brokers[key] = [(name, PulsarAdminReader(session, urls)) for name, urls in registered]
        return self._brokers[key]

    def _change(
        self,
        cluster: PulsarCluster,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], ResultT],
    ) -> ResultT:
        urls = [url for _, admin in self._brokers_of(cluster) for url in admin.urls]
        if not urls:
            raise NoServer(f"no broker is registered in {cluster.metadata_url}", server=cluster.metadata_url)
        access = self.runtime.admin_of(cluster.credentials)
        return change_or_never(access, urls, connect=connect, fence=fence, change=change)

    def _admin(self, cluster: PulsarCluster) -> PulsarAdmin:
        access = self.runtime.admin_of(cluster.credentials)
        return self.open.enter_context(
            PulsarAdmin.open(access, cluster.admin_urls, connections=MAX_CONCURRENT_REQUESTS)
        )


AnyBlueGreenTask: TypeAlias = BothClusters[Any]
"""The task of a migration or of a batch."""


def _oldest(brokers: Iterable[tuple[str, PulsarAdminReader]]) -> Release:
    return min(_release(admin) for _, admin in brokers)


def _release(admin: PulsarAdminReader) -> Release:
    try:
        return parse_release(admin.brokers.version())
    except UnsupportedRelease as error:
        raise StoreUnsupported(str(error)) from error


class NamespaceGuard(guards.NamespaceGuard[NamespaceClaim]):
    """Right of an attempt to change one namespace on blue and on green. Its record is in blue's store."""

    def __init__(self, store: CasStore, me: Attempt, namespace: str) -> None:
        super().__init__(store, me, namespace, NamespaceClaim)


def holds_claim(task: AnyBlueGreenTask, store: CasStore) -> bool:
    """Return whether the task's run holds the claim on a store; if not, it has ended, or a later run took over."""
    held = read_claim(store, BlueGreenClaim)
    return held is not None and held.claim.is_of(task.attempt)


class BlueGreenTask(BothClusters[BlueGreenInput]):
    """An attempt at a step of the migration."""

    input_type = BlueGreenInput


class BatchTask(BothClusters[BatchInput]):
    """An attempt at a step of a batch of namespaces."""

    input_type = BatchInput

    @classmethod
    def attempt_of(cls, execution: Execution[BatchInput]) -> Attempt:
        """Return the attempt as claims order it among all of the migration."""
        return attempt_of(execution, attempt_number())

    @cached_property
    def store(self) -> CasStore:
        """Blue's metadata store, open until the step ends."""
        return self.open.enter_context(self.blue_store())

    @cached_property
    def guards(self) -> Sequence[NamespaceGuard]:
        """Guards of the batch's namespaces, taken by this attempt.

        Raises:
            StoreConflict: a later run or attempt has one of them.
        """
        guards = [NamespaceGuard(self.store, self.attempt, namespace) for namespace in self.input.batch]
        for guard in guards:
            guard.take()
        return guards


def guards_that_move(guards: Sequence[NamespaceGuard]) -> list[NamespaceGuard]:
    """Return the guards of a batch without those of namespaces that a rollback left on blue."""
    return [guard for guard in guards if guard.require().stage is not Stage.RETURNED]
