"""A proxy for the admin interface of a broker that loses answers, or gives wrong ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

import httpx

from tests.support.http_server import HttpServer

_LIMIT = 60.0
_PASSED_ON = ("content-type", "location")


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


FAILED = Answer(500, b'{"reason":"so says the test"}')

Ask = Callable[[], Answer]
Act = Callable[[Ask], Answer | None]
"""Handles a request: gets a function that sends it on, and returns the answer; None closes the connection."""


def failed(ask: Ask) -> Answer:
    """Answer that the request failed, without sending it on."""
    del ask
    return FAILED


def failed_but_done(ask: Ask) -> Answer:
    """Send the request on, and answer that it failed."""
    ask()
    return FAILED


def hung_up(ask: Ask) -> None:
    """Send the request on, and close the connection without an answer."""
    ask()


class _Rule(NamedTuple):
    method: str
    ending: str
    act: Act
    stays: bool


class FaultyBrokerProxy:
    """Sends requests on to a broker, except those for which a test has a rule; a context manager.

    Args:
        url: the broker's admin interface.

    Attributes:
        url: the address of the proxy.
    """

    def __init__(self, url: str) -> None:
        self._broker = url
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._server = HttpServer(_handler(self._answer))
        self.url = self._server.base_url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def once(self, method: str, ending: str, act: Act) -> None:
        """Handle the next request of a method whose path has an ending."""
        with self._lock:
            self._rules.append(_Rule(method, ending, act, stays=False))

    def always(self, method: str, ending: str, act: Act) -> None:
        """Handle all requests of a method whose path has an ending."""
        with self._lock:
            self._rules.append(_Rule(method, ending, act, stays=True))

    @property
    def waits(self) -> int:
        """The number of rules that no request has matched yet."""
        return len(self._rules)

    def _answer(self, method: str, path: str, content_type: str | None, body: bytes) -> Answer | None:
        headers = {"content-type": content_type} if content_type else {}

        def ask() -> Answer:
            response = httpx.request(method, f"{self._broker}{path}", headers=headers, content=body, timeout=_LIMIT)
            passed_on = {name: value for name in _PASSED_ON if (value := response.headers.get(name))}
            return Answer(response.status_code, response.content, passed_on)

        act = self._act_of(method, path.partition("?")[0])
        return act(ask) if act else ask()

    def _act_of(self, method: str, path: str) -> Act | None:
        with self._lock:
            for rule in self._rules:
                if rule.method == method and path.endswith(rule.ending):
                    if not rule.stays:
                        self._rules.remove(rule)
                    return rule.act
        return None


def _handler(
    answer: Callable[[str, str, str | None, bytes], Answer | None],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
            pass

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            result = answer(self.command, self.path, self.headers.get("content-type"), body)
            if result is None:
                self.close_connection = True
                return
            self.send_response(result.status)
            for name, value in result.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(result.body)))
            self.end_headers()
            self.wfile.write(result.body)

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base's own names

    return Handler
