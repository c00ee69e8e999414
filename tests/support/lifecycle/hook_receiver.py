"""A receiver of hooks with TLS, which checks signatures as the specification of Standard Webhooks says."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.http_server import HttpServer
from tests.support.self_signed import CertificateFiles, self_signed

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
OTHER_KEY = bytes(range(32, 64))
OTHER_SECRET = f"whsec_{base64.b64encode(OTHER_KEY).decode()}"

_BLOCK = 64
_TOLERANCE = 300


class Response(NamedTuple):
    """An answer of the receiver.

    Attributes:
        status: code of HTTP.
        body: of the answer.
        headers: of the answer.
        delay: seconds before it.
    """

    status: int = 204
    body: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    delay: float = 0.0


Respond = Callable[[dict[str, Any]], Response]


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return HMAC-SHA256 by its definition in RFC 2104, without the library that the product uses."""
    padded = key.ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).digest()


def check_signature(headers: Message, body: bytes, key: bytes = KEY) -> None:
    """Check the three headers of Standard Webhooks.

    Raises:
        AssertionError: the request is not signed with the key, or is old.
    """
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    assert "." not in message_id
    assert abs(time.time() - int(timestamp)) < _TOLERANCE
    signed = message_id.encode() + b"." + timestamp.encode() + b"." + body
    expected = f"v1,{base64.b64encode(hmac_sha256(key, signed)).decode()}"
    assert expected in headers["webhook-signature"].split(" ")


class HookReceiver(HttpServer):
    """Listens on 127.0.0.1; a context manager.

    Args:
        folder: for certificates.
        client: our certificate that clients must have; None if they need none.

    Attributes:
        url: where to post.
        ca: the file that clients trust.
        events: the events that came with a valid signature, in the order of their arrival, also refused ones.
        faults: what was wrong with requests.
        respond: returns the answer to an event.
    """

    def __init__(self, folder: Path, client: CertificateFiles | None = None) -> None:
        super().__init__(_handler(self))
        files = self_signed(folder, "receiver")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        if client is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client.certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{self.base_url.replace('http:', 'https:')}/hook"
        self.ca = str(files.certificate)
        self.events: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.respond: Respond = lambda event: Response()

    def take(self, headers: Message, body: bytes) -> Response:
        """Take one request."""
        event = json.loads(body)
        try:
            check_signature(headers, body)
            assert headers["webhook-id"] == event["id"]
            assert headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
        except (AssertionError, KeyError, TypeError) as fault:
            self.faults.append(repr(fault))
        self.events.append(event)
        return self.respond(event)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a hook that calls it."""
        return {"url": self.url, "secret": SECRET, "tls_ca": self.ca, **more}

    def texts(self, *types: str) -> list[str]:
        """Return the texts of the events of some types."""
        return [event["data"]["text"] for event in self.events if event["type"].partition(".")[2] in types]


def _handler(receiver: HookReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection to the receiver."""

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

        def do_POST(self) -> None:
            """Answer as the test says."""
            response = receiver.take(self.headers, self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(response.delay)
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body.encode())))
            self.end_headers()
            self.wfile.write(response.body.encode())

    return Handler
