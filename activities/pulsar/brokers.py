"""Reports of registered brokers: their release, their bookie cluster, their health."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

from activities.pulsar.registrations import Service
from activities.pulsar.releases import SeenBroker, read_broker
from clients.errors import StoreError, StoreProtocolError
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from models.broker_settings import metadata_store_of
from models.ledger_store import LedgerStoreUri, parse_ledger_store_uri
from models.store_url import StoreUrl

_DERIVED = "metadata-store:"


class SeenCluster(NamedTuple):
    """The bookie cluster of a broker: its root, or why it is not known; `text` is the broker's own setting."""

    url: StoreUrl | None
    text: str
    why: str


def bookie_cluster_of(broker: SeenBroker) -> SeenCluster:
    """Return the bookie cluster in the settings of a broker."""
    if broker.settings is None:
        # Not known does not mean elsewhere: callers treat such a broker as one that may use the cluster.
        return SeenCluster(None, "", f"its configuration could not be read ({broker.why})")
    try:
        uri = _bookkeeper_uri(broker.settings)
    except (StoreError, ValueError) as error:
        return SeenCluster(None, "", f"its configuration could not be read ({error})")
    return SeenCluster(uri.url, uri.text, "")


class BrokerView:
    """Reads each broker at its registered address; a context manager.

    Args:
        access: to admin interfaces.

    Raises:
        NoCredentials: a file of the TLS settings cannot be used.
    """

    def __init__(self, access: AdminAccess) -> None:
        self._session = HttpSession(access)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def bookie_cluster(self, broker: Service) -> SeenCluster:
        """Return the bookie cluster in the settings of a broker."""
        return bookie_cluster_of(self.read(broker))

    def configuration(self, broker: Service) -> dict[str, str]:
        """Return a broker's configuration, by the names in `broker.conf`.

        Raises:
            StoreError: the broker does not answer, or its answer is not a configuration.
        """
        return self._reader(broker).brokers.runtime_configuration()

    def read(self, broker: Service) -> SeenBroker:
        """Return a broker's release and settings; values that it does not report are empty."""
        try:
            reader = self._reader(broker)
        except StoreError as error:
            return SeenBroker(broker.name, "", None, str(error))
        return read_broker(broker.name, reader)

    def health(self, broker: Service) -> str:
        """Run a broker's health check, which writes and reads a message; return why it failed, empty if it passed."""
        try:
            urls = registered_urls(broker.data, self._session.access)
            PulsarAdmin(self._session, urls).brokers.check_health()
        except StoreError as error:
            return f"its health check failed ({error})"
        return ""

    def lacks_plugin(self, broker: Service) -> str:
        """Return why a broker seems to lack the plugin of PIP-477 ("REST API"); empty if it has it."""
        try:
            self._reader(broker).bookie_clusters.check()
        except StoreError as error:
            return f"its plugin does not answer ({error})"
        return ""

    def _reader(self, broker: Service) -> PulsarAdminReader:
        # Only this broker's addresses: another broker would report itself.
        return PulsarAdminReader(self._session, registered_urls(broker.data, self._session.access))


def _bookkeeper_uri(configuration: Mapping[str, str]) -> LedgerStoreUri:
    """Resolve the ledgers' store as brokers do: without a setting it is the brokers' metadata store."""
    uri = configuration.get("bookkeeperMetadataServiceUri")
    return parse_ledger_store_uri(uri or f"{_DERIVED}{_metadata_url(configuration)}")


def _metadata_url(configuration: Mapping[str, str]) -> str:
    if url := metadata_store_of(configuration):
        return url
    raise StoreProtocolError("the broker's configuration names no metadata store")
