"""Connections of clients: a bounded number, and none that is silent for long."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from typing import TYPE_CHECKING, Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

HANDSHAKE_SECONDS = 5.0
"""Longest time for the handshake of TLS."""

IDLE_SECONDS = 10.0
"""Longest time without a complete request: after a connection is made, and after each answer."""

_SPARE_FILES = 1024

_Peer = tuple[str, int]


class Connections:
    """The open connections of a gateway.

    If there are too many, the one that has been without a request for the longest time is closed for a new one. So
    silent connections cannot keep others out.

    Args:
        most: most open connections.
        idle_seconds: longest time without a request.
        request_seconds: longest time for a request with its answer.
    """

    def __init__(self, most: int, idle_seconds: float, request_seconds: float) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._request_seconds = request_seconds
        # Those without a request, the oldest first.
        self._idle: dict[_Peer, Connection] = {}
        self._busy: dict[_Peer, Connection] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def admit(self, connection: Connection) -> bool:
        """Add a new connection; return False if all others have requests."""
        # mutant: topic-controller/silent-connections-keep-others-out
        if len(self) >= self._most:
            if not self._idle:
                return False
            self._idle.pop(next(iter(self._idle))).abort()
        self._idle[connection.peer] = connection
        connection.close_after(self._idle_seconds)
        return True

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        for connections in (self._idle, self._busy):
            if connections.get(connection.peer) is connection:
                del connections[connection.peer]

    def serving(self, app: ASGIApp) -> ASGIApp:
        """Return an application that notes which connections have a request."""

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            peer = cast("_Peer | None", scope.get("client"))
            connection = self._idle.pop(peer, None) if peer else None
            if connection is None:
                await app(scope, receive, send)
                return
            self._busy[connection.peer] = connection
            connection.close_after(self._request_seconds)
            try:
                await app(scope, receive, send)
            finally:
                # It may have ended, and its address may be another one's by now.
                if self._busy.get(connection.peer) is connection:
                    del self._busy[connection.peer]
                    self._idle[connection.peer] = connection
                    connection.close_after(self._idle_seconds)

        return noting


class Connection(asyncio.Protocol):
    """A connection: its limits, its handshake, and then HTTP.

    Args:
        connections: all open connections.
        http: handles the requests.
        tls: context for TLS; None for none.
    """

    def __init__(self, connections: Connections, http: asyncio.Protocol, tls: ssl.SSLContext | None) -> None:
        self._connections = connections
        self._http = http
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._is_open = False
        self._early = bytearray()
        self.peer: _Peer = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, and start the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        name: Any = transport.get_extra_info("peername")
        self.peer = (str(name[0]), int(name[1])) if name else ("", id(self))
        if not self._connections.admit(self):
            self._transport.abort()
        elif self._tls is None:
            self._open(self._transport)
        else:
            self._transport.pause_reading()
            self._handshake = asyncio.create_task(self._start_tls(self._transport, self._tls))

    async def _start_tls(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        encrypted: asyncio.Transport | None = None
        # A client that speaks no TLS, or has gone; `ssl.SSLError` is an OSError too.
        with contextlib.suppress(OSError):
            encrypted = await loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        if encrypted is None:
            self._end()
            transport.abort()
        else:
            self._open(encrypted)

    def _open(self, transport: asyncio.Transport) -> None:
        self._transport, self._is_open = transport, True
        self._http.connection_made(transport)
        if self._early:
            self._http.data_received(bytes(self._early))
            self._early.clear()

    def close_after(self, seconds: float) -> None:
        """Close the connection after a time, which replaces an earlier one."""
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        """Close the connection now."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._connections.discard(self)

    # What asyncio reports to an open connection is for HTTP -----------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle data; some may come with the end of the handshake."""
        if self._is_open:
            self._http.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> bool | None:
        """Handle the end of what the client sends."""
        return self._http.eof_received() if self._is_open else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._end()
        if self._is_open:
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Handle a client that does not read."""
        if self._is_open:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """Handle a client that reads again."""
        if self._is_open:
            self._http.resume_writing()


def protocol(connections: Connections, config: Config, state: ServerState, app_state: dict[str, Any]) -> Connection:
    """Return the protocol of one new connection to a server of uvicorn."""
    http = cast("Any", config.http_protocol_class)(config=config, server_state=state, app_state=app_state)
    return Connection(connections, http, config.ssl)


def allow_files(connections: int) -> None:
    """Raise the process's limit of open files for a number of connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
