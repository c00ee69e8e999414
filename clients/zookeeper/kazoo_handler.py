"""Kazoo's threads, with connections that are opened as all others of this project."""

from __future__ import annotations

import socket
import ssl
from typing import Any, cast

from kazoo.handlers.threading import SequentialThreadingHandler

from clients.zookeeper.access import ZooKeeperAccess
from clients.zookeeper.link import open_socket


class Handler(SequentialThreadingHandler):
    """Opens connections as `open_socket` does: kazoo's own ones check no host name, and never read files again.

    Args:
        access: TLS settings.
    """

    def __init__(self, access: ZooKeeperAccess) -> None:
        super().__init__()
        self._access = access

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_ours: object
    ) -> socket.socket:
        """Connect to a server; what kazoo itself would need for TLS is not looked at.

        Args:
            address: address and port to which the name was resolved.
            hostname: the name, which is resolved again.
            timeout: seconds.
        """
        return open_socket(hostname, address[1], self._access, timeout)

    def select(
        self, reading: list[Any], writing: list[Any], failing: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets, as `select.select` does.

        TLS may hold decrypted bytes of which the socket knows nothing. Kazoo 2.11 would wait for more of them, and
        leave the second of two answers unread until its next ping.
        """
        held = [link for link in reading if isinstance(link, ssl.SSLSocket) and link.pending()]
        waiting = [link for link in reading if link not in held]
        parent = cast("Any", super())  # its results have no types
        readable, writable, failed = parent.select(waiting, writing, failing, 0 if held else timeout)
        return [*held, *readable], writable, failed
