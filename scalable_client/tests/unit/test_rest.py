"""How a controller's REST interface is asked, and what its refusals become."""

from __future__ import annotations

import io
import threading
import urllib.error
from collections.abc import Generator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import IO, cast

import pytest

from pulsar_scalable import errors
from pulsar_scalable.controlled.rest import ConsumerKey, RestAccess, join, leave
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.names import TopicName

CONSUMER = ConsumerKey(TopicName("public/default/orders"), "bill", "one")
PATH = "/admin/v2/scalable/public/default/orders/subscriptions/bill/consumers/one"


class Controller(HTTPServer):
    """Answers as a test says, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.location = ""
        self.body = b'{"layoutEpoch": 3, "generation": 2, "segments": []}'
        self.asked: list[tuple[str, str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        """Answer any request."""
        assert isinstance(self.server, Controller)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body)

    do_DELETE = do_POST  # noqa: N815 - the base class calls it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""


@pytest.fixture
def controller() -> Generator[Controller]:
    """A controller."""
    with Controller() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_joining_and_leaving(controller: Controller) -> None:
    """Both requests name the consumer in the path, and carry the client's identity."""
    access = RestAccess((controller.url,), token=lambda: "secret")
    message = join(access, [controller.url], CONSUMER, ConsumerKind.STREAM)
    assert (message.generation, message.assignment.epoch, message.assignment.segments) == (2, 3, ())
    leave(access, [controller.url], CONSUMER)
    assert controller.asked == [
        ("POST", PATH, "Bearer secret", b'{"kind": "STREAM"}'),
        ("DELETE", PATH, "Bearer secret", b""),
    ]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, errors.AuthenticationFailed),
        (403, errors.NotAuthorized),
        (404, errors.TopicNotFound),
        (408, errors.Unready),
        (409, errors.Refused),
        (429, errors.Unready),
        (503, errors.ConnectionLost),
    ],
)
def test_refusals(controller: Controller, status: int, error: type[errors.ScalableError]) -> None:
    """A refusal has its type, and the controller's own words."""
    controller.status, controller.body = status, b"because"
    with pytest.raises(error, match=f"{PATH}.*because"):
        join(RestAccess(), [controller.url], CONSUMER, ConsumerKind.STREAM)


def test_a_refusal_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status code of a refusal counts, even if its body cannot be read."""

    class Broken(io.RawIOBase):
        def readinto(self, _: object) -> int:
            raise ConnectionResetError

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("http://127.0.0.1/", 503, "", Message(), cast("IO[bytes]", Broken()))

    monkeypatch.setattr("urllib.request.OpenerDirector.open", refuse)
    with pytest.raises(errors.ConnectionLost, match="503"):
        join(RestAccess(), ["http://127.0.0.1"], CONSUMER, ConsumerKind.STREAM)


def test_a_layout_does_not_lead_the_token_away(controller: Controller) -> None:
    """A layout's URL gets the token only with TLS, on a host that the application named; else the next one is asked."""
    access = RestAccess(token="secret", token_hosts=("brokers.example.com",))
    for url, reason in ((controller.url, "has no TLS"), ("https://evil.example.com", "the application did not")):
        with pytest.raises(errors.HostNotAllowed, match=reason):
            join(access, [url], CONSUMER, ConsumerKind.STREAM)
    access.check("https://brokers.example.com:8443")
    assert controller.asked == []
    own = RestAccess((controller.url,), token="secret")
    assert join(own, ["https://evil.example.com", controller.url], CONSUMER, ConsumerKind.STREAM).generation == 2


def test_redirects_are_refused(controller: Controller) -> None:
    """The token would go to the host that a redirect names."""
    controller.status, controller.location = 302, f"{controller.url}elsewhere"
    with pytest.raises(errors.Refused, match="302"):
        join(RestAccess((controller.url,), token="secret"), [controller.url], CONSUMER, ConsumerKind.STREAM)
    assert len(controller.asked) == 1


def test_long_answers_are_refused(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is read up to a limit."""
    monkeypatch.setattr("pulsar_scalable.controlled.rest._LARGEST_ANSWER", 10)
    with pytest.raises(errors.ProtocolViolation, match="longer than 10 bytes"):
        join(RestAccess(), [controller.url], CONSUMER, ConsumerKind.STREAM)


def test_controllers_that_are_away(controller: Controller) -> None:
    """The next controller is asked where one is away; where none is named, the cure is."""
    away = "http://127.0.0.1:1"
    assert join(RestAccess(timeout=5), [away, controller.url], CONSUMER, ConsumerKind.STREAM).generation == 2
    with pytest.raises(errors.ConnectionLost, match=r"127\.0\.0\.1:1"):
        join(RestAccess(timeout=5), [away], CONSUMER, ConsumerKind.STREAM)
    with pytest.raises(errors.Unsupported, match="option controller_url"):
        join(RestAccess(), [], CONSUMER, ConsumerKind.STREAM)
    with pytest.raises(errors.Unsupported, match="invalid controller URL"):
        join(RestAccess(), ["ftp://somewhere"], CONSUMER, ConsumerKind.STREAM)


def test_an_answer_without_content(controller: Controller) -> None:
    """An answer that is not an assignment is rejected."""
    controller.body = b"<html>"
    with pytest.raises(errors.ProtocolViolation, match="invalid assignment"):
        join(RestAccess(), [controller.url], CONSUMER, ConsumerKind.STREAM)
