"""The one place where a socket to a ZooKeeper server is opened, plain or with TLS, for all clients of it."""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import Buffer

from clients.deadline import Deadline
from clients.errors import NoCredentials, StoreDenied, StoreError, StoreProtocolError
from clients.reach import open_link
from clients.tls_probe import TLS_STARTS, first_bytes, speaks_tls
from clients.zookeeper.access import ZooKeeperAccess

_RECEIVE_BUFFER = 4 << 20
#: OpenSSL must be given the same bytes again after a wait; small pieces keep that cheap.
_TLS_PIECE = 256 << 10
_PROBE_LIMIT = 2.0
ValueT = TypeVar("ValueT")


def open_socket(host: str, port: int, access: ZooKeeperAccess, timeout: float) -> socket.socket:
    """Connect to a server, and shake hands if the access has TLS.

    Args:
        host: name or address of the server, which its certificate must name.
        port: its port.
        access: TLS settings.
        timeout: seconds that connecting, the handshake and later each wait may take.

    Raises:
        OSError: the server cannot be reached, or the handshake fails (`ssl.SSLError`).
        NoCredentials: our own files for TLS cannot be used.
        DestinationRefused: the settings do not allow to connect there.
    """
    access.check(host)
    context = _context(access)
    link = _open_plain(host, port, timeout)
    try:
        return context.wrap_socket(link, server_hostname=host) if context else link
    except BaseException:
        link.close()
        raise


def _context(access: ZooKeeperAccess) -> ssl.SSLContext | None:
    if access.tls is None:
        return None
    try:
        return access.tls.shared_context()
    except OSError as error:
        files = ", ".join(filter(None, access.tls[:3]))
        raise NoCredentials(f"the files of zookeeper_tls_… cannot be used ({files}): {error}") from error


def _open_plain(host: str, port: int, timeout: float) -> socket.socket:
    link = open_link(host, port, timeout)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    return link


def why_refused(address: str, access: ZooKeeperAccess, error: Exception, timeout: float) -> Exception:
    """Return a better error than one with which the start of a connection failed; the same one if none is known.

    Args:
        address: `host:port` of the server.
        access: how it was tried.
        error: the failure, before or at the server's first answer.
        timeout: seconds that the server may take to answer one further question; none of our credentials is in it.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        cure = "check the server, or zookeeper_tls_ca" + (
            " and zookeeper_tls_verify_hostname" if "match" in error.verify_message else ""
        )
        return StoreDenied(f"its certificate is refused ({error.verify_message}); {cure}", server=address)
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return StoreDenied(f"it refuses our certificate ({_alert(error)}); {_own_certificate(access)}", server=address)
    if not isinstance(error, OSError | StoreError) or isinstance(error, socket.gaierror | ConnectionRefusedError):
        return error
    if access.tls is None and speaks_tls(address, min(timeout, _PROBE_LIMIT)):
        text = "it speaks TLS only; set zookeeper_tls_ca, or give its port for plain connections"
        return StoreProtocolError(text, server=address)
    if access.tls is not None and _speaks_plain(address, timeout):
        text = "it does not speak TLS on this port; give its secureClientPort, or unset zookeeper_tls_ca"
        return StoreProtocolError(text, server=address)
    return error


def _alert(error: ssl.SSLError) -> str:
    return (error.reason or "").lower().replace("_", " ")


def _own_certificate(access: ZooKeeperAccess) -> str:
    own = access.tls.cert_file if access.tls else None
    return f"check {own}, and the server's trust store" if own else "set zookeeper_tls_certificate"


def _speaks_plain(address: str, timeout: float) -> bool:
    """Return whether a server answers a four letter word, be it that the word is not allowed."""
    return first_bytes(address, b"ruok", min(timeout, _PROBE_LIMIT)) not in (b"", *TLS_STARTS)


class Stream(io.RawIOBase):
    """A socket on which one thread may send while another one receives, as OpenSSL by itself does not allow.

    Args:
        link: from `open_socket`.

    Attributes:
        deadline: latest end of the answer that is received, which each read checks.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._timeout = link.gettimeout()
        self.deadline = Deadline(self._timeout)
        self._lock = threading.Lock()
        if isinstance(link, ssl.SSLSocket):
            # No call may wait inside OpenSSL, as the other thread needs the lock.
            link.settimeout(0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Receive what has arrived, at least one byte; return 0 at the end of the stream."""
        self.deadline.check()
        return self._call(lambda: self._link.recv_into(buffer))  # pyright: ignore[reportArgumentType]

    def sendall(self, data: bytes) -> None:
        """Send all of the bytes."""
        if not isinstance(self._link, ssl.SSLSocket):
            self._link.sendall(data)
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._call(lambda piece=rest[:_TLS_PIECE]: self._link.send(piece)) :]

    def fileno(self) -> int:
        """Return the number of the socket's file; -1 once it is closed."""
        return self._link.fileno()

    def shutdown(self) -> None:
        """End the connection, so that a thread that waits for it wakes up."""
        with self._lock:
            self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with self._lock:
            self._link.close()
        super().close()

    def _call(self, move: Callable[[], ValueT]) -> ValueT:
        if not isinstance(self._link, ssl.SSLSocket):
            return move()
        while True:
            try:
                with self._lock:
                    return move()
            except ssl.SSLWantReadError:
                self.deadline.check()
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._link, event)
        if not poll.poll(None if self._timeout is None else self._timeout * 1000):
            raise TimeoutError("timed out")
