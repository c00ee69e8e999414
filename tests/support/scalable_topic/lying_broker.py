"""A broker's admin interface as seen through somebody who loses answers, or gives wrong ones."""

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
"""Deals with a request: gets what asks the broker, and returns the answer; None closes the connection instead."""


def failed(ask: Ask) -> Answer:
    """Do nothing, and say that it failed."""
    del ask
    return FAILED


def failed_but_done(ask: Ask) -> Answer:
    """Have it done, and say that it failed."""
    ask()
    return FAILED


def hung_up(ask: Ask) -> None:
    """Have it done, and close the connection without an answer."""
    ask()


class _Rule(NamedTuple):
    method: str
    ending: str
    act: Act


class LyingBroker:
    """Passes requests on to a broker, but for those that a test deals with; a context manager.

    Args:
        url: the broker's admin interface.

    Attributes:
        url: where clients ask instead.
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
        """Deal with the next request of a method whose path ends so."""
        with self._lock:
            self._rules.append(_Rule(method, ending, act))

    @property
    def waits(self) -> int:
        """For how many requests it still waits that a test deals with."""
        return len(self._rules)

    def _answer(self, method: str, path: str, content_type: str | None, body: bytes) -> Answer | None:
        headers = {"content-type": content_type} if content_type else {}

        def ask() -> Answer:
            found = httpx.request(method, f"{self._broker}{path}", headers=headers, content=body, timeout=_LIMIT)
            kept = {name: value for name in _PASSED_ON if (value := found.headers.get(name))}
            return Answer(found.status_code, found.content, kept)

        act = self._act_of(method, path.partition("?")[0])
        return act(ask) if act else ask()

    def _act_of(self, method: str, path: str) -> Act | None:
        with self._lock:
            for rule in self._rules:
                if rule.method == method and path.endswith(rule.ending):
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
            found = answer(self.command, self.path, self.headers.get("content-type"), body)
            if found is None:
                self.close_connection = True
                return
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base's own names

    return Handler
