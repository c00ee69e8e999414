"""Credentials of HTTP requests: tokens, from a file too, and OAuth2 client credentials."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from clients.pulsar.admin.connections import Connections
from clients.pulsar.admin.errors import (
    AdminDenied,
    AdminDestinationRefused,
    AdminNoCredentials,
    AdminProtocolError,
    host_of,
    misfit,
    no_answer,
    reason_of,
    refusal,
    undecodable,
    where,
)
from clients.secret_files import is_token
from clients.tls import Tls
from models.destinations import Destinations
from models.file_stamp import stamp_of
from models.redaction import remember

_METADATA = "/.well-known/openid-configuration"
# A token is renewed this long before it expires, or after nine tenths of a short life.
_MARGIN = 60.0
_PART = 0.9
_UNAUTHORIZED = 401

AnswerT = TypeVar("AnswerT", bound=BaseModel)
AuthFlow = Generator[httpx.Request, httpx.Response, None]


class Token(httpx.Auth):
    """A bearer token that does not change."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Add the token."""
        _authorize(request, self._token.get_secret_value())
        yield request


class TokenFile(httpx.Auth):
    """A bearer token in a file, which is read again when the file changes and when a server refuses the token.

    Raises:
        AdminNoCredentials: the file cannot be read, or is empty; raised by each request.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, ...], str] | None = None

    def __reduce__(self) -> tuple[type[TokenFile], tuple[Path]]:
        # Executors get the name of the file, and never the token.
        return TokenFile, (self._path,)

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Add the token; after a 401, use the file's token if it has changed."""
        token = self._read(request)
        _authorize(request, token)
        answer = yield request
        if answer.status_code == _UNAUTHORIZED:
            self._known = None
            fresh = self._read(request)
            if fresh != token:
                _authorize(request, fresh)
                yield request

    def _read(self, request: httpx.Request) -> str:
        try:
            seen = stamp_of(self._path)
            if self._known is None or self._known[0] != seen:
                self._known = (seen, self._path.read_text("utf-8").strip())
        except (OSError, ValueError) as error:
            raise AdminNoCredentials(
                f"the token file {self._path} cannot be read ({error})", **where(request)
            ) from error
        if not self._known[1]:
            raise AdminNoCredentials(f"the token file {self._path} is empty", **where(request))
        return self._known[1]


class OAuth2(NamedTuple):
    """Server that issues tokens for client credentials; either `issuer_url` or `token_url` is given.

    Attributes:
        key_file: JSON with `client_id` and `client_secret`, as Pulsar's own clients take it (`type`, `issuer_url` and
            others may be there); read again for each token.
        issuer_url: whose metadata (`/.well-known/openid-configuration`) names the token endpoint.
        token_url: the token endpoint itself.
        audience: the token's audience; empty to omit it.
        scope: names of the scope, separated by spaces; empty to omit it.
        ca_file: PEM file of the authorities that sign the endpoint's certificate; None for the system's own.
        timeout: longest wait for an answer, in seconds.
        destinations: hosts that may get the client secret if the issuer's metadata names them; the configured address
            may in any case.
    """

    key_file: Path
    issuer_url: str = ""
    token_url: str = ""
    audience: str = ""
    scope: str = ""
    ca_file: str | None = None
    timeout: float = 5.0
    destinations: Destinations = Destinations()


