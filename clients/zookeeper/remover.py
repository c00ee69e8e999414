"""Deletes many znodes, each at the version that was read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from clients.closeable import Closeable
from clients.store import Guard, Seen
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.connection import Connection
from clients.zookeeper.multi import change_each
from clients.zookeeper.permit import Permit
from models.store_url import StoreUrl


class ZooKeeperRemover(Closeable):
    """Deletes znodes in bulk (`clients.store.StoreRemover`).

    Args:
        url: the servers and the chroot.
        guard: what must hold while it deletes.
        access: credentials and TLS settings.
        timeout: seconds without a byte from the server before a call fails.
    """

    def __init__(
        self, url: StoreUrl, guard: Guard, *, access: ZooKeeperAccess = ANONYMOUS, timeout: float = 30
    ) -> None:
        self.url = url
        self._access = access
        self._timeout = timeout
        self._permit = Permit(guard)
        self._link: Connection | None = None

    def remove(self, seen: Sequence[Seen]) -> int:
        """Delete these znodes, children before parents; what has another version by now, or has children, stays.

        Raises:
            StoreConflict: the guard refuses.
            StoreError: the server refuses or fails; which ones were deleted is not known.
        """
        connection = self._connection()
        levels: defaultdict[int, list[bytes]] = defaultdict(list)
        for path, version in seen:
            levels[path.count(b"/")].append(wire.op_delete(connection.absolute(path), version))
        # One level after the other: no deletion in a request then needs another one.
        return sum(
            change_each(connection, levels[depth], self._permit).count(wire.OK)
            for depth in sorted(levels, reverse=True)
        )

    def close(self) -> None:
        """Free the connection; harmless when done twice."""
        if self._link:
            self._permit.revoke(self._link)
            self._link.close()

    def _connection(self) -> Connection:
        if not self._link or not self._link.usable:
            self.close()
            self._link = Connection(self.url, access=self._access, timeout=self._timeout)
            self._permit.grant(self._link, self._link.chroot)
        return self._link
