"""Requests to brokers with the plugin of PIP-477: to all of them, or to the owner of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from activities.pulsar.registrations import Service
from clients.errors import (
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.bookie_clusters import BookieClusters
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import (
    AdminConflict,
    AdminDenied,
    AdminError,
    AdminNotFound,
    AdminUnreachable,
    AdminUnsupported,
)
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.names import CursorName
from models.bookie_registry import ReadMode


class PluginAdmin:
    """Sends requests to brokers; may be used by many threads at once. A context manager.

    Args:
        access: credentials and TLS of admin interfaces.
        brokers: the brokers that are registered.
        connections: how many requests may run at once.

    Raises:
        StoreUnreachable: no broker is registered.
        StoreProtocolError: the registration of one has no web address.
        NoCredentials: a file of the TLS settings cannot be used.
    """

    def __init__(self, access: AdminAccess, brokers: Sequence[Service], connections: int = 1) -> None:
        if not brokers:
            raise StoreUnreachable("no broker is registered, so none can be asked; start brokers")
        self._urls = {broker.name: registered_urls(broker.data, access) for broker in brokers}
        self._session = HttpSession(access, connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def owner(self, name: CursorName) -> tuple[str, ...]:
        """Return the admin addresses of the broker that owns a cursor's topic; an unowned topic gets an owner.

        Raises:
            StoreUnreachable: no broker knows the owner.
        """
        causes: list[str] = []
        for broker, urls in self._urls.items():
            try:
                return tuple(PulsarAdmin(self._session, urls).topics.owner_urls(name.topic))
            except StoreError as error:
                causes.append(f"{broker}: {error}")
        raise StoreUnreachable(f"no broker tells who owns {name.topic} ({'; '.join(causes)})")

    def promote_cursor(self, owner: Sequence[str], name: CursorName, cluster: str, ledger: int) -> int:
        """Ask a topic's owner to change the attribution of one cursor; return the status of its answer.

        Args:
            owner: addresses of its admin interface.
            name: the cursor.
            cluster: the attribution that it must have.
            ledger: the ledger that was built there; the owner refuses if the cursor has another one.

        Raises:
            AdminError: the owner does not answer, or refuses.
        """
        return PulsarAdmin(self._session, owner).bookie_clusters.promote_cursor(name, cluster, ledger)

    def set_read_mode(self, mode: ReadMode) -> None:
        """Set on every broker the clusters to read from.

        Raises:
            StoreError: at least one broker did not accept it; the reachable ones did.
        """
        self._tell_all(lambda broker: broker.set_read_mode(mode))

    def close_client(self, cluster: str) -> None:
        """Close every broker's client of a cluster.

        Raises:
            StoreError: at least one broker did not; the reachable ones did.
        """
        self._tell_all(lambda broker: broker.close_client(cluster))

    def _tell_all(self, tell: Callable[[BookieClusters], None]) -> None:
        failures: list[tuple[str, AdminError]] = []
        for broker, urls in self._urls.items():
            try:
                tell(PulsarAdmin(self._session, urls).bookie_clusters)
            except AdminError as error:
                # The other brokers are asked too; the whole call is repeated, and is idempotent.
                failures.append((broker, error))
        if failures:
            raise _summary(failures)


def _summary(failures: Sequence[tuple[str, AdminError]]) -> StoreError:
    """Return one error with all failures, of the type of the first, with the cure if it is known."""
    said = "; ".join(f"{broker}: {error}" for broker, error in failures)
    match failures[0][1]:
        case AdminDenied():
            return StoreDenied(f"{said}; give the worker credentials of a superuser (PULSAR_MIGRATE_ADMIN_*)")
        case AdminUnsupported() | AdminNotFound():
            return StoreUnsupported(f"{said}; install the plugin of PIP-477 on it, or use routing `restart`")
        case AdminConflict():
            return StoreConflict(said)
        case AdminUnreachable():
            return StoreUnreachable(f"{said}; see its log")
        case _:
            return StoreProtocolError(said)
