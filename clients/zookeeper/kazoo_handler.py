"""Kazoo's threads, with connections that are opened as all others of this project."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

from kazoo.handlers.threading import SequentialThreadingHandler

from clients.zookeeper.access import ZooKeeperAccess
from clients.zookeeper.link import open_socket

LARGEST_PACKET = 64 << 20
"""Bytes of a packet that kazoo receives, which reads small records; it would take 2 GiB, and twice for a moment."""


class _Link:
    """A socket that receives nothing for a packet that is too large."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def recv(self, size: int) -> bytes:
        """Receive at most so many bytes: kazoo asks for all that a packet still lacks.

        Raises:
            ConnectionError: it lacks more than a packet may have.
        """
        if size > LARGEST_PACKET:
            raise ConnectionError(f"the server announced a packet of {size:,} bytes")
        return self._link.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


class Handler(SequentialThreadingHandler):
    """Opens connections as `open_socket` does: kazoo's own ones check no host name, and never read files again.

    Args:
        access: TLS settings.
    """

    def __init__(self, access: ZooKeeperAccess) -> None:
        super().__init__()
        self._access = access

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_ours: object) -> _Link:
        """Connect to a server; what kazoo itself would need for TLS is not looked at.

        Args:
            address: address and port to which the name was resolved.
            hostname: the name, which is resolved again.
            timeout: seconds.
        """
        return _Link(open_socket(hostname, address[1], self._access, timeout))

    def select(
        self, reading: list[Any], writing: list[Any], failing: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets, as `select.select` does.

        TLS may hold decrypted bytes of which the socket knows nothing. Kazoo 2.11 would wait for more of them, and
        leave the second of two answers unread until its next ping.
        """
        held = [link for link in reading if _has_bytes(link)]
        waiting = [link for link in reading if link not in held]
        parent = cast("Any", super())  # its results have no types
        readable, writable, failed = parent.select(waiting, writing, failing, 0 if held else timeout)
        return [*held, *readable], writable, failed


def _has_bytes(link: Any) -> bool:
    """Return whether a connection has decrypted bytes of TLS; kazoo also waits for sockets without TLS."""
    pending: Callable[[], int] | None = getattr(link, "pending", None)
    return pending is not None and pending() > 0
