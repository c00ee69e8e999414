"""What brokers with the plugin of PIP-477 are asked for ("REST API"), over their admin interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote, unquote_plus

import httpx

from activities.lifecycle.brokers import PLUGIN, admin_client, admin_url
from activities.lifecycle.registrations import Service
from clients.errors import (
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.pulsar.references import MANAGED_LEDGERS
from models.bookie_registry import ReadMode
from models.settings import Settings

_HOPS = 5
_ANSWER = 200


class CursorName(NamedTuple):
    """A cursor, as clients name it.

    Attributes:
        tenant: of the topic.
        namespace: of the topic.
        topic: its name within the namespace.
        cursor: the subscription, or another of the topic's cursors.
    """

    tenant: str
    namespace: str
    topic: str
    cursor: str

    @property
    def full_topic(self) -> str:
        """`persistent://tenant/namespace/topic`."""
        return f"persistent://{self.tenant}/{self.namespace}/{self.topic}"

    def __str__(self) -> str:
        return f"cursor {self.cursor} of {self.full_topic}"


def cursor_name(path: str) -> CursorName | None:
    """The cursor whose node this is, None if it is none of a persistent topic.

    Brokers encode the names of topics and cursors as `java.net.URLEncoder` does, a space as a plus.
    """
    parts = path.removeprefix(f"{MANAGED_LEDGERS}/").split("/")
    if len(parts) != 5 or parts[2] != "persistent":
        return None
    tenant, namespace, _, topic, cursor = parts
    return CursorName(tenant, namespace, unquote_plus(topic), unquote_plus(cursor))


class PluginAdmin:
    """Asks brokers; may be used by many threads at once. A context manager.

    Args:
        settings: token and timeout.
        brokers: the brokers that are registered.
        connections: how many questions are asked at once.

    Raises:
        StoreUnreachable: no broker is registered.
        ValueError: the registration of one has no web address.
    """

    def __init__(self, settings: Settings, brokers: Sequence[Service], connections: int = 1) -> None:
        if not brokers:
            raise StoreUnreachable("no broker is registered, so none can be asked; start brokers")
        self._urls = {broker.name: admin_url(broker) for broker in brokers}
        self._http = admin_client(settings, connections=connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def owner(self, name: CursorName) -> str:
        """Address of the admin interface of the broker that owns a topic; an unowned topic gets an owner.

        Raises:
            StoreUnreachable: no broker can tell.
        """
        topic = quote(name.topic, safe="")
        path = f"/lookup/v2/topic/persistent/{quote(name.tenant)}/{quote(name.namespace)}/{topic}"
        causes: list[str] = []
        for broker, url in self._urls.items():
            try:
                return _owner_in(self._follow(url + path))
            except (httpx.HTTPError, ValueError, KeyError) as error:
                causes.append(f"{broker}: {error}")
        raise StoreUnreachable(f"no broker tells who owns {name.full_topic} ({'; '.join(causes)})")

    def promote_cursor(self, owner: str, name: CursorName, cluster: str, ledger: int) -> httpx.Response:
        """Have a topic's owner change the attribution of one cursor (PIP-477, "Cursor PROMOTE").

        Args:
            owner: address of its admin interface.
            name: the cursor.
            cluster: the attribution that it shall have.
            ledger: the ledger that was built there; the owner refuses with 409 if the cursor has another one.

        Raises:
            httpx.HTTPError: the owner does not answer.
        """
        body = {
            "topic": name.full_topic,
            "cursorName": name.cursor,
            "targetClusterName": cluster,
            "expectedCursorsLedgerId": ledger,
        }
        return self._http.post(f"{owner}{PLUGIN}/internal/promote-cursor", json=body)

    def set_read_mode(self, mode: ReadMode) -> None:
        """Tell every broker from which clusters to read.

        Raises:
            StoreError: at least one did not take it; those that could be reached have.
        """
        self._tell_all("read-mode", {"mode": mode.value})

    def close_client(self, cluster: str) -> None:
        """Have every broker close its client of a cluster.

        Raises:
            StoreError: at least one did not; those that could be reached have.
        """
        self._tell_all(f"close-client/{quote(cluster, safe='')}", None)

    def _tell_all(self, what: str, body: Mapping[str, str] | None) -> None:
        failures = [failure for broker in self._urls if (failure := self._tell(broker, what, body))]
        if failures:
            raise type(failures[0])("; ".join(map(str, failures)))

    def _tell(self, broker: str, what: str, body: Mapping[str, str] | None) -> StoreError | None:
        address = f"{self._urls[broker]}{PLUGIN}/{what}"
        try:
            answer = self._http.post(address, json=body) if body else self._http.post(address)
        except httpx.HTTPError as error:
            return StoreUnreachable(f"{broker} does not answer {address} ({error}); check it and try again")
        return None if answer.is_success else _refusal(broker, address, answer)

    def _follow(self, address: str) -> httpx.Response:
        for _ in range(_HOPS):
            answer = self._http.get(address)
            if not answer.has_redirect_location:
                return answer.raise_for_status()
            address = str(answer.url.join(answer.headers["location"]))
        raise ValueError(f"redirected {_HOPS} times, last to {address}")


def _owner_in(answer: httpx.Response) -> str:
    found = answer.json()
    return str(found.get("httpUrl") or found["httpUrlTls"])


def _refusal(broker: str, address: str, answer: httpx.Response) -> StoreError:
    said = f"{broker} answered {answer.status_code} to {address}: {answer.text.strip()[:_ANSWER]}"
    match answer.status_code:
        case 401 | 403:
            return StoreDenied(f"{said}; give an admin_token of a superuser")
        case 404:
            return StoreUnsupported(f"{said}; install the plugin of PIP-477 on it, or use routing `restart`")
        case 409:
            return StoreConflict(said)
        case status if status >= 500:
            return StoreUnreachable(f"{said}; see its log")
        case _:
            return StoreProtocolError(said)
