"""REST interface of a controller, as far as consumers use it."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pulsar_scalable.controlled.layout import AssignmentMessage, parse_assignment
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import (
    ConnectionLost,
    HostNotAllowed,
    ProtocolViolation,
    ScalableError,
    Unsupported,
    refused_by_http,
)
from pulsar_scalable.names import TopicName
from pulsar_wire.access import token_now
from pulsar_wire.hosts import is_listed

# An assignment of 10,000 segments has about 2 MB.
_LARGEST_ANSWER = 16 << 20
_PATH = "/admin/v2/scalable/{topic}/subscriptions/{subscription}/consumers/{name}"


@dataclass(frozen=True, slots=True)
class RestAccess:
    """Settings for requests to a controller.

    Attributes:
        urls: URLs of the controller, tried in order; empty if only the layout names them.
        token: bearer token, or a function that returns it for each request; None for no token.
        timeout: seconds for a request.
        tls: TLS settings for `https://`; None for the system's certificate authorities.
        token_hosts: hosts that may receive the token.
    """

    urls: tuple[str, ...] = ()
    token: str | Callable[[], str] | None = None
    timeout: float = 30.0
    tls: ssl.SSLContext | None = None
    token_hosts: tuple[str, ...] = ()

    def check(self, url: str) -> None:
        """Check that a URL may be asked: one of the application's own, or one of a layout that is safe for the token.

        Raises:
            Unsupported: it is not a URL of HTTP.
            HostNotAllowed: the token must not be sent there.
        """
        if not url.startswith(("http://", "https://")):
            raise Unsupported(f"invalid controller URL {url!r}; expected http://host:port or https://host:port")
        # A client that may publish in the layout's namespace could name a host that collects tokens.
        if self.token is None or url in self.urls:
            return
        if not url.startswith("https://"):
            raise HostNotAllowed(f"{url} has no TLS; a layout names it, and the token was not sent there")
        if not is_listed(urllib.parse.urlsplit(url).hostname or "", self.token_hosts):
            raise HostNotAllowed(
                f"a layout names {url}, and the application did not; if it is the controller's, add its host to"
                f" token_hosts (now: {', '.join(self.token_hosts)}) or set controller_url"
            )


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """Identification of a consumer in the REST interface.

    Attributes:
        topic: scalable topic.
        subscription: name of the subscription.
        name: name of the consumer.
        instance: id of this run of the consumer; a later consumer with the same name has another.
    """

    topic: TopicName
    subscription: str
    name: str
    instance: str = ""

    @property
    def path(self) -> str:
        """URL path, encoded."""
        encoded = [urllib.parse.quote(name, safe="") for name in (self.subscription, self.name)]
        topic = urllib.parse.quote(self.topic.path, safe="/")
        return _PATH.format(topic=topic, subscription=encoded[0], name=encoded[1])


def join(access: RestAccess, urls: Sequence[str], consumer: ConsumerKey, kind: ConsumerKind) -> AssignmentMessage:
    """Register a consumer and return its assignment; registering twice is safe.

    Raises:
        Refused: the controller rejects the registration.
        ConnectionLost: no controller answers.
    """
    body = {"kind": kind.name, **({"instance": consumer.instance} if consumer.instance else {})}
    return parse_assignment(_ask(access, urls, consumer, "POST", consumer.path, json.dumps(body).encode()))


def leave(access: RestAccess, urls: Sequence[str], consumer: ConsumerKey) -> None:
    """End a consumer's registration, unless a later instance has its name; raises as `join`."""
    query = f"?{urllib.parse.urlencode({'instance': consumer.instance})}" if consumer.instance else ""
    _ask(access, urls, consumer, "DELETE", f"{consumer.path}{query}", None)


def _ask(  # noqa: PLR0917 - one request, as it is sent
    access: RestAccess, urls: Sequence[str], consumer: ConsumerKey, method: str, path: str, body: bytes | None
) -> bytes:
    if not urls:
        raise Unsupported(
            f"{consumer.topic.path}: unknown controller URL: the layout does not name it, and the option controller_url"
            " is not set; a stream consumer needs it to get its segments"
        )
    error: ScalableError | None = None
    for url in urls:
        try:
            access.check(url)
            return _send_request(access, url, path, method, body)
        except (ConnectionLost, HostNotAllowed) as cause:
            error = error or cause
    raise error or ConnectionLost(f"{consumer.topic.path}: no controller answered")


def _send_request(access: RestAccess, url: str, path: str, method: str, body: bytes | None) -> bytes:
    where = f"{method} {url.rstrip('/')}{path}"
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    token = token_now(access.token)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(  # noqa: S310 - the schemes are checked
        f"{url.rstrip('/')}{path}", data=body, headers=headers, method=method
    )
    try:
        with _opener(access.tls).open(request, timeout=access.timeout) as answer:
            content = answer.read(_LARGEST_ANSWER + 1)
            if answer.length and len(content) <= _LARGEST_ANSWER:
                raise http.client.IncompleteRead(content, answer.length)
    except urllib.error.HTTPError as cause:
        text = _body_of(cause)
        if cause.code >= 500:
            raise ConnectionLost(f"{where}: {cause.code} {text}") from cause
        raise refused_by_http(cause.code, text, where) from cause
    except (OSError, http.client.HTTPException) as cause:
        raise ConnectionLost(f"{where}: {cause!r}") from cause
    if len(content) > _LARGEST_ANSWER:
        raise ProtocolViolation(f"{where}: the answer is longer than {_LARGEST_ANSWER} bytes")
    return content


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirect, and uses no proxy of the environment: both would get the token."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=tls),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _body_of(refusal: urllib.error.HTTPError) -> str:
    """Return the body of an error response; empty if the connection breaks, because the code is enough."""
    try:
        return refusal.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
