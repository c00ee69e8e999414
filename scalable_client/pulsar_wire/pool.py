"""Connections to brokers, one for each address; lookups of the brokers that open_unshared topics."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pulsar_wire.access import Access, Address, addresses
from pulsar_wire.connection import Connection
from pulsar_wire.errors import AlreadyClosed, ConnectionLost, HostNotAllowed, PulsarError, TimedOut, Unsupported
from pulsar_wire.lookup import Owner, find_owner


class Pool:
    """Shared connections, opened on demand and reopened when they are lost.

    Args:
        service_url: of brokers; proxies are not supported.
        access: credentials, TLS and timeouts.

    Raises:
        InvalidServiceUrl: the URL is invalid.
    """

    def __init__(self, service_url: str, access: Access) -> None:
        self.access = access
        self._service: Sequence[Address] = addresses(service_url)
        self._turn = 0
        self._lock = threading.Lock()
        self._closed = False
        self._connections: dict[Address, Connection] = {}
        # A thread that connects holds only the lock of its address: a dead broker must not hold up others.
        self._locks: dict[Address, threading.Lock] = {}

    @property
    def secure(self) -> bool:
        """True if connections use TLS."""
        return self._service[0].secure

    def to(self, address: Address) -> Connection:
        """Return the connection to a broker.

        Raises:
            PulsarError: no connection can be made.
        """
        self._check_tls(address)
        with self._lock:
            self._check()
            lock = self._locks.setdefault(address, threading.Lock())
        with lock:
            connection = self._connections.get(address)
            if connection is not None and connection.lost is None:
                return connection
            made = Connection(address, self.access)
            with self._lock:
                if not self._closed:
                    self._connections[address] = made
                    return made
        made.close()
        raise AlreadyClosed("the client is closed")

    def to_any(self) -> Connection:
        """Return a connection to any broker of the service URL, first to the one that answered last.

        Raises:
            PulsarError: no broker can be reached; the error of the first one.
        """
        failure: PulsarError | None = None
        for step in range(len(self._service)):
            turn = (self._turn + step) % len(self._service)
            try:
                connection = self.to(self._service[turn])
            except (ConnectionLost, TimedOut) as error:
                failure = failure or error
            else:
                self._turn = turn
                return connection
        raise failure or ConnectionLost("the service URL has no broker")

    def skip(self, connection: Connection) -> None:
        """Ask the next broker first from now on, unless that changed already."""
        if self._service[self._turn] == connection.address:
            self._turn = (self._turn + 1) % len(self._service)

    def open_unshared(self, url: str | None) -> Connection:
        """Return an unshared connection to the broker at a URL, or to any of the service URL.

        The caller closes it.

        Raises:
            PulsarError: the connection cannot be made.
        """
        with self._lock:
            self._check()
        address = addresses(url)[0] if url else self.to_any().address
        self._check_tls(address)
        return Connection(address, self.access)

    def to_owner(self, topic: str) -> Connection:
        """Return the connection to the broker that owns a topic; a topic without an owner gets one.

        Raises:
            PulsarError: the owner cannot be found or reached.
        """
        first = self.to_any()
        try:
            owner = find_owner(Owner(first.address), topic, self.access, lambda owner: self._reach(owner, topic))
        except (ConnectionLost, TimedOut):
            self.skip(first)
            raise
        return self._reach(owner, topic)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def _reach(self, owner: Owner, topic: str) -> Connection:
        if owner.proxy_to:
            raise Unsupported(f"{topic} is reached through a proxy, which this client does not support")
        return self.to(owner.address)

    def _check_tls(self, address: Address) -> None:
        """Check that a broker does not lead from TLS to a link without."""
        if self.secure and not address.secure:
            raise HostNotAllowed(f"{address} has no TLS, unlike the service URL; nothing was sent there")

    def _check(self) -> None:
        if self._closed:
            raise AlreadyClosed("the client is closed")
