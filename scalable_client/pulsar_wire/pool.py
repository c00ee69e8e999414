"""Connections to brokers, one for each address, and the way to a topic's owner."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pulsar_wire.access import Access, Address, addresses
from pulsar_wire.connection import Connection
from pulsar_wire.errors import AlreadyClosed, ConnectionLost, PulsarError, TimedOut, Unsupported
from pulsar_wire.lookup import Owner, find_owner


class Pool:
    """Connections that are made when they are wanted, and made again when they are lost.

    Args:
        service_url: of brokers; proxies are not supported.
        access: credentials, TLS and timeouts.

    Raises:
        InvalidServiceUrl: the URL is not one.
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
        """Whether brokers are talked to with TLS."""
        return self._service[0].secure

    def to(self, address: Address) -> Connection:
        """Return the connection to a broker.

        Raises:
            PulsarError: there is none, and none can be made.
        """
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
        """Return a connection to any broker of the service URL; the one that answered last is asked first.

        Raises:
            PulsarError: of the first broker, where none can be reached.
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
        raise failure or ConnectionLost("the service URL names no broker")

    def skip(self, connection: Connection) -> None:
        """Ask another broker first from now on, unless that has happened already."""
        if self._service[self._turn] == connection.address:
            self._turn = (self._turn + 1) % len(self._service)

    def own(self, url: str | None) -> Connection:
        """Return a connection that is not shared, to the broker at a URL, or to any of the service URL.

        The caller closes it.

        Raises:
            PulsarError: it cannot be made.
        """
        with self._lock:
            self._check()
        address = addresses(url)[0] if url else self.to_any().address
        return Connection(address, self.access)

    def to_owner(self, topic: str) -> Connection:
        """Return the connection to the broker that owns a topic; a topic without an owner gets one.

        Raises:
            PulsarError: it cannot be found or reached.
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
            raise Unsupported(f"{topic} is behind a proxy, which this client does not support")
        return self.to(owner.address)

    def _check(self) -> None:
        if self._closed:
            raise AlreadyClosed("the client is closed")
