"""How all requests go over HTTP: with timeouts, TLS, credentials, redirects that lose nothing, and typed errors.

with HttpSession(access) as session:
    endpoint = Endpoint(session, ["https://broker-1:8443", "https://broker-2:8443"])
    endpoint.put("/tenants/acme", {"adminRoles": [], "allowedClusters": ["green"]})
"""

from __future__ import annotations

import logging
import queue
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from clients.closeable import Closeable
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.connections import Connections
from clients.pulsar.admin.errors import (
    AdminDestinationRefused,
    AdminError,
    AdminNoCredentials,
    AdminNotFound,
    AdminProtocolError,
    AdminUnreachable,
    AdminUntrusted,
    host_of,
    misfit,
    no_answer,
    refusal,
    undecodable,
    where,
)

BASE = "/admin/v2"
"""Where the admin interface begins; `/lookup/v2` is next to it."""

Params = Mapping[str, str | int | bool]
AnswerT = TypeVar("AnswerT")

_HOPS = 5
# The method and the body stay as they are with these alone; 301 and 302 are safe where there is no body.
_REDIRECTS = frozenset((307, 308))
_REDIRECTS_OF_GET = frozenset((301, 302))
_LOG = logging.getLogger(__name__)
_TOPIC_PATH = re.compile(r"/admin/v2/(?:non-)?persistent/[^/]+/[^/]+/[^/]+")
_OWNERS_MOST = 1000
_OWNERS_SECONDS = 20.0
"""How long a remembered owner is valid: brokers redirect, but an address may be given to another cluster."""


def tls_context(access: AdminAccess) -> ssl.SSLContext:
    """Return the TLS context; a new one once its files have changed.

    Raises:
        AdminNoCredentials: a file of the TLS settings cannot be used.
    """
    try:
        return access.tls.shared_context()
    except OSError as error:
        reason = f"the files of the TLS settings cannot be used: {error}"
        raise AdminNoCredentials(reason, method="TLS", url=access.tls.ca_file or access.tls.cert_file or "") from error


