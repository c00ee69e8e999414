"""What registered brokers say of themselves: their release, their bookie cluster, their health."""

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
    """The bookie cluster of one broker: its root, or why it is not known; `text` is the broker's own setting."""

    url: StoreUrl | None
    text: str
    why: str


def bookie_cluster_of(broker: SeenBroker) -> SeenCluster:
    """Return the bookie cluster that a broker was configured with, by what was read of it."""
    if broker.settings is None:
        # Not known, which is not "elsewhere": whoever deletes or starts treats such a broker as one that may use the
        # cluster.
        return SeenCluster(None, "", f"its configuration could not be read ({broker.why})")
    try:
        uri = _bookkeeper_uri(broker.settings)
    except (StoreError, ValueError) as error:
        return SeenCluster(None, "", f"its configuration could not be read ({error})")
    return SeenCluster(uri.url, uri.text, "")


class BrokerView:
    """Asks each broker at the address that it has registered; a context manager.

    Args:
        access: how admin interfaces are talked to.

    Raises:
        StoreDenied: a file of the TLS settings cannot be used.
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
        """The bookie cluster that a broker was configured with."""
        return bookie_cluster_of(self.read(broker))

    def configuration(self, broker: Service) -> dict[str, str]:
        """A broker's configuration, by its names in `broker.conf`.

        Raises:
            StoreError: the broker does not answer, or not with a configuration.
        """
        return self._reader(broker).brokers.runtime_configuration()

    def read(self, broker: Service) -> SeenBroker:
        """What a broker reports of its release and settings; what it does not answer is left empty."""
        try:
            reader = self._reader(broker)
        except StoreError as error:
            return SeenBroker(broker.name, "", None, str(error))
        return read_broker(broker.name, reader)

    def health(self, broker: Service) -> str:
        """Have a broker write a message to a topic of its own and read it back; empty if it could, else why not."""
        try:
            urls = registered_urls(broker.data, self._session.access)
            PulsarAdmin(self._session, urls).brokers.check_health()
        except StoreError as error:
            return f"its health check failed ({error})"
        return ""

    def lacks_plugin(self, broker: Service) -> str:
        """Why a broker seems to lack the plugin of PIP-477 ("REST API"); empty if it has it."""
        try:
            self._reader(broker).bookie_clusters.check()
        except StoreError as error:
            return f"its plugin does not answer ({error})"
        return ""

    def _reader(self, broker: Service) -> PulsarAdminReader:
        # The addresses of this broker alone: another one would answer for itself.
        return PulsarAdminReader(self._session, registered_urls(broker.data, self._session.access))


def _bookkeeper_uri(configuration: Mapping[str, str]) -> LedgerStoreUri:
    """As brokers resolve it: without a setting of its own, ledgers lie in the brokers' metadata store."""
    uri = configuration.get("bookkeeperMetadataServiceUri")
    return parse_ledger_store_uri(uri or f"{_DERIVED}{_metadata_url(configuration)}")


def _metadata_url(configuration: Mapping[str, str]) -> str:
    if url := metadata_store_of(configuration):
        return url
    raise StoreProtocolError("the broker's configuration names no metadata store")
