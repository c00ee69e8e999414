"""The REST interface of a controller, as far as consumers use it."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pulsar_scalable.controlled.layout import Told, parse_assignment
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import ConnectionLost, ScalableError, Unsupported, refused_by_http
from pulsar_scalable.names import TopicName
from pulsar_wire.access import token_now

_PATH = "/admin/v2/scalable/{topic}/subscriptions/{subscription}/consumers/{name}"


@dataclass(frozen=True, slots=True)
class RestAccess:
    """How a controller is talked to.

    Attributes:
        urls: of the controller, tried one after the other; none where only the layout tells them.
        token: bearer token, or a function that gives it for each request; None for none.
        timeout: seconds for a request.
        tls: for `https://`; None for the system's authorities.
    """

    urls: tuple[str, ...] = ()
    token: str | Callable[[], str] | None = None
    timeout: float = 30.0
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """A consumer as the interface names it.

    Attributes:
        topic: its topic.
        subscription: its subscription.
        name: of the consumer.
        instance: one life of the consumer; a later one of the same name has another.
    """

    topic: TopicName
    subscription: str
    name: str
    instance: str = ""

    @property
    def path(self) -> str:
        """The path, encoded."""
        encoded = [urllib.parse.quote(one, safe="") for one in (self.subscription, self.name)]
        topic = urllib.parse.quote(self.topic.path, safe="/")
        return _PATH.format(topic=topic, subscription=encoded[0], name=encoded[1])


def join(access: RestAccess, urls: Sequence[str], consumer: ConsumerKey, kind: ConsumerKind) -> Told:
    """Register a consumer, and get its assignment; harmless when done twice.

    Raises:
        Refused: the controller said no.
        ConnectionLost: no controller answers.
    """
    body = {"kind": kind.name, **({"instance": consumer.instance} if consumer.instance else {})}
    return parse_assignment(_ask(access, urls, consumer, "POST", consumer.path, json.dumps(body).encode()))


def leave(access: RestAccess, urls: Sequence[str], consumer: ConsumerKey) -> None:
    """End a consumer's registration, unless a later instance has its name; errors are those of `join`."""
    query = f"?{urllib.parse.urlencode({'instance': consumer.instance})}" if consumer.instance else ""
    _ask(access, urls, consumer, "DELETE", f"{consumer.path}{query}", None)


def _ask(  # noqa: PLR0917 - one request, as it is sent
    access: RestAccess, urls: Sequence[str], consumer: ConsumerKey, method: str, path: str, body: bytes | None
) -> bytes:
    if not urls:
        raise Unsupported(
            f"{consumer.topic.path}: neither its layout nor the option controller_url tells where the controller is;"
            " a stream consumer needs it once, to get its segments"
        )
    error: ScalableError | None = None
    for url in urls:
        try:
            return _ask_one(access, url, path, method, body)
        except ConnectionLost as cause:
            error = cause
    raise error or ConnectionLost(f"{consumer.topic.path}: no controller answers")


def _ask_one(access: RestAccess, url: str, path: str, method: str, body: bytes | None) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise Unsupported(f"{url!r} is no URL of a controller; http:// and https:// are")
    where = f"{method} {url.rstrip('/')}{path}"
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    token = token_now(access.token)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(  # noqa: S310 - the schemes are checked
        f"{url.rstrip('/')}{path}", data=body, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=access.timeout, context=access.tls) as answer:  # noqa: S310
            return answer.read()
    except urllib.error.HTTPError as cause:
        told = _told(cause)
        if cause.code >= 500:
            raise ConnectionLost(f"{where}: {cause.code} {told}") from cause
        raise refused_by_http(cause.code, told, where) from cause
    except (OSError, http.client.HTTPException) as cause:
        raise ConnectionLost(f"{where}: {cause!r}") from cause


def _told(refusal: urllib.error.HTTPError) -> str:
    """What a refusal says; its code alone counts where the connection breaks during that."""
    try:
        return refusal.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
