"""Tells what changed in a ZooKeeper store without a scan: a persistent recursive watch (ZooKeeper 3.6 or newer)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from clients.closeable import Closeable
from clients.errors import StoreError, StoreUnreachable
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.connection import Connection, error_for
from models.store_url import StoreUrl

_PINGS_PER_TIMEOUT = 3


class ChangeFeed(Closeable):
    """Collects the paths of everything that is created, set or deleted beneath the store's root.

    A creation or deletion names the parent too, because its counters (pzxid, cversion) changed with it. Paths are bytes
    relative to the chroot, as in `clients.store`; the root itself and the server's `/zookeeper` are left out.

    It never reconnects: what changes while there is no session is not reported by the server. Once `gap` is set the
    feed is incomplete, and the caller must compare both stores by a scan.

    The server tells a session only of nodes that its credentials may read (ZooKeeper 3.9.2 and newer).

    Args:
        url: the servers and the chroot, which need not exist yet.
        access: credentials and TLS settings.
        timeout: seconds without a byte from the server, pings included, before the connection counts as lost.
        session_timeout: seconds; the server may grant another one.
    """

    def __init__(
        self,
        url: StoreUrl,
        *,
        access: ZooKeeperAccess = ANONYMOUS,
        timeout: float = 20,
        session_timeout: float = 30,
    ) -> None:
        self.url = url
        self._access = access
        self._timeout = timeout
        self._session_timeout = session_timeout
        self._connection: Connection | None = None
        self._threads: list[threading.Thread] = []
        self._changed: set[bytes] = set()
        self._gap: str | None = None
        self._synced = 0
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._ended = threading.Event()

    @property
    def gap(self) -> str | None:
        """Reason why changes may have been missed; None while the feed is complete. Once set it stays."""
        return self._gap

    def start(self) -> int:
        """Set the watch; return the zxid at which it was set: every change with a larger zxid is reported.

        The server has caught up with its leader before, so a client that syncs and reads later sees all others.

        Raises:
            StoreError: no server answers, or it refuses the credentials or the watch.
        """
        if self._connection:
            raise StoreUnreachable("this feed was started before; open a new one")
        connection = Connection(
            self.url, access=self._access, timeout=self._timeout, session_timeout=self._session_timeout
        )
        self._connection = connection
        connection.sync()
        root = connection.absolute(b"/")
        wanted = connection.submit(wire.ADD_WATCH, wire.add_watch(root, wire.PERSISTENT_RECURSIVE))
        answer = connection.next_packet()
        while answer.xid != wanted:  # an event may overtake the answer
            self._take(connection, answer)
            answer = connection.next_packet()
        if answer.error:
            connection.close()
            raise error_for(
                answer.error, f"watching {root.decode()} at {connection.host}", server=connection.host, path=root
            )
        self._start_thread("listen", self._listen, connection)
        self._start_thread("ping", self._ping, connection)
        return answer.zxid

    def _start_thread(self, name: str, target: Callable[[Connection], None], connection: Connection) -> None:
        thread = threading.Thread(target=target, args=(connection,), name=f"zookeeper-feed-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def drain(self, timeout: float) -> set[bytes]:
        """Remove and return the changes: all that were committed before this call, and perhaps some newer ones.

        Args:
            timeout: seconds to wait for the server to confirm that it has reported everything.

        Raises:
            StoreUnreachable: there is a gap, or no confirmation in time; nothing is handed over then.
        """
        connection = self._connection
        if connection is None:
            raise StoreUnreachable("the feed was not started")
        root = connection.absolute(b"/")
        with self._sending:
            # Events of everything before it arrive ahead of its answer (seen with 3.9.5), so no committed change is
            # left out.
            wanted = connection.submit(wire.SYNC, wire.buffer(root))
        with self._news:
            self._news.wait_for(lambda: self._gap or self._synced >= wanted, timeout)
            if self._gap:
                raise StoreUnreachable(f"changes may have been missed: {self._gap}; compare the stores by a scan")
            if self._synced < wanted:
                raise StoreUnreachable(f"{connection.host} did not confirm its changes within {timeout:g} s; try again")
            changed, self._changed = self._changed, set()
        return changed

    def close(self) -> None:
        """End the session; harmless when done twice."""
        # First of all: a caller that waits in `drain` must not take the end for a quiet source.
        self._break("the feed was closed")
        if self._connection:
            with self._sending, contextlib.suppress(StoreError):
                self._connection.send(wire.packet(0, wire.CLOSE, b""))
            for thread in self._threads:
                thread.join(1)
            self._connection.abandon()

    def _listen(self, connection: Connection) -> None:
        try:
            while not self._ended.is_set():
                self._take(connection, connection.next_packet())
        except StoreError as cause:
            self._break(str(cause))
        finally:
            self._break("the listener ended")

    def _ping(self, connection: Connection) -> None:
        interval = min(connection.session_timeout, self._timeout) / _PINGS_PER_TIMEOUT
        ping = wire.packet(wire.XID_PING, wire.PING, b"")
        try:
            while not self._ended.wait(interval):
                with self._sending:
                    connection.send(ping)
        except StoreError as cause:
            self._break(str(cause))

    def _break(self, reason: str) -> None:
        with self._news:
            # The first reason is the cause; later ones follow from it.
            self._gap = self._gap or reason
            self._ended.set()
            self._news.notify_all()

    def _take(self, connection: Connection, answer: wire.Answer) -> None:
        if answer.xid == wire.XID_EVENT:
            kind, absolute = wire.read_event(answer.frame)
            # A watch that the server removes ends without an error; changes after it would not be reported.
            if kind not in (wire.EVENT_CREATED, wire.EVENT_DELETED, wire.EVENT_CHANGED):
                self._break(f"{connection.host} ended the watch (event {kind})")
                return
            self._note(kind, connection.relative(absolute))
        elif answer.error:
            self._break(f"{connection.host} answered with error {answer.error}")
        elif answer.xid > 0:
            with self._news:
                self._synced = answer.xid
                self._news.notify_all()

    def _note(self, kind: int, path: bytes) -> None:
        if path == b"/" or (not self.url.root and (path + b"/").startswith(b"/zookeeper/")):
            return
        with self._news:
            self._changed.add(path)
            parent = path[: path.rindex(b"/")]
            if parent and kind != wire.EVENT_CHANGED:
                self._changed.add(parent)
