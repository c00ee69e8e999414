"""A webhook that stops and starts the brokers of a stack, as `"broker_control": "webhook"` asks for it."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from deploy.devstack.stack import Stack

TOKEN = "open-sesame"


class BrokerWebhook:
    """Listens on 127.0.0.1; a context manager.

    Args:
        stack: whose brokers are stopped and started.

    Attributes:
        url: where to post.
        asked: bodies of the requests that came with the token.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.asked: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/brokers"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="webhook", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def obey(self, body: dict[str, Any]) -> None:
        """Do what one request wants."""
        self.asked.append(body)
        brokers = [server for server in self._stack if server.kind == "broker"]
        if body["action"] == "stop":
            for broker in brokers:
                broker.stop()
        else:
            self._stack.use_bookies(body["bookkeeperMetadataServiceUri"])
            for broker in brokers:
                broker.start()


def _handler(webhook: BrokerWebhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection to the webhook."""

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

        def do_POST(self) -> None:
            """Answer when it is done."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            if allowed:
                webhook.obey(json.loads(body))
            self.send_response(HTTPStatus.NO_CONTENT if allowed else HTTPStatus.UNAUTHORIZED)
            self.end_headers()

    return Handler
