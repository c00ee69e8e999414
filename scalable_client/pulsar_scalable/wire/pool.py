"""Connections to brokers, one for each address, and the way to a topic's owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from pulsar_scalable.errors import (
    AlreadyClosed,
    ConnectionLost,
    ProtocolViolation,
    ScalableError,
    TimedOut,
    Unsupported,
    refused,
)
from pulsar_scalable.wire import commands
from pulsar_scalable.wire.access import Access, Address, addresses
from pulsar_scalable.wire.connection import Connection

_HOPS = 20


class Pool:
    """Connections that are made when they are wanted, and made again when they are lost.

    Args:
        service_url: of brokers.
        access: credentials, TLS and timeouts.

    Raises:
        Unsupported: the URL is none.
    """

    def __init__(self, service_url: str, access: Access) -> None:
        self.access = access
        self._service: Sequence[Address] = addresses(service_url)
        self._turn = 0
        self._lock = threading.Lock()
        self._closed = False
        self._connections: dict[Address, Connection] = {}
        # Whoever connects holds only the lock of its address: a dead broker must not hold up others.
        self._locks: dict[Address, threading.Lock] = {}

    @property
    def secure(self) -> bool:
        """Whether brokers are talked to with TLS."""
        return self._service[0].secure

    def to(self, address: Address) -> Connection:
        """The connection to a broker.

        Raises:
            ScalableError: there is none, and none can be made.
        """
        with self._lock:
            self._check()
            lock = self._locks.setdefault(address, threading.Lock())
        with lock:
            known = self._connections.get(address)
            if known is not None and known.lost is None:
                return known
            made = Connection(address, self.access)
            with self._lock:
                if not self._closed:
                    self._connections[address] = made
                    return made
        made.close()
        raise AlreadyClosed("the client is closed")

    def to_any(self) -> Connection:
        """A connection to any broker of the service URL; the one that answered last is asked first.

        Raises:
            ScalableError: of the first broker, where none can be reached.
        """
        failure: ScalableError | None = None
        for step in range(len(self._service)):
            turn = (self._turn + step) % len(self._service)
            try:
                found = self.to(self._service[turn])
            except (ConnectionLost, TimedOut) as error:
                failure = failure or error
            else:
                self._turn = turn
                return found
        raise failure or ConnectionLost("the service URL names no broker")

    def skip(self, connection: Connection) -> None:
        """Ask another broker first from now on, unless that has happened already."""
        if self._service[self._turn] == connection.address:
            self._turn = (self._turn + 1) % len(self._service)

    def own(self, url: str | None) -> Connection:
        """A connection that nobody shares, to the broker at a URL, or to any of the service URL; the caller closes it.

        Raises:
            ScalableError: it cannot be made.
        """
        with self._lock:
            self._check()
        address = addresses(url)[0] if url else self.to_any().address
        return Connection(address, self.access)

    def to_owner(self, topic: str) -> Connection:
        """The connection to the broker that owns a topic; a topic without an owner gets one.

        Raises:
            ScalableError: it cannot be found or reached.
        """
        first = connection = self.to_any()
        authoritative = False
        until = time.monotonic() + self.access.operation_timeout
        for _ in range(_HOPS):
            try:
                answer = self._looked_up(connection, topic, until, authoritative=authoritative)
            except (ConnectionLost, TimedOut):
                self.skip(first)
                raise
            url = answer.broker_service_url_tls if self.secure else answer.broker_service_url
            if not url:
                raise Unsupported(f"the owner of {topic} has no address {'with' if self.secure else 'without'} TLS")
            if answer.proxy_through_service_url:
                raise Unsupported(f"{topic} is behind a proxy, through which this client does not go")
            owner = addresses(url)[0]
            if answer.response == commands.LookupType.CONNECT:
                return self.to(owner)
            connection, authoritative = self.to(owner), bool(answer.authoritative)
        raise ConnectionLost(f"brokers send each other for {topic}, {_HOPS} times")

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            left = list(self._connections.values())
            self._connections.clear()
        for one in left:
            one.close()

    def _looked_up(
        self, connection: Connection, topic: str, until: float, *, authoritative: bool
    ) -> commands.LookupTopicResponse:
        what = f"looking up {topic}"
        left = until - time.monotonic()
        if left <= 0:
            raise TimedOut(f"{what}: not found within {self.access.operation_timeout:g} s")
        number = connection.new_request()
        asked = commands.LookupTopic(topic=topic, request_id=number, authoritative=authoritative)
        answer = connection.ask(asked, number, what, left)
        if not isinstance(answer, commands.LookupTopicResponse):
            raise ProtocolViolation(f"{what}: {type(answer).__name__}")
        if answer.response == commands.LookupType.FAILED:
            raise refused(answer.error or 0, answer.message or "", what)
        return answer

    def _check(self) -> None:
        if self._closed:
            raise AlreadyClosed("the client is closed")
