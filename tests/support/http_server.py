"""An HTTP server of a test's own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

_STOP_CHECK = 0.05


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