class HttpSession(Closeable):
    """Connections to any number of servers, all with the same credentials; for many threads. A context manager.

    The environment's proxies are not used: brokers are reached directly, as clients reach them.

    Args:
        access: timeout, TLS and credentials.
        connections: how many requests may run at once.
        transport: replaces the network, in tests.

    Raises:
        AdminNoCredentials: a file of the TLS settings cannot be used.
    """

    def __init__(
        self, access: AdminAccess, connections: int = 1, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        context = tls_context(access)
        self.access = access
        # Each is used by one thread at a time: a pool that threads share closes connections that it has just lent to
        # one of them (httpcore 1.0.9), whose request then ends with a bad file descriptor.
        self._clients = [
            httpx.Client(
                timeout=access.timeout,
                auth=access.auth,
                transport=transport or Connections(context),
                trust_env=False,
            )
            for _ in range(connections)
        ]
        self._owners = _TopicOwners()
        self._build = self._clients[0].build_request
        self._free: queue.LifoQueue[httpx.Client] = queue.LifoQueue()
        for client in self._clients:
            self._free.put(client)

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        for client in self._clients:
            client.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Params | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Send a request, follow redirects with method, body and credentials, and return the answer of success.

        Args:
            method: for example `PUT`.
            url: the whole address.
            params: of the query.
            json: the body; None for none.
            headers: in addition to those that every request has.
            timeout: seconds, where the session's own does not fit.

        Raises:
            AdminError: there was no answer, or one that is not a success; its `url` says who was asked at last.
        """
        limit = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            request = self._build(method, url, params=params, json=json, headers=headers, timeout=limit)
        except httpx.InvalidURL as error:
            raise AdminProtocolError(f"this is not an address ({error})", method=method, url=url) from error
        return self._at_owner(request) or self._followed(request, request.url)

    def _at_owner(self, request: httpx.Request) -> httpx.Response | None:
        """Return the answer of the broker that last owned the topic; None if unknown or unreachable."""
        owner = self._owners.take(request.url)
        if owner is None:
            return None
        try:
            return self._followed(self._again(request, owner), request.url)
        except AdminUnreachable as error:
            if error.sent and request.method != "GET":
                raise
            return None

    def _followed(self, request: httpx.Request, asked: httpx.URL) -> httpx.Response:
        """Return the answer of success, following redirects."""
        for _ in range(_HOPS):
            answer = self._send(request)
            if answer.is_success:
                if request.url.netloc != asked.netloc:
                    self._owners.learn(asked, request.url)
                return answer
            if not answer.has_redirect_location:
                raise refusal(answer)
            request = self._redirected(request, answer)
        raise AdminProtocolError(f"redirected {_HOPS} times, at last to {host_of(request.url)}", **where(request))

    def _send(self, request: httpx.Request) -> httpx.Response:
        # An input, a registration, a redirect or a broker's answer names the address.
        url = request.url
        if reason := self.access.objection(host_of(url), encrypted=url.scheme == "https"):
            raise AdminDestinationRefused(reason, **where(request))
        try:
            client = self._free.get()
            try:
                return client.send(request)
            finally:
                self._free.put(client)
        except httpx.UnsupportedProtocol as error:
            raise AdminProtocolError(str(error), **where(request)) from error
        except UnicodeError as error:
            raise undecodable(request) from error
        except httpx.HTTPError as error:
            raise no_answer(request, error) from error

    def _redirected(self, request: httpx.Request, answer: httpx.Response) -> httpx.Request:
        """Return the same request to another address; httpx itself would leave out the credentials, and some bodies."""
        to = answer.headers["location"]
        allowed = _REDIRECTS | _REDIRECTS_OF_GET if request.method == "GET" else _REDIRECTS
        if answer.status_code not in allowed:
            raise misfit(answer, f"a redirect to {to} that does not keep the request; ask there")
        try:
            url = request.url.join(to)
        except httpx.InvalidURL as error:
            raise misfit(answer, f"a redirect to {to!r}, which is not an address") from error
        # The credentials go along, so a redirect must not send them in clear.
        if request.url.scheme == "https" and url.scheme != "https":
            raise misfit(answer, f"a redirect to {host_of(url)} by {url.scheme}, which would give up TLS")
        return self._again(request, url)

    def _again(self, request: httpx.Request, url: httpx.URL) -> httpx.Request:
        headers = {name: value for name in ("content-type", "idempotency-key") if (value := request.headers.get(name))}
        again = self._build(request.method, url, headers=headers, content=request.content or None)
        again.extensions["timeout"] = request.extensions["timeout"]
        return again


class ReadEndpoint:
    """The admin interface of a cluster, for reading.

    Args:
        session: sends the requests.
        urls: addresses of brokers that can all be asked, the preferred one first: the next is asked when one cannot
            be reached. After a certificate that is not trusted, only addresses with TLS follow.
    """

    def __init__(self, session: HttpSession, urls: Sequence[str]) -> None:
        if not urls:
            raise AdminUnreachable("no address is known, so no broker can be asked", method="GET", url="", sent=False)
        self._session = session
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._first = 0

    @property
    def access(self) -> AdminAccess:
        """The session's access to servers."""
        return self._session.access

    def get(self, path: str, params: Params | None = None, *, timeout: float | None = None) -> httpx.Response:
        """GET a path beneath `/admin/v2`, or beneath `/lookup`.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        return self._request("GET", path, params=params, timeout=timeout)

    def head(self, path: str) -> httpx.Headers:
        """Return the headers of what a GET of a path beneath `/admin/v2` would answer.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        return self._request("HEAD", path).headers

    def get_as(
        self,
        kind: TypeAdapter[AnswerT],
        path: str,
        params: Params | None = None,
        *,
        timeout: float | None = None,
    ) -> AnswerT:
        """GET a path, and read its JSON.

        Raises:
            AdminError: there was no answer, or one that is not a success or has another form.
        """
        return parsed(kind, self.get(path, params, timeout=timeout))

    def find_as(self, kind: TypeAdapter[AnswerT], path: str, params: Params | None = None) -> AnswerT | None:
        """GET a path, and read its JSON; None where it is not there.

        Raises:
            AdminError: there was no answer, or one that is not a success or has another form.
        """
        try:
            return self.get_as(kind, path, params)
        except AdminNotFound:
            return None

    def set_as(self, kind: TypeAdapter[AnswerT], path: str, params: Params | None = None) -> AnswerT | None:
        """GET a policy; None where it is not set: the answer is 204 then, or 200 without a body.

        Raises:
            AdminError: there was no answer, or one that is not a success or has another form.
        """
        answer = self.get(path, params)
        return parsed(kind, answer) if answer.content else None

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        full = path if path.startswith("/lookup/") else f"{BASE}{path}"
        untold: AdminError | None = None
        tls_only = False
        for number in self._in_turn():
            if tls_only and not self.urls[number].startswith("https:"):
                continue
            try:
                answer = self._session.request(method, f"{self.urls[number]}{full}", **more)
            except (AdminUnreachable, AdminUntrusted) as error:
                if not _may_go_on(method, error):
                    raise
                untold = untold or error
                tls_only |= isinstance(error, AdminUntrusted)  # mutant: shared/plain-after-a-refused-certificate
                continue
            if number != self._first:
                _LOG.warning("%s; asking %s instead", untold, self.urls[number])
                self._first = number
            return answer
        assert untold is not None
        raise untold

    def _in_turn(self) -> Iterator[int]:
        """Return the addresses, beginning with the one that answered last."""
        begin = self._first
        return ((begin + step) % len(self.urls) for step in range(len(self.urls)))


class Endpoint(ReadEndpoint):
    """The admin interface of a cluster, for reading and for changes.

    Args:
        session: sends the requests.
        urls: as of `ReadEndpoint`.
        before_change: called right before each request that changes something, which is not sent if it raises.
    """

    def __init__(
        self, session: HttpSession, urls: Sequence[str], before_change: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(session, urls)
        self._before_change = before_change

    def put(self, path: str, json: Any = None, params: Params | None = None, *, timeout: float | None = None) -> None:
        """PUT to a path.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        self._change("PUT", path, params=params, json=json, timeout=timeout)

    def post(
        self, path: str, json: Any = None, params: Params | None = None, *, timeout: float | None = None
    ) -> httpx.Response:
        """POST to a path.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        return self._change("POST", path, params=params, json=json, timeout=timeout)

    def delete(self, path: str, params: Params | None = None, *, timeout: float | None = None) -> httpx.Response:
        """DELETE a path.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        return self._change("DELETE", path, params=params, timeout=timeout)

    def _change(self, method: str, path: str, **more: Any) -> httpx.Response:
        self._before_change()
        return self._request(method, path, **more)


def parsed(kind: TypeAdapter[AnswerT], answer: httpx.Response) -> AnswerT:
    """Return the JSON of an answer.

    Raises:
        AdminProtocolError: it is none, or has another form.
    """
    try:
        return kind.validate_json(answer.content)
    except ValidationError as error:
        first = error.errors()[:3]
        wrong = "; ".join(f"{'.'.join(map(str, field['loc'])) or 'answer'}: {field['msg']}" for field in first)
        raise misfit(answer, f"it has another form than expected ({wrong})") from error


def _may_go_on(method: str, error: AdminUnreachable | AdminUntrusted) -> bool:
    """Return whether another broker may be asked the same: not where a change may have been made already."""
    if isinstance(error, AdminUntrusted):
        return True
    return error.status is None and (method in ("GET", "HEAD") or not error.sent)


class _TopicOwners:
    """Owners that the redirects of one session have shown; for many threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[httpx.URL, float]] = {}

    def take(self, url: httpx.URL) -> httpx.URL | None:
        """Return the same address at the broker to which the last request for its topic was sent on; None for none.

        It is forgotten, until it has answered well: another broker may own the topic now.
        """
        broker, until = self._known.pop(_owner_key(url), (None, 0.0))
        if broker is None or time.monotonic() > until:
            return None
        return url.copy_with(scheme=broker.scheme, host=host_of(broker), port=broker.port)

    def learn(self, asked: httpx.URL, answered: httpx.URL) -> None:
        """Remember the broker that answered a redirected request."""
        if key := _owner_key(asked):
            if len(self._known) >= _OWNERS_MOST:
                # A step goes through all topics of a cluster, and asks few of them soon again.
                self._known.clear()
            self._known[key] = (answered, time.monotonic() + _OWNERS_SECONDS)


def _owner_key(url: httpx.URL) -> str:
    """Return the topic with the broker that was asked, since another cluster may have one of its name."""
    match = _TOPIC_PATH.match(url.raw_path.decode())
    return f"{url.scheme}://{url.netloc.decode()}{match[0]}" if match else ""