class _Key(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    client_id: str
    client_secret: SecretStr


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    token_endpoint: str


class _Grant(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    access_token: SecretStr = Field(min_length=1)
    expires_in: float | None = None


class ClientCredentials(httpx.Auth):
    """Tokens for client credentials (RFC 6749, section 4.4), kept until shortly before they expire.

    May be used by many threads and many sessions at once, which then share a token.

    Args:
        options: the server that issues tokens.
        clock: returns seconds, for the expiry of tokens.
        transport: replaces the network, in tests.

    Raises:
        AdminNoCredentials: the key file cannot be read; raised by each request, as all others.
        AdminDenied: the endpoint refuses the key.
        AdminUnreachable: the endpoint does not answer.
        AdminProtocolError: it answers with something else than a token.
    """

    def __init__(
        self,
        options: OAuth2,
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._transport = transport
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def __reduce__(self) -> tuple[Callable[[OAuth2], ClientCredentials], tuple[OAuth2]]:
        # Executors get the name of the key's file, and never a secret or a token.
        return _shared_credentials, (self._options,)

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Add the token; after a 401, get another one and repeat the request."""
        token = self._get(request, refused="")
        _authorize(request, token)
        answer = yield request
        if answer.status_code == _UNAUTHORIZED:
            _authorize(request, self._get(request, refused=token))
            yield request

    def _get(self, request: httpx.Request, refused: str) -> str:
        # One thread asks the endpoint, and the others wait for what it gets.
        with self._lock:
            if not self._token or self._token == refused or self._clock() >= self._renew_at:
                asked = self._clock()
                grant = self._ask(request)
                life = grant.expires_in
                self._token = grant.access_token.get_secret_value()
                self._renew_at = asked + max(life - _MARGIN, life * _PART) if life is not None else float("inf")
            return self._token

    def _ask(self, request: httpx.Request) -> _Grant:
        options = self._options
        key = self._key(request)
        form = {
            "grant_type": "client_credentials",
            "client_id": key.client_id,
            "client_secret": key.client_secret.get_secret_value(),
        }
        form |= {name: value for name in ("audience", "scope") if (value := getattr(options, name))}
        with self._client(request) as http:
            url = options.token_url or self._endpoint(http)
            try:
                asked = http.build_request("POST", url, data=form)
            except httpx.InvalidURL as error:
                raise AdminProtocolError(f"the issuer names no address ({error})", **where(request)) from None
            self._check(asked)
            answer = _send(http, asked)
            if answer.is_client_error:
                raise AdminDenied(reason_of(answer), **where(answer.request), status=answer.status_code)
            return _parse(answer, _Grant)

    def _check(self, request: httpx.Request) -> None:
        """Check that the client secret may go where the request goes.

        Raises:
            AdminDenied: it may not.
        """
        options, url = self._options, request.url
        destinations, configured = options.destinations, httpx.URL(options.token_url or options.issuer_url)
        host = host_of(url)
        if host == host_of(configured):
            destinations = destinations._replace(hosts=(host,))
        if reason := destinations.objection(host, encrypted=url.scheme == "https", secret=True):
            raise AdminDestinationRefused(reason, **where(request))

    def _endpoint(self, http: httpx.Client) -> str:
        url = f"{self._options.issuer_url.rstrip('/')}{_METADATA}"
        return _parse(_send(http, http.build_request("GET", url)), _Metadata).token_endpoint

    def _client(self, request: httpx.Request) -> httpx.Client:
        try:
            context = Tls(self._options.ca_file).context()
        except OSError as error:
            reason = f"the file of authorities {self._options.ca_file} cannot be used ({error})"
            raise AdminNoCredentials(reason, **where(request)) from error
        transport = self._transport or Connections(context)
        return httpx.Client(timeout=self._options.timeout, transport=transport, trust_env=False)

    def _key(self, request: httpx.Request) -> _Key:
        path = self._options.key_file
        try:
            key = _Key.model_validate(json.loads(path.read_text("utf-8")))
        except ValidationError as error:
            # Its own text would show the secret.
            wrong = ", ".join(str(place) for problem in error.errors() for place in problem["loc"])
            raise AdminNoCredentials(f"the key file {path} lacks: {wrong or 'an object'}", **where(request)) from None
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else "it is not JSON"
            raise AdminNoCredentials(f"the key file {path} cannot be read ({said})", **where(request)) from None
        remember(key.client_secret.get_secret_value())
        return key


@functools.lru_cache(maxsize=32)
def _shared_credentials(options: OAuth2) -> ClientCredentials:
    """Return the credentials that all tasks of a process share, so that they get one token together."""
    return ClientCredentials(options)


def _authorize(request: httpx.Request, token: str) -> None:
    remember(token)
    # httpx would fail in its own way.
    if not is_token(token):
        raise AdminNoCredentials("the token is not one line of ASCII without spaces", **where(request))
    request.headers["Authorization"] = f"Bearer {token}"


def _send(http: httpx.Client, request: httpx.Request) -> httpx.Response:
    try:
        return http.send(request)
    except UnicodeError as error:
        raise undecodable(request) from error
    except httpx.HTTPError as error:
        raise no_answer(request, error) from error


def _parse(answer: httpx.Response, kind: type[AnswerT]) -> AnswerT:
    if not answer.is_success:
        raise refusal(answer)
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError:
        # The text itself might hold a token.
        raise misfit(answer, "this is not an answer of an OAuth2 server") from None
