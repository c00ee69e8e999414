"""A non-blocking socket, plain or TLS: one thread reads and writes, other threads queue frames."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from pulsar_wire.access import Access, Address
from pulsar_wire.errors import ConnectionLost, TlsFailed
from pulsar_wire.frames import FrameBuffer

_READ = 256 << 10
# Bytes of queued frames that are joined for one system call.
_WRITE = 1 << 20
# Seconds to send queued frames when the connection is closed.
_LINGER = 1.0


def connect(address: Address, access: Access) -> socket.socket:
    """Return a connected socket, with TLS where the address asks for it.

    Raises:
        ConnectionLost: the address does not answer in time.
        TlsFailed: the TLS handshake fails.
    """
    try:
        plain = socket.create_connection((address.host, address.port), timeout=access.connection_timeout)
    # A UnicodeError means an impossible host name, which may come from a lookup's answer.
    except (OSError, UnicodeError) as cause:
        raise ConnectionLost(f"{address} cannot be reached: {cause}") from cause
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.secure:
            return plain
        context = access.tls or ssl.create_default_context()
        return context.wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLEOFError as cause:
        plain.close()
        # Not about certificates: a broker that shuts down, or a balancer without brokers, ends the handshake this way.
        raise ConnectionLost(f"TLS with {address} fails: the other side closed the connection") from cause
    except ssl.SSLError as cause:
        plain.close()
        raise TlsFailed(
            f"TLS with {address} fails: {cause.reason or cause}; check the authorities and the name in its certificate"
        ) from cause
    except OSError as cause:
        plain.close()
        raise ConnectionLost(f"TLS with {address} fails: {cause}") from cause


class Transport:
    """Sends and receives frames; `step` is for one thread, `queue` and `finish` are for all.

    Args:
        connected: socket; this object closes it.

    Attributes:
        last_received: monotonic time of the last received data.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        self.last_received = time.monotonic()
        self._socket = connected
        self._buffer = FrameBuffer()
        self._queue: deque[bytes] = deque()
        self._rest = memoryview(b"")
        self._lock = threading.Lock()
        self._woken = False
        self._end: float | None = None
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.settimeout(0)
        self._wake_write.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._selector.register(connected, selectors.EVENT_READ)
        self._wants_write = False

    def queue(self, frames: bytes) -> None:
        """Queue frames to be sent after all others."""
        self._queue.append(frames)
        self._wake()

    def allow(self, message: int) -> None:
        """Accept messages of this many bytes from now on."""
        self._buffer.allow(message)

    def finish(self) -> None:
        """Send what is queued, then end."""
        self._end = time.monotonic() + _LINGER
        self._wake()

    def step(self, timeout: float, take: Callable[[bytes], None]) -> bool:
        """Wait until something can be read or written, and do it; return whether to continue.

        Args:
            timeout: seconds to wait at most.
            take: receives each frame.

        Raises:
            OSError: the connection is broken.
            ConnectionLost: the other side closed it.
        """
        if self._end is not None:
            timeout = min(timeout, max(0.0, self._end - time.monotonic()))
        ready = [key.fileobj for key, _ in self._selector.select(timeout)]
        if self._wake_read in ready:
            self._clear_wake()
        if self._socket in ready:
            self._receive(take)
        self._send()
        if self._end is None:
            return True
        return bool(self._queue or self._rest) and time.monotonic() < self._end

    def close(self) -> None:
        """End without sending more."""
        self._selector.close()
        for endpoint in (self._socket, self._wake_read):
            with contextlib.suppress(OSError):
                endpoint.close()
        with self._lock:
            self._woken = True
            self._wake_write.close()

    def _wake(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
            with contextlib.suppress(OSError):
                self._wake_write.send(b"\0")

    def _clear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(64)
        # Clear before the queue is read: a thread that queues after this line wakes the reader again.
        with self._lock:
            self._woken = False

    def _receive(self, take: Callable[[bytes], None]) -> None:
        try:
            while True:
                data = self._socket.recv(_READ)
                if not data:
                    raise ConnectionLost("the connection was closed by the broker or proxy")
                self.last_received = time.monotonic()
                for frame in self._buffer.feed(data):
                    take(frame)
                # TLS may hold decrypted bytes that the selector does not see.
                if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return

    def _send(self) -> None:
        try:
            while self._rest or self._queue:
                if not self._rest:
                    self._rest = self._joined()
                sent = self._socket.send(self._rest)
                self._rest = self._rest[sent:]
            self._watch(writing=False)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._watch(writing=True)
        except ssl.SSLWantReadError:
            self._watch(writing=False)

    def _joined(self) -> memoryview:
        parts: list[bytes] = []
        size = 0
        while self._queue and size < _WRITE:
            parts.append(self._queue.popleft())
            size += len(parts[-1])
        return memoryview(b"".join(parts))

    def _watch(self, *, writing: bool) -> None:
        if writing is not self._wants_write:
            self._wants_write = writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(self._socket, events)
