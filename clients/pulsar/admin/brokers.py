"""Brokers: their list, their configuration, and its dynamic settings."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter

from clients.json_text import read_json, read_object
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.answers import NAMES, OBJECT, STRINGS, Answer
from clients.pulsar.admin.bodies import text_of
from clients.pulsar.admin.errors import AdminProtocolError
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.names import encoded


class LeaderBroker(Answer):
    """The leader of the brokers, which decides on load for example.

    Attributes:
        broker_id: `host:port`.
        service_url: its admin interface.
    """

    broker_id: str
    service_url: str


class BrokerConnections(NamedTuple):
    """Connections of clients to one broker, other brokers' included.

    Attributes:
        active: open connections.
        opened: connections since the broker started.
    """

    active: int
    opened: int


class _Metric(Answer):
    metrics: dict[str, Any]


_LEADER = TypeAdapter(LeaderBroker)
_METRICS = TypeAdapter(tuple[_Metric, ...])


class BrokersReader:
    """Information that brokers give about themselves; of one broker only if the endpoint has one address only."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self, cluster: str) -> list[str]:
        """Return the active brokers of a cluster, `host:port` of each."""
        return self._endpoint.get_as(NAMES, f"/brokers/{encoded(cluster)}")

    def leader(self) -> LeaderBroker:
        """Return the leader of the brokers."""
        return self._endpoint.get_as(_LEADER, "/brokers/leaderBroker")

    def version(self) -> str:
        """Return the version of Pulsar, for example `5.0.1`."""
        return text_of(self._endpoint.get("/brokers/version"))

    def runtime_configuration(self) -> dict[str, str]:
        """Return a broker's whole configuration, by the names in `broker.conf`."""
        return self._endpoint.get_as(STRINGS, "/brokers/configuration/runtime")

    def connections(self) -> BrokerConnections:
        """Return how many connections the broker that answers has, and had."""
        metrics = self._metrics("brk_active_connections")
        return BrokerConnections(
            active=int(metrics.get("brk_active_connections", 0)),
            opened=int(metrics.get("brk_connection_created_total_count", 0)),
        )

    def started_ms(self) -> int:
        """Return when the broker was started, in milliseconds since 1970 by its clock; 0 if it does not say."""
        return int(self._metrics("jvm_start_time").get("jvm_start_time", 0))

    def _metrics(self, name: str) -> dict[str, Any]:
        """Return the metrics that this one is among."""
        groups = self._endpoint.get_as(_METRICS, "/broker-stats/metrics")
        return next((group.metrics for group in groups if name in group.metrics), dict[str, Any]())

    def bookie_groups(self) -> list[str]:
        """Return the names of the groups that bookies are in."""
        return [name for name, bookies in self._endpoint.get_as(OBJECT, "/bookies/racks-info").items() if bookies]

    def dynamic_names(self) -> list[str]:
        """Return the names of the settings that can be changed while brokers run."""
        return self._endpoint.get_as(NAMES, "/brokers/configuration")


class Brokers(BrokersReader):
    """Brokers, with the calls that change them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def check_health(self) -> None:
        """Make a broker write a message to a topic of its own and read it back; that changes the broker.

        Raises:
            AdminServerError: it could not.
        """
        self._calls.get("/brokers/health", {"topicVersion": "V2"})


def broker_addresses(data: bytes | str) -> set[str]:
    """Return all addresses of a broker's binary protocol in its registration, those of its listeners among them."""
    names: set[str] = set()
    values: list[Any] = [read_object(data, "the registration of a broker")]
    while values:
        value = values.pop()
        if isinstance(value, str) and value.startswith(("pulsar://", "pulsar+ssl://")):
            names.add(value.rstrip("/"))
        elif isinstance(value, dict):
            values += cast("dict[str, Any]", value).values()
    return names


def registered_urls(data: bytes | str, access: AdminAccess) -> list[str]:
    """Return addresses of the admin interface of a broker, from its registration or from the answer of a lookup.

    HTTPS comes first where the broker offers it. Its plain address follows for the case that HTTPS does not answer, but
    only where no secret would be sent and no TLS was configured.

    Args:
        data: JSON with `webServiceUrl` and `webServiceUrlTls`, or with `httpUrl` and `httpUrlTls`.
        access: tells whether there are secrets.

    Returns:
        At least one address.

    Raises:
        AdminProtocolError: it has none.
    """
    try:
        settings = read_json(data)
    except ValueError:
        settings = None
    fields = cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
    secure = _address(fields, ("webServiceUrlTls", "httpUrlTls"), "https://")
    plain = _address(fields, ("webServiceUrl", "httpUrl"), "http://")
    urls = [url for url in (secure, plain if not (secure and access.guarded) else "") if url]
    if not urls:
        raise AdminProtocolError("the broker has registered no web address", method="GET", url="")
    return urls


def registered_service_url(data: bytes | str, access: AdminAccess) -> str:
    """Return the address of a broker's binary protocol, from its registration.

    Args:
        data: JSON with `pulsarServiceUrl` and `pulsarServiceUrlTls`.
        access: tells whether there are secrets or settings of TLS: then TLS is taken where it is offered.

    Raises:
        AdminProtocolError: it has none.
    """
    fields = read_object(data, "the registration of a broker")
    secure = _address(fields, ("pulsarServiceUrlTls",), "pulsar+ssl://")
    plain = _address(fields, ("pulsarServiceUrl",), "pulsar://")
    if url := (secure if access.guarded else plain) or secure or plain:
        return url
    raise AdminProtocolError("the broker has registered no address of its binary protocol", method="GET", url="")


def _address(fields: dict[str, Any], names: tuple[str, ...], scheme: str) -> str:
    """Return the first of these fields that is set; empty if none is.

    Raises:
        AdminProtocolError: it has another scheme, so that a field for TLS would lead to a link without.
    """
    value = next((value for name in names if (value := fields.get(name))), "")
    if value and not str(value).startswith(scheme):
        shown = str(value)[:100]
        raise AdminProtocolError(f"the broker registered {shown!r} as {names[0]}, not {scheme}…", method="GET", url="")
    return str(value)
