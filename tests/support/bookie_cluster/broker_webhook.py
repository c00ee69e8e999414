"""A webhook that stops and starts the brokers of a stack, as `"broker_control": "webhook"` asks for it."""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from pulsar_devstack.servers.stack import Stack
from tests.support.http_server import HttpServer
from tests.support.lifecycle.hook_receiver import check_signature

TOKEN = "open-sesame"


class BrokerWebhook(HttpServer):
    """Listens on 127.0.0.1; a context manager.

    Args:
        stack: whose brokers are stopped and started.

    Attributes:
        url: where to post.
        asked: bodies of the requests that came with the signature and the token.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(_handler(self))
        self._stack = stack
        self.asked: list[dict[str, Any]] = []
        self.url = f"{self.base_url}/brokers"

    def obey(self, body: dict[str, Any]) -> None:
        """Follow one request."""
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
            """Log nothing."""

        def do_POST(self) -> None:
            """Answer when it is done."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            check_signature(self.headers, body)
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            if allowed:
                webhook.obey(json.loads(body))
            self.send_response(HTTPStatus.NO_CONTENT if allowed else HTTPStatus.UNAUTHORIZED)
            self.end_headers()

    return Handler
