"""Errors between a worker and an HTTP server: a broker's admin interface, a token endpoint, a webhook.

AdminError                      a StoreError with the request and, where one came, the answer
├── AdminUnreachable            no connection, or no answer in time; worth a retry
│   └── AdminServerError        an answer 5xx
├── AdminNoCredentials          a file of the settings cannot be used, perhaps while it is renewed; worth a retry
├── AdminDenied                 401 or 403, or credentials that an issuer refuses
│   ├── AdminUntrusted          a certificate that the other side does not accept
│   └── AdminDestinationRefused the settings do not allow to send the credentials there
├── AdminNotFound               404: the requested thing does not exist
├── AdminConflict               409: it is there already, or another client has changed it
│   └── AdminPreconditionFailed 412: something else must be so first
├── AdminUnsupported            405, or a path that the server does not know: it lacks the feature
└── AdminProtocolError          any other refusal, a redirect that must not be followed, or an answer of another form
"""

from __future__ import annotations

import re
from typing import Any, Self, TypeVar, cast

import httpx

from clients.errors import (
    LONGEST_MESSAGE,
    DestinationRefused,
    NoCredentials,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.json_text import read_json
from clients.pulsar.admin.bodies import text_of
from clients.tls import certificate_trouble
from models.redaction import redacted
from models.text import shown

ErrorT = TypeVar("ErrorT", bound="AdminError")

# What a page of Jetty's says of a path that no resource has. Pulsar's own refusals name what is missing.
_UNKNOWN_PATH = "Not Found"
# Answered with 412 while a bundle goes from one broker to another.
_NO_OWNER = "find owner"
_PAGE = re.compile(r"<title>Error \d+ (.*?)</title>")
_UNFORESEEN = re.compile(r"^Message: (.*)$", re.MULTILINE)
# With these nothing has reached the server: even a change can be asked of another one.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AdminError(StoreError):
    """Base of all errors of HTTP requests.

    Attributes:
        method: of the request, for example `GET`.
        url: of the request; after redirects the last one.
        status: of the answer; None if none came.
        reason: why, in the server's words or the library's.
    """

    def __init__(self, reason: str, *, method: str, url: str, status: int | None = None) -> None:
        answered = f" answered {status}" if status is not None else ""
        text = f"{method} {url}{answered}: {reason}" if reason else f"{method} {url}{answered}"
        super().__init__(text, server=url)
        self.method = method
        self.url = url
        self.status = status
        self.reason = redacted(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would call the class with the message alone.
        return _restored, (type(self), str(self), self.__dict__)

    def saying(self, message: str, *, server: str = "", path: bytes = b"", ledger_id: int | None = None) -> Self:
        """Return the same error with another message, and with more fields."""
        more = {"server": server, "path": path, "ledger_id": ledger_id}
        given = {name: value for name, value in more.items() if value not in ("", b"", None)}
        return _restored(type(self), message, {**self.__dict__, **given})


class AdminUnreachable(AdminError, StoreUnreachable):
    """No connection, or no answer in time.

    Attributes:
        sent: whether the server may have got the request; False means that it can be repeated elsewhere.
    """

    def __init__(self, reason: str, *, method: str, url: str, status: int | None = None, sent: bool = True) -> None:
        super().__init__(reason, method=method, url=url, status=status)
        self.sent = sent


class AdminServerError(AdminUnreachable):
    """An answer 5xx: the server failed, temporarily or permanently."""


class AdminDenied(AdminError, StoreDenied):
    """The server refuses the credentials, or the issuer of tokens does."""


class AdminNoCredentials(AdminError, NoCredentials):
    """A file of the settings cannot be read, or has no credentials: it may be renewed at this moment."""


class AdminUntrusted(AdminDenied):
    """The server's certificate is not trusted here, or ours is not there; nothing was sent."""


class AdminDestinationRefused(AdminDenied, DestinationRefused):
    """The settings do not allow to send the credentials to this host, or over this link; nothing was sent."""


class AdminNotFound(AdminError, StoreNotFound):
    """The requested thing does not exist."""


class AdminConflict(AdminError, StoreConflict):
    """The thing exists already, or another client has changed it."""


class AdminPreconditionFailed(AdminConflict):
    """Something else must be so first; the reason says what."""


class AdminUnsupported(AdminError, StoreUnsupported):
    """The server lacks what was asked for."""


class AdminProtocolError(AdminError, StoreProtocolError):
    """The request was refused for another reason, or the answer has another form than it should have."""


_BY_STATUS: dict[int, type[AdminError]] = {
    401: AdminDenied,
    403: AdminDenied,
    404: AdminNotFound,
    405: AdminUnsupported,
    409: AdminConflict,
    412: AdminPreconditionFailed,
}


def refusal(answer: httpx.Response) -> AdminError:
    """Return the error of an answer that is not a success."""
    kind = _BY_STATUS.get(answer.status_code, AdminServerError if answer.is_server_error else AdminProtocolError)
    reason = reason_of(answer)
    if kind is AdminNotFound and reason == _UNKNOWN_PATH:
        kind = AdminUnsupported
    if kind is AdminPreconditionFailed and _NO_OWNER in reason:
        kind = AdminServerError
    return kind(reason, **where(answer.request), status=answer.status_code)


def no_answer(request: httpx.Request, error: httpx.HTTPError) -> AdminError:
    """Return the error of a request without a complete answer."""
    reason = str(error) or type(error).__name__
    if (trouble := certificate_trouble(error)) is not None:
        return AdminUntrusted(f"the certificate was not accepted ({trouble})", **where(request))
    if isinstance(error, httpx.DecodingError):
        return AdminProtocolError(reason, **where(request))
    return AdminUnreachable(reason, **where(request), sent=not isinstance(error, _NOT_SENT))


def undecodable(request: httpx.Request) -> AdminProtocolError:
    """Return the error of an answer with a redirect that httpx cannot decode; it tries to, also if none is followed."""
    return AdminProtocolError("the answer redirects to a name that no host can have", **where(request))


def misfit(answer: httpx.Response, reason: str) -> AdminProtocolError:
    """Return the error of an answer that has another form than it should have."""
    return AdminProtocolError(reason, **where(answer.request), status=answer.status_code)


def where(request: httpx.Request) -> dict[str, Any]:
    """Return method and address of a request, as errors take them; a query's values stay out of messages."""
    return {"method": request.method, "url": str(request.url.copy_with(query=None, userinfo=b""))}


def host_of(url: httpx.URL) -> str:
    """Return the host of an address as it is looked up; httpx decodes names with `xn--`, or fails to."""
    return url.raw_host.decode()


def reason_of(answer: httpx.Response) -> str:
    """Return why the server refused: Pulsar's `reason`, OAuth2's `error_description` or `error`, or the first line."""
    text = text_of(answer)
    try:
        body: Any = read_json(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        text = next((str(fields[name]) for name in ("reason", "error_description", "error") if fields.get(name)), text)
    elif page := _PAGE.search(text):
        text = page[1]
    # For what it did not foresee Pulsar gives a stack trace beneath a line `Message: …`.
    unforeseen = _UNFORESEEN.search(text)
    return shown(unforeseen[1] if unforeseen else text.strip().partition("\n")[0])


def _restored(kind: type[ErrorT], message: str, fields: dict[str, Any]) -> ErrorT:
    error = kind.__new__(kind, shown(redacted(message), LONGEST_MESSAGE))
    error.__dict__.update(fields)
    return error
