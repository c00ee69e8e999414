"""Connections to HTTP servers: answers have limits in bytes and in time; an answer 5xx ends the connection."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from clients.deadline import Deadline
from clients.pulsar.admin.bodies import ENCODING, with_body

# Both as by default in httpx.
_MOST_CONNECTIONS = 100
_KEEP_ALIVE = 5.0


class Network(httpcore.SyncBackend):
    """Opens connections that all end their answers within one deadline."""

    deadline: Deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Open a connection."""
        try:
            return _Stream(super().connect_tcp(host, port, timeout, local_address, socket_options), self)
        except UnicodeError:
            # A label is empty or too long; registrations and redirects name hosts.
            raise httpcore.ConnectError(f"no host can have the name {host!r}") from None


class _Stream(httpcore.NetworkStream):
    """A connection whose parts have the timeout that they are given, and all of them together the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, network: Network) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive something."""
        try:
            self._network.deadline.check()
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from None
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything; requests are small."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Begin TLS."""
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._network)

    def get_extra_info(self, info: str) -> Any:
        """Return the socket, for example."""
        return self._stream.get_extra_info(info)


class TimedConnections(httpx.HTTPTransport):
    """Like httpx's own, but each answer has a deadline, in however many parts it comes; for one thread at a time.

    Args:
        tls: the TLS context.
        network: opens the connections.
        keep_alive: seconds for which an idle connection is kept; None for as long as the server keeps it.
        parts: how many timeouts of a request its whole answer may take; None for the usual number.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        *,
        network: Network | None = None,
        keep_alive: float | None = _KEEP_ALIVE,
        parts: int | None = None,
    ) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._network = network or Network()
        self._parts = parts
        # As the one of the base class, which cannot be given a network.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=keep_alive,
            network_backend=self._network,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the body comes when it is read."""
        # Requests of one session may have timeouts of their own.
        self._network.deadline = Deadline(request.extensions["timeout"]["read"], self._parts)
        return super().handle_request(request)


class Connections(TimedConnections):
    """Connections to Pulsar's admin interface: each answer is received whole, within limits.

    A connection ends with the first answer 5xx that comes over it. Where a request fails in a way that Pulsar does not
    foresee, its broker answers, and may continue writing to that connection: the next request over it has been answered
    with the failure of the one before, with the answer to another, or never (the cause is eclipse-ee4j/jersey#3397).
    `internal-info` of a topic that is not there does it. Arguments as of `TimedConnections`.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the body has been read when the answer is returned."""
        request.headers["accept-encoding"] = ENCODING
        answer = super().handle_request(request)
        try:
            return with_body(answer)
        finally:
            if answer.is_server_error:
                # Before the answer is closed, which would keep the connection for the next request.
                answer.extensions["network_stream"].close()
            answer.close()
