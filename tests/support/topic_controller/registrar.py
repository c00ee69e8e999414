"""Registration of stream consumers: the proposal's REST interface, as far as they use it, in front of a workflow.

It only passes on what consumers ask, and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from temporalio.service import RPCError

from tests.support.http_server import HttpServer
from tests.support.topic_controller.controllers import Controller

_UNAVAILABLE = 503


class Registrar(HttpServer):
    """Registers consumers with the controller that there is then; a context manager.

    Args:
        controller: of the topic, now.
    """

    def __init__(self, controller: Callable[[], Controller]) -> None:
        super().__init__(_handler(controller))


def _handler(controller: Callable[[], Controller]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            subscription, name = self._consumer_of_path()
            try:
                assignment = controller().register(subscription, name, asked["instance"])
            except (RPCError, TimeoutError) as error:
                self._answer(_UNAVAILABLE, str(error).encode())
            else:
                self._answer(200, assignment.model_dump_json(by_alias=True).encode())

        def do_DELETE(self) -> None:
            subscription, name = self._consumer_of_path()
            try:
                (instance,) = parse_qs(urlsplit(self.path).query)["instance"]
                controller().unregister(subscription, name, instance)
            except (RPCError, TimeoutError) as error:
                self._answer(_UNAVAILABLE, str(error).encode())
            else:
                self._answer(204, b"")

        def _consumer_of_path(self) -> tuple[str, str]:
            _, subscription, _, name = urlsplit(self.path).path.rsplit("/", 3)
            return unquote(subscription), unquote(name)

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Ignore the request: nothing is logged."""

    return Handler
