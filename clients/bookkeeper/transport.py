"""Sockets to bookies, plain or with TLS, and one place that waits for all of them.

Reads and writes overlap because nothing blocks but `EventLoop.poll`, which moves whatever can be moved on any
connection: while one bookie's entries are awaited, those for others flow.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from clients.bookkeeper import wire_v3
from clients.closeable import Closeable
from clients.errors import StoreUnreachable
from clients.reach import open_link
from clients.sasl import Login

# Below the limit of `sendmsg` (1,024 on Linux).
_BUFFERS_AT_ONCE = 512
# OpenSSL must be given the same bytes again after it wanted to wait; small pieces keep that cheap.
_TLS_WRITE = 256 << 10
# Host and service that bookies expect in a login, whatever their own are (SaslConstants.java).
_SASL_HOST = ("bookkeeper", "bookkeeper")


class Pollable(Protocol):
    """A connection, as the loop sees it."""

    @property
    def socket(self) -> socket.socket:
        """The socket that the loop waits for."""
        ...

    @property
    def deadline(self) -> float | None:
        """Until when, by `EventLoop.waited`, something must arrive; None if nothing is awaited."""
        ...

    def send_queued(self) -> None:
        """Send what can be sent without waiting."""
        ...

    def receive(self) -> None:
        """Take in what has arrived."""
        ...

    def overdue(self) -> None:
        """Handle that nothing arrived until the deadline."""
        ...


class EventLoop(Closeable):
    """Waits for the connections of one thread; the bookies of several clusters may share it.

    Attributes:
        waited: seconds spent waiting, the clock of all deadlines: while the caller does other things, or rests, or the
            process is frozen, what has arrived lies unread, and no bookie can be called silent.
    """

    def __init__(self) -> None:
        self.waited = 0.0
        self._selector = selectors.DefaultSelector()
        self._writing: set[Pollable] = set()
        self._queued: set[Pollable] = set()

    def add(self, connection: Pollable) -> None:
        """Begin to wait for a connection."""
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def remove(self, connection: Pollable) -> None:
        """Forget a connection, before its socket is closed."""
        self._writing.discard(connection)
        self._queued.discard(connection)
        self._selector.unregister(connection.socket)

    def want_write(self, connection: Pollable, *, wanted: bool) -> None:
        """Set whether a connection has something to send that its socket did not take."""
        if wanted != (connection in self._writing):
            (self._writing.add if wanted else self._writing.discard)(connection)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self._selector.modify(connection.socket, events, connection)

    def queued(self, connection: Pollable) -> None:
        """Mark a connection as one that has something new to send."""
        self._queued.add(connection)

    def send(self) -> None:
        """Send what was queued, as far as the sockets take it without waiting."""
        while self._queued:
            self._queued.pop().send_queued()

    @property
    def due(self) -> bool:
        """Whether something is awaited."""
        return any(connection.deadline is not None for connection in self._connections())

    def poll(self) -> None:
        """Send, wait until something can be received or sent, or until something is overdue, and do that.

        Something must be awaited on some connection, or it returns at once.
        """
        self.send()
        connections = self._connections()
        deadlines = [deadline for connection in connections if (deadline := connection.deadline) is not None]
        if not deadlines:
            return
        begun = time.monotonic()
        # Deadlines count waiting only: while the caller hashed or slept, no answer could be noticed.
        limit = max(0.0, min(deadlines) - self.waited)
        ready = self._selector.select(limit)
        # What is beyond the limit passed while this process was frozen and could read nothing.
        self.waited += min(limit, time.monotonic() - begun)
        active: set[Pollable] = set()
        for key, events in ready:
            connection: Pollable = key.data
            active.add(connection)
            # Handling one event may close another connection, whose event is still in the list.
            if events & selectors.EVENT_WRITE and connection.socket.fileno() >= 0:
                connection.send_queued()
            if events & selectors.EVENT_READ and connection.socket.fileno() >= 0:
                connection.receive()
        # A bookie that has just sent something is not late, however little it sent. What arrived while this process was
        # frozen counts too, and an interrupted `select` does not report it.
        if any(self._is_late(connection) for connection in connections):
            active.update(key.data for key, _ in self._selector.select(0))
        for connection in connections:
            if connection not in active and self._is_late(connection):
                connection.overdue()

    def _is_late(self, connection: Pollable) -> bool:
        deadline = connection.deadline
        return deadline is not None and deadline <= self.waited

    def _connections(self) -> list[Pollable]:
        return [key.data for key in self._selector.get_map().values()]

    def close(self) -> None:
        """Free the selector; the connections are their owners' to close."""
        self._selector.close()


@dataclass(frozen=True)
class Entrance:
    """TLS and login before the first request on a connection.

    Attributes:
        tls: of the bookies; None for no TLS.
        login: at each bookie; None for no login.
    """

    tls: ssl.SSLContext | None = None
    login: Login | None = None


def connect(host: str, port: int, entrance: Entrance, timeout: float, bookie: str) -> socket.socket:
    """Return a blocking connection with `timeout` seconds for each step, with TLS and login where they are wanted.

    Raises:
        OSError: it cannot be made.
        StoreError: the bookie refuses TLS or the login.
    """
    connected = plain = open_link(host, port, timeout)
    try:
        # Requests are small; held back for company they would add a round trip to each entry.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Version 2 knows no TLS: it is asked for in version 3, and the bookie takes version 2 after that.
        if entrance.tls is not None:
            wire_v3.read_answer(wire_v3.exchange(plain, wire_v3.start_tls_request(), bookie), bookie)
            connected = entrance.tls.wrap_socket(plain, server_hostname=host)
        if entrance.login is not None:
            _log_in(connected, entrance.login, bookie)
    except BaseException:
        connected.close()
        raise
    return connected


def _log_in(connected: socket.socket, login: Login, bookie: str) -> None:
    def exchange(token: bytes) -> bytes | None:
        try:
            answer = wire_v3.exchange(connected, wire_v3.login_request(token), bookie)
        except StoreUnreachable as error:
            # A bookie logs that a name or password is wrong, and neither answers nor closes the connection (4.18.2).
            cure = f"check {login.kind}_sasl_username and its password: bookies do not answer wrong ones"
            raise StoreUnreachable(f"{error}, to the login of {login.username!r}; {cure}", server=bookie) from error
        return wire_v3.read_login(answer, bookie)

    login.log_in(_SASL_HOST, exchange, f"bookie {bookie}", "check its JAAS file")


def send_some(connected: socket.socket, buffers: Iterable[bytes | memoryview]) -> int:
    """Send as much as the socket takes now; returns bytes, 0 if it takes none.

    Raises:
        OSError: the connection is lost.
    """
    try:
        # TLS sockets have no scattered writes.
        if isinstance(connected, ssl.SSLSocket):
            return connected.send(memoryview(next(iter(buffers)))[:_TLS_WRITE])
        return connected.sendmsg([buffer for buffer, _ in zip(buffers, range(_BUFFERS_AT_ONCE), strict=False)])
    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
        return 0


def receive_some(connected: socket.socket, into: memoryview) -> int:
    """Receive what is there; returns bytes, -1 if there is nothing yet, 0 at the end.

    Raises:
        OSError: the connection is lost.
    """
    try:
        return connected.recv_into(into)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return -1
