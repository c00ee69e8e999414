"""Checks that every request passes before anything of it is parsed: host, origin, token, rights, limits, access log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Protocol
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.principals import Principal
from gateway.access.rates import Rates
from gateway.api.rights import find
from gateway.errors import HTTPProblem
from gateway.metrics import GatewayMetrics
from gateway.settings import PREFIX
from pulsar_wire.hosts import is_listed
from temporal.caller import act_for

HEALTH = frozenset(("/healthz", "/readyz"))
"""Open to everybody: they are for programs that have no token, and address a gateway by its IP address."""

FAILED_LOGINS_PER_SECOND, FAILED_LOGINS_AT_ONCE = 1.0, 20.0
"""Failed logins of one address that are answered with 401 and logged; others are answered with 429."""

BURST_SECONDS = 10
"""Requests of one identity may use up the rate of so many seconds at once."""

_MAX_SHOWN = 300
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

_log = logging.getLogger("gateway.access")


@dataclass(slots=True)
class _Visit:
    """A request, as the access log shows it."""

    method: str
    path: str
    address: str
    identity: str = "-"
    route: str = "-"
    status: int = 0
    begin: float = field(default_factory=time.monotonic)
    quiet: bool = False
    routine: bool = False

    def log(self) -> None:
        if self.quiet or (self.routine and self.status < HTTPStatus.BAD_REQUEST):
            return
        seen = {
            "identity": self.identity,
            "method": self.method,
            "route": self.route,
            "path": self.path,
            "status": self.status,
            "address": self.address,
            "seconds": round(time.monotonic() - self.begin, 4),
        }
        _log.info(" ".join(f"{name}=%s" for name in seen), *seen.values(), extra=seen)


class Authenticates(Protocol):
    """Authenticates requests by their header `Authorization`."""

    def authenticate(self, authorization: str | None) -> Principal:
        """Return who sends a request; raise `HTTPProblem` for an unknown sender."""
        ...


class Permission(Protocol):
    """Rights that a request needs.

    `route` is its path for the access log, which leaves out a `routine` request that succeeds.
    """

    @property
    def route(self) -> str: ...  # noqa: D102 - described above
    @property
    def routine(self) -> bool: ...  # noqa: D102

    def authorize(self, principal: Principal) -> None:
        """Check that a principal may send the request; raise `HTTPProblem` if not."""
        ...


class Gate:
    """Lets requests in that may be served.

    Args:
        app: the application.
        authenticator: authenticates requests.
        hosts: names by which clients may address the gateway.
        rate: requests per second of one identity.
        most: most requests that are served at the same time.
        open_paths: further paths that need no token, also as prefixes that end with a slash.
        find: returns what a method and a path need.
        process: name of the process, for notes of workflows.
        hosts_setting: variable with `hosts`, for the message of a refusal.
        metrics: count the requests; None for no metrics.
    """

    def __init__(  # noqa: PLR0917 - Starlette gives them by name
        self,
        app: ASGIApp,
        authenticator: Authenticates,
        hosts: tuple[str, ...],
        rate: float,
        most: int,
        open_paths: tuple[str, ...] = (),
        *,
        find: Callable[[str, str], Permission] = find,
        process: str = "gateway",
        hosts_setting: str = f"{PREFIX}HOSTS",
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._hosts = hosts
        self._requests = Rates(rate, rate * BURST_SECONDS)
        self._failures = Rates(FAILED_LOGINS_PER_SECOND, FAILED_LOGINS_AT_ONCE)
        self._most = most
        self._in_flight = 0
        self._open_paths = open_paths
        self._find = find
        self._process = process
        self._hosts_setting = hosts_setting
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        visit = _Visit(_shown(scope["method"]), _shown_path(scope), _address(scope))

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        try:
            await self._serve(scope, receive, noted, visit)
        finally:
            visit.log()
            if self._metrics:
                self._metrics.answered(visit.route, visit.status, time.monotonic() - visit.begin)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, visit: _Visit) -> None:
        try:
            self._check_host(scope)
            if not self._is_open(scope["path"]):
                principal = self._authenticate(scope, visit)
                visit.identity = principal.identity
                self._check_rights(scope, principal, visit)
                scope.setdefault("state", {})["principal"] = principal
            if self._in_flight >= self._most:
                reason = f"{self._in_flight} requests are being served; retry later"
                raise HTTPProblem(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "2"})
        except HTTPProblem as problem:
            # The body is not read, so the connection ends.
            headers = {**problem.headers, "Connection": "close"}
            await JSONResponse({"reason": problem.reason}, problem.status, headers)(scope, receive, send)
            return
        self._count(1)
        try:
            with act_for(f"{visit.identity} ({self._process})"):
                await self._app(scope, receive, send)
        finally:
            self._count(-1)

    def _count(self, requests: int) -> None:
        self._in_flight += requests
        if self._metrics:
            self._metrics.serving(self._in_flight)

    def _is_open(self, path: str) -> bool:
        return any(path == opened or (opened.endswith("/") and path.startswith(opened)) for opened in self._open_paths)

    def _check_host(self, scope: Scope) -> None:
        """Refuse requests for other hosts, and from pages of other origins: browsers send them for any web page."""
        host = _header(scope, b"host") or ""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_listed(name, self._hosts):
            reason = (
                f"{name or 'no host'} is not a name of this {self._process}; add it to {self._hosts_setting} if it is"
            )
            raise HTTPProblem(HTTPStatus.MISDIRECTED_REQUEST, reason)
        origins = _headers(scope, b"origin")
        if origins and [_netloc(origin) for origin in origins] != [host.lower()]:
            raise HTTPProblem(HTTPStatus.FORBIDDEN, "requests from web pages of other origins are refused")

    def _authenticate(self, scope: Scope, visit: _Visit) -> Principal:
        try:
            return self._authenticator.authenticate(_header(scope, b"authorization"))
        except HTTPProblem:
            if self._failures.take(_network(visit.address)):
                raise
            # Valid tokens still pass: others may share the address.
            visit.quiet = True
            reason = "too many failed logins from this address; retry later"
            raise HTTPProblem(HTTPStatus.TOO_MANY_REQUESTS, reason, {"Retry-After": "10"}) from None

    def _check_rights(self, scope: Scope, principal: Principal, visit: _Visit) -> None:
        request = self._find(scope["method"], scope["path"])
        visit.route, visit.routine = request.route, request.routine
        request.authorize(principal)
        if not self._requests.take(principal.identity):
            reason = f"{principal.identity} sends too many requests; retry later"
            raise HTTPProblem(HTTPStatus.TOO_MANY_REQUESTS, reason, {"Retry-After": "2"})


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key.lower() == name]


def _header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header; None if it is missing, or there is more than one."""
    values = _headers(scope, name)
    return values[0] if len(values) == 1 else None


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "-"


def _network(address: str) -> str:
    """Return what is counted as one address: a host with IPv6 often has a whole network of addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(int(parsed) >> 64) if isinstance(parsed, IPv6Address) else address


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() and letter != " " else "?" for letter in text[:_MAX_SHOWN])


def _shown_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return _shown(raw.decode("latin-1") if raw is not None else scope["path"])
