"""Entries of ledgers, read from bookies one connection at a time, in version 2 of their protocol."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from clients.bookie_access import BookieAccess
from clients.bookkeeper.transport import Entrance, connect
from clients.closeable import Closeable
from clients.deadline import Deadline
from clients.errors import NoCredentials, StoreError, StoreProtocolError, StoreUnreachable

_REQUEST = struct.Struct(">IIqq")
_ANSWER = struct.Struct(">IIqq")
_LENGTH = struct.Struct(">I")
_READ = 2 << 24 | 2 << 16
"""Version 2 of the protocol, operation 2, no flags."""
_OK = 0
_OF_ENTRY = {1: "does not have it", 2: "does not have it", 101: "cannot read it on its disk"}
"""Codes that concern one entry: no such ledger, no such entry, an error of the disk. Others concern the bookie."""
_LONGEST = 128 << 20


class Missing(NamedTuple):
    """An entry that a bookie does not return, and why."""

    reason: str


class BookieEntries(Closeable):
    """Reads entries from the bookies of a cluster, and cannot write.

    Args:
        addresses: returns host and port of each registered bookie, by id.
        access: login and TLS settings.
        timeout: seconds that a bookie may take for an answer.
    """

    def __init__(
        self, addresses: Callable[[], Mapping[str, tuple[str, int]]], *, access: BookieAccess, timeout: float
    ) -> None:
        self._addresses = addresses
        self._known: Mapping[str, tuple[str, int]] = {}
        self._access = access
        self._timeout = timeout
        self._links: dict[str, socket.socket] = {}

    def read(self, bookie: str, ledger_id: int, entries: Sequence[int]) -> list[bytes | Missing]:
        """Return entries of a ledger from one bookie, each as it is stored: header, digest and data.

        Raises:
            StoreUnreachable: the bookie is not registered, or does not answer.
            StoreError: it refuses.
        """
        try:
            link = self._link(bookie)
            link.sendall(b"".join(_REQUEST.pack(_REQUEST.size - 4, _READ, ledger_id, entry) for entry in entries))
            bodies: dict[int, bytes | Missing] = {}
            for _ in entries:
                entry, body = self._receive(link, bookie, ledger_id)
                bodies[entry] = body
        except OSError as error:
            self._drop(bookie)
            text = f"bookie {bookie} does not answer: {error or 'timed out'}; check that it runs"
            raise StoreUnreachable(text, server=bookie) from error
        except StoreError:
            self._drop(bookie)
            raise
        if {*bodies} != {*entries}:
            self._drop(bookie)
            raise StoreProtocolError(f"bookie {bookie} answers with other entries of ledger {ledger_id}")
        return [bodies[entry] for entry in entries]

    def close(self) -> None:
        """Close the connections; harmless when done twice."""
        for bookie in [*self._links]:
            self._drop(bookie)

    def _receive(self, link: socket.socket, bookie: str, ledger_id: int) -> tuple[int, bytes | Missing]:
        deadline = Deadline(self._timeout)
        (size,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, deadline))
        if not _ANSWER.size <= size <= _LONGEST:
            raise StoreProtocolError(f"bookie {bookie} announces an answer of {size:,} bytes", server=bookie)
        answer = _exactly(link, size, deadline)
        _, code, answered, entry = _ANSWER.unpack_from(answer)
        if answered != ledger_id:
            raise StoreProtocolError(f"bookie {bookie} answers for ledger {answered}, not {ledger_id}", server=bookie)
        if why := _OF_ENTRY.get(code):
            return entry, Missing(f"bookie {bookie} {why}")
        if code != _OK:
            raise StoreUnreachable(f"bookie {bookie} answers with code {code}; see its log", server=bookie)
        return entry, answer[_ANSWER.size :]

    def _link(self, bookie: str) -> socket.socket:
        if bookie not in self._links:
            if bookie not in self._known:
                self._known = self._addresses()
            if bookie not in self._known:
                # An id like host:port is not an address: another bookie may be there now.
                raise StoreUnreachable(f"bookie {bookie} is not registered; start it", server=bookie)
            host, port = self._known[bookie]
            self._access.check(host)
            self._links[bookie] = connect(host, port, self._entrance(), self._timeout, bookie)
        return self._links[bookie]

    def _entrance(self) -> Entrance:
        try:
            return Entrance(self._access.tls.shared_context() if self._access.tls else None, self._access.login)
        except OSError as error:
            raise NoCredentials(f"the files of bookie_tls_… cannot be used: {error}") from error

    def _drop(self, bookie: str) -> None:
        self._known = {}
        if link := self._links.pop(bookie, None):
            link.close()


def _exactly(link: socket.socket, size: int, deadline: Deadline) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        deadline.check()
        received = link.recv(min(size - len(parts), 1 << 20))
        if not received:
            raise ConnectionResetError("it closed the connection")
        parts += received
    return bytes(parts)
