"""Answers that end a connection to a broker, tested with a server that reports who asked."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.connections import Connections
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.http import HttpSession, tls_context
from tests.support.http_server import HttpServer

_AT_ONCE = 4
_REQUESTS = 600


class _Handler(BaseHTTPRequestHandler):
    """Answers with the status that the path names, and the port that the request came from."""

    protocol_version = "HTTP/1.1"
    now = most = 0
    lock = threading.Lock()

    def do_GET(self) -> None:
        with self.lock:
            _Handler.now += 1
            _Handler.most = max(_Handler.most, _Handler.now)
        self._answer()

    def _answer(self) -> None:
        body = str(self.client_address[1]).encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with self.lock:
            _Handler.now -= 1
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@pytest.fixture
def url() -> Generator[str]:
    """Return the address of the server."""
    with HttpServer(_Handler) as server:
        yield server.base_url


def test_a_connection_ends_with_an_answer_5xx_alone(url: str) -> None:
    """Success and refusals keep the connection; after an answer 5xx, whose reason is read, there is another one."""
    access = AdminAccess(timeout=10)
    # An idle connection is kept however long this thread waits for a processor.
    connections = Connections(tls_context(access), keep_alive=None)
    with HttpSession(access, transport=connections) as session:

        def port() -> str:
            return session.request("GET", f"{url}/200").text

        first = port()
        with pytest.raises(AdminNotFound, match=f": {first}$"):
            session.request("GET", f"{url}/404")
        assert port() == first
        for status in (500, 503):
            before = port()
            with pytest.raises(AdminServerError, match=f"answered {status}: {before}$"):
                session.request("GET", f"{url}/{status}")
            assert port() != before


def test_many_threads_share_few_connections_to_several_brokers(url: str) -> None:
    """Each request is answered, however many wait for a turn, and never more run at once than was asked for."""
    with HttpServer(_Handler) as other, HttpSession(AdminAccess(timeout=10), _AT_ONCE) as session:
        addresses = [f"{base}/{status}" for base in (url, other.base_url) for status in (200, 500)]

        def ask(number: int) -> int:
            try:
                return session.request("GET", addresses[number % len(addresses)]).status_code
            except AdminServerError:
                return 500

        _Handler.most = 0
        with ThreadPoolExecutor(4 * _AT_ONCE) as pool:
            answers = list(pool.map(ask, range(_REQUESTS)))
    assert answers == [200, 500] * (_REQUESTS // 2)
    assert 1 < _Handler.most <= _AT_ONCE
