"""Which answers end a connection to a broker, on a server of our own that says who asked."""

from __future__ import annotations

from collections.abc import Generator
from http.server import BaseHTTPRequestHandler

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.http import HttpSession
from tests.support.http_server import HttpServer


class _Handler(BaseHTTPRequestHandler):
    """Answers with the status that the path names, and the port that the request came from."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = str(self.client_address[1]).encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def url() -> Generator[str]:
    """Where the server listens."""
    with HttpServer(_Handler) as server:
        yield server.base_url


def test_a_connection_ends_with_an_answer_5xx_alone(url: str) -> None:
    """Success and refusals keep the connection; after an answer 5xx, whose reason is read, there is another one."""
    with HttpSession(AdminAccess(timeout=10)) as session:

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
