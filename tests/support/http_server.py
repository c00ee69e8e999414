"""An HTTP server of a test's own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_STOP_CHECK = 0.05
_REDIRECTS = (301, 302)


class HttpServer:
    """Answers from the start of a `with` block to its end; its address is known before.

    Args:
        handler: answers the requests of one connection.
        port: where; by default one that is free.
        host: the address of its interface.

    Attributes:
        base_url: of all its pages, without a slash at the end.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self.base_url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(_STOP_CHECK,), name="http", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class Answers(HttpServer):
    """Answers each path with a status and a text, which a test may replace at any time.

    Args:
        answers: by path; an answer of a redirect has its address as text.
    """

    def __init__(self, answers: Mapping[str, tuple[int, str]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Send the answer of the path."""
                status, text = answers[self.path]
                self.send_response(status)
                if status in _REDIRECTS:
                    self.send_header("Location", text)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Write nothing."""

        super().__init__(Handler)
