"""What registered brokers say of themselves: their version, their bookie cluster, their health."""

from __future__ import annotations

import json
from types import TracebackType
from typing import NamedTuple, Self

import httpx

from activities.lifecycle.registrations import Service
from models.ledger_store import LedgerStoreUri, parse_ledger_store_uri
from models.settings import Settings
from models.store_url import StoreUrl, parse_store_url

_DERIVED = "metadata-store:"
PLUGIN = "/admin/v2/bookie-clusters"
"""The plugin's part of the admin interface (PIP-477, "REST API")."""

_PLUGIN_STATUS = f"{PLUGIN}/status"


class SeenCluster(NamedTuple):
    """The bookie cluster of one broker: its root, or why it is not known; `text` is the broker's own setting."""

    url: StoreUrl | None
    text: str
    why: str


class BrokerView:
    """Asks brokers' admin interfaces; a context manager.

    Args:
        settings: token and timeout.
    """

    def __init__(self, settings: Settings) -> None:
        self._http = admin_client(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def bookie_cluster(self, broker: Service) -> SeenCluster:
        """The bookie cluster that a broker was configured with."""
        try:
            uri = _bookkeeper_uri(self.configuration(broker))
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return SeenCluster(None, "", f"its configuration could not be read ({error})")
        return SeenCluster(uri.url, uri.text, "")

    def metadata_store(self, broker: Service) -> StoreUrl:
        """The metadata store that a broker was configured with.

        Raises:
            httpx.HTTPError: the broker does not answer.
            ValueError: its answer is no configuration, or names no store that is known.
            KeyError: it names none.
        """
        return parse_store_url(str(self.configuration(broker)["metadataStoreUrl"]))

    def configuration(self, broker: Service) -> dict[str, str]:
        """A broker's configuration, by its names in `broker.conf`.

        Raises:
            httpx.HTTPError: the broker does not answer.
            ValueError: its answer is no configuration.
        """
        return self._get(broker, "configuration/runtime").json()

    def version(self, broker: Service) -> str | None:
        """A broker's version; None if it could not be read."""
        try:
            return self._get(broker, "version").text.strip()
        except (httpx.HTTPError, ValueError):
            return None

    def health(self, broker: Service) -> str:
        """Have a broker write a message to a topic of its own and read it back; empty if it could, else why not."""
        try:
            self._get(broker, "health?topicVersion=V2")
        except (httpx.HTTPError, ValueError) as error:
            return f"its health check failed ({error})"
        return ""

    def lacks_plugin(self, broker: Service) -> str:
        """Why a broker seems to lack the plugin of PIP-477 ("REST API"); empty if it has it."""
        try:
            self._http.get(f"{admin_url(broker)}{_PLUGIN_STATUS}").raise_for_status()
        except (httpx.HTTPError, ValueError) as error:
            return f"{_PLUGIN_STATUS} failed ({error})"
        return ""

    def _get(self, broker: Service, what: str) -> httpx.Response:
        return self._http.get(f"{admin_url(broker)}/admin/v2/brokers/{what}").raise_for_status()


def admin_client(settings: Settings, *, connections: int = 1) -> httpx.Client:
    """A client of brokers' admin interfaces, with token and timeout of the settings.

    It follows no redirects: httpx would leave the token out.

    Args:
        settings: of the worker.
        connections: how many questions may be asked at once.
    """
    token = settings.admin_token
    return httpx.Client(
        timeout=settings.admin_timeout.total_seconds(),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        trust_env=False,
    )


def admin_url(broker: Service) -> str:
    """Address of a broker's admin interface, as it registered it.

    Raises:
        ValueError: its registration has none.
    """
    registration = json.loads(broker.data)
    address = registration.get("webServiceUrl") or registration.get("webServiceUrlTls")
    if not address:
        raise ValueError(f"{broker.name} registered no web address")
    return str(address)


def _bookkeeper_uri(configuration: dict[str, str]) -> LedgerStoreUri:
    """As brokers resolve it: without a setting of its own, ledgers lie in the brokers' metadata store."""
    uri = configuration.get("bookkeeperMetadataServiceUri")
    return parse_ledger_store_uri(uri or f"{_DERIVED}{configuration['metadataStoreUrl']}")
