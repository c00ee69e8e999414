"""Connections to the bookies of one cluster, by bookie id."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from functools import partial

from clients.bookie_access import BookieAccess
from clients.bookkeeper import wire_v2, wire_v3
from clients.bookkeeper.connection import BookieConnection
from clients.bookkeeper.ledgers import Bookie
from clients.bookkeeper.transport import Entrance, EventLoop, connect
from clients.bookkeeper.wire_v3 import Space
from clients.closeable import Closeable
from clients.errors import StoreError, StoreUnreachable

READ_TIMEOUT, ADD_TIMEOUT = 5.0, 30.0
QUARANTINE_SECONDS = 10.0
"""Seconds for which a bookie that failed is not asked again."""

# A bookie refuses a length as soon as it has read it.
_REFUSAL_SECONDS = 1.0
# Registrations are asked for before each round of writing, and several batches begin at the same moment.
_RESOLVE_AGAIN = 1.0


class Bookies(Closeable):
    """For one thread at a time. Connections are made when they are needed, and again after they were lost.

    Args:
        resolve: returns the registered bookies by id: `LedgerDirectory.bookies`.
        access: login and TLS settings, and the hosts that may be connected to.
        read_timeout: seconds that connecting to a bookie, and waiting for an entry, may take.
        add_timeout: seconds that a bookie may take until it answers the next add.
        loop: shared with the bookies of another cluster, so that reads there and writes here overlap.
    """

    def __init__(
        self,
        resolve: Callable[[], Mapping[str, Bookie]],
        *,
        access: BookieAccess = BookieAccess(),  # noqa: B008 - plain data that does not change
        read_timeout: float = READ_TIMEOUT,
        add_timeout: float = ADD_TIMEOUT,
        loop: EventLoop | None = None,
    ) -> None:
        self._resolve = resolve
        self._access = access
        self._entrance = Entrance(access.tls.context() if access.tls else None, access.login)
        self.read_timeout, self.add_timeout = read_timeout, add_timeout
        self._own_loop = loop is None
        self.loop = loop or EventLoop()
        self._connections: dict[str, BookieConnection] = {}
        self._quarantine: dict[str, tuple[float, str]] = {}
        self._no_writes: dict[str, float] = {}
        self._batches: dict[str, bool] = {}
        self._known: Mapping[str, Bookie] = {}
        self._resolved = float("-inf")

    def connection(self, bookie_id: str) -> BookieConnection:
        """Return the connection to a bookie.

        Raises:
            StoreUnreachable: it cannot be made, or could not a moment ago; the message begins with the bookie.
            StoreDenied: the bookie refuses TLS or the login.
        """
        connection = self._connections.get(bookie_id)
        if connection and not connection.awaiting:
            # It notices that the bookie has closed an idle connection, and may be up again.
            connection.receive()
            connection = self._connections.get(bookie_id)
        if connection is None:
            connection = self._connections[bookie_id] = self._connect(bookie_id)
        return connection

    def quarantined(self, bookie_id: str) -> str:
        """Return why a bookie is not asked for now; empty if it may be."""
        until, reason = self._quarantine.get(bookie_id, (0.0, ""))
        return reason if time.monotonic() < until else ""

    def quarantine(self, bookie_id: str, reason: str) -> None:
        """Exclude a bookie from requests for some seconds."""
        self._quarantine[bookie_id] = time.monotonic() + QUARANTINE_SECONDS, reason
        # A restarted bookie may have another address.
        self._resolved = float("-inf")

    def refuse_writes(self, bookie_id: str) -> None:
        """Exclude a bookie from the writable ones for some seconds: it has refused an entry."""
        self._no_writes[bookie_id] = time.monotonic() + QUARANTINE_SECONDS

    def writable(self) -> list[str]:
        """Return ids of the bookies that are registered as writable and have not failed a moment ago, sorted."""
        self._look_up()
        now = time.monotonic()
        return sorted(
            bookie_id
            for bookie_id, bookie in self._known.items()
            if bookie.writable and not self.quarantined(bookie_id) and self._no_writes.get(bookie_id, 0.0) <= now
        )

    def takes_requests_of(self, bookie_id: str, size: int) -> bool:
        """Return whether a bookie accepts requests of this size; only a length is sent, over a new connection.

        A bookie closes the connection when a length is above its `nettyMaxFrameSizeBytes`. One that cannot be reached
        is not known to refuse any.
        """
        try:
            host, port = self._address(bookie_id)
            with connect(host, port, self._entrance, self.read_timeout, bookie_id) as connected:
                connected.settimeout(_REFUSAL_SECONDS)
                connected.sendall(size.to_bytes(wire_v2.LENGTH))
                try:
                    return bool(connected.recv(1))
                except TimeoutError:
                    return True  # it waits for the rest
                except OSError:
                    return False
        except (OSError, StoreError):
            return True

    def reads_batches(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool:
        """Return whether a bookie knows batch reads, as BookKeeper does since 4.17; each is asked once.

        It is asked over a connection of its own: an older bookie closes the connection that a batch read comes over,
        and with it the requests of others.

        Args:
            bookie_id: the bookie.
            ledger_id: a ledger that it should have.
            entry_id: an entry of that.

        Raises:
            StoreError: as `connection`; or the bookie answers nothing.
        """
        supported = self._batches.get(bookie_id)
        if supported is None:
            supported = self._batches[bookie_id] = self._ask_for_batch(bookie_id, ledger_id, entry_id)
        return supported

    def forgive(self, bookie_id: str) -> None:
        """Ask a bookie again at once, over a new connection: the failure was not its fault."""
        if connection := self._connections.get(bookie_id):
            connection.lose("was asked for too much")
        self._quarantine.pop(bookie_id, None)

    def free_space(self, bookie_id: str) -> Space:
        """Ask a bookie how much space its disks have, over a connection of its own.

        Raises:
            StoreUnreachable: it does not answer.
            StoreError: it refuses.
        """
        host, port = self._address(bookie_id)
        try:
            with connect(host, port, self._entrance, self.read_timeout, bookie_id) as connected:
                payload = wire_v3.exchange(connected, wire_v3.space_request(), bookie_id)
        except OSError as cause:
            raise StoreUnreachable(
                f"bookie {bookie_id} at {host}:{port} cannot be reached: {cause}", server=bookie_id
            ) from cause
        return wire_v3.read_space(payload, bookie_id)

    def close(self) -> None:
        """Close every connection; requests in flight get no answer."""
        for connection in list(self._connections.values()):
            connection.lose("is not needed any more")
        self._connections.clear()
        if self._own_loop:
            self.loop.close()

    def _ask_for_batch(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool:
        batch = wire_v2.batch_request(ledger_id, entry_id, 1, 1, 1)
        code = self._code_of(bookie_id, batch, wire_v2.BATCH_READ)
        if code is None:
            # A bookie that closes the connection at every request is not an old one, and is asked again later.
            if self._code_of(bookie_id, wire_v2.read_request(ledger_id, entry_id), wire_v2.READ) is None:
                reason = "closes the connection at each request"
                self.quarantine(bookie_id, reason)
                raise StoreUnreachable(reason, server=bookie_id)
            return False  # mutant: bookie-cluster/batches-of-a-bookie-that-ends-the-connection
        return code != wire_v2.BAD_REQUEST  # mutant: bookie-cluster/batches-of-a-bookie-that-refuses-them

    def _code_of(self, bookie_id: str, request: bytes, operation: int) -> int | None:
        """Return the code that a bookie answers with over a connection of its own; None if it closes that."""
        with self._open(bookie_id) as connected:
            connected.settimeout(self.read_timeout)
            try:
                connected.sendall(request)
                answer = wire_v2.read_start(connected)
            except TimeoutError as cause:
                reason = f"did not answer within {self.read_timeout:g} s"
                self.quarantine(bookie_id, reason)
                raise StoreUnreachable(reason, server=bookie_id) from cause
            except OSError:
                return None
        if answer is None:
            return None
        header, code = answer
        return code if wire_v2.operation(header) == operation else wire_v2.BAD_REQUEST

    def _connect(self, bookie_id: str) -> BookieConnection:
        return BookieConnection(
            bookie_id,
            self._open(bookie_id),
            self.loop,
            read_timeout=self.read_timeout,
            add_timeout=self.add_timeout,
            on_lost=partial(self._lost, bookie_id),
        )

    def _open(self, bookie_id: str) -> socket.socket:
        if reason := self.quarantined(bookie_id):
            raise StoreUnreachable(f"{reason} (a moment ago)", server=bookie_id)
        host, port = self._address(bookie_id)
        try:
            return connect(host, port, self._entrance, self.read_timeout, bookie_id)
        except OSError as cause:
            reason = f"cannot be reached at {host}:{port}: {cause}"
            self.quarantine(bookie_id, reason)
            raise StoreUnreachable(reason, server=bookie_id) from cause
        except StoreError as cause:
            self.quarantine(bookie_id, str(cause))
            raise

    def _lost(self, bookie_id: str, reason: str, awaiting: bool) -> None:  # noqa: FBT001 called by position only
        self._connections.pop(bookie_id, None)
        # Bookies close idle connections normally; only one with an outstanding answer has failed.
        if awaiting:
            self.quarantine(bookie_id, reason)

    def _address(self, bookie_id: str) -> tuple[str, int]:
        # For each connection: an earlier registration may be gone, and its address may belong to another bookie.
        self._look_up()  # mutant: bookie-cluster/a-registration-counts-after-its-end
        bookie = self._known.get(bookie_id)
        if bookie is not None:
            self._access.check(bookie.host)
            return bookie.host, bookie.port
        # An id like host:port is not an address: another bookie may listen there now, which would say that it has
        # nothing of the ledger. BookKeeper's clients refuse such ids too, since 4.12 (DefaultBookieAddressResolver).
        # mutant: bookie-cluster/another-bookie-answers-for-a-lost-one
        reason = "is not registered; start it, or wait until its ledgers were replicated"
        self.quarantine(bookie_id, reason)
        raise StoreUnreachable(reason, server=bookie_id)

    def _look_up(self) -> None:
        now = time.monotonic()
        if now - self._resolved >= _RESOLVE_AGAIN:
            self._known = self._resolve()
            self._resolved = now
