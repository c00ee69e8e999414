"""BookKeeper's wire protocol, version 2: what a bookie is asked in bulk, and what it answers.

Every frame is a length (4 bytes, big-endian) and as many bytes. A request begins with a packet header, which is
version, operation and flags in 4 bytes; an answer with the same header and a code. A connection that carried a frame
of version 2 takes none of version 3 any more.

Source: BookieProtocol and BookieProtoEncoding of BookKeeper 4.18.
"""

from __future__ import annotations

import socket
import struct

from clients.errors import StoreProtocolError

ADD, READ, BATCH_READ = 1, 2, 7
FENCE, RECOVERY_ADD, HIGH_PRIORITY = 1, 2, 4
LAST_ENTRY = -1
"""Requests the last entry that a bookie has of a ledger."""

OK, NO_LEDGER, NO_ENTRY, BAD_REQUEST, IO_ERROR = 0, 1, 2, 100, 101
DENIED, FENCED, READ_ONLY, TOO_MANY = 102, 104, 105, 106
LOST = -1
"""In place of a code: the connection was lost, or the bookie did not answer in time."""

LENGTH = 4
ANSWER = struct.Struct(">IIqq")
"""After the length: packet header, code, ledger, entry."""
BATCH_ANSWER = struct.Struct(">IIqqq")
"""The same and the request's number; then each body after its length."""
ADD_ANSWER = struct.Struct(">IIIqq")
"""The whole answer to an add, with its length."""
ADD_ANSWER_SIZE, ADD_ANSWER_HEADER = ANSWER.size, 2 << 24 | ADD << 16

_START = struct.Struct(">III")
_ADD_HEAD = struct.Struct(">II")
_READ_HEAD = struct.Struct(">IIqq")
_BATCH_HEAD = struct.Struct(">IIqqqiq")
_KEY_SIZE = 20
_MEANINGS = {
    NO_LEDGER: "has nothing of the ledger",
    NO_ENTRY: "does not have the entry",
    BAD_REQUEST: "does not know such a request",
    IO_ERROR: "cannot read or write it on its disk",
    DENIED: "refuses the ledger's key, or us (bookie_tls_ca, bookie_tls_certificate, bookie_sasl_username)",
    103: "does not speak version 2 of the protocol",
    FENCED: "has fenced the ledger",
    READ_ONLY: "is read-only; its disks may be full",
    TOO_MANY: "has too much to do",
}


def meaning(code: int) -> str:
    """Return the meaning of a code, as the end of a sentence about the bookie."""
    return _MEANINGS.get(code, f"answers with the unknown code {code}")


def add_head(body_size: int, master_key: bytes, *, high_priority: bool = False) -> bytes:
    """Return the head of a request that adds a body under the ids that it carries, even to a fenced ledger.

    Args:
        body_size: bytes of the body.
        master_key: of the ledger.
        high_priority: a bookie that is read-only because its disks are full takes it all the same.
    """
    # A recovery add: a plain one is refused once a client has fenced the ledger, and a copy could never be completed.
    header = _packet_header(ADD, RECOVERY_ADD | HIGH_PRIORITY if high_priority else RECOVERY_ADD)
    return _ADD_HEAD.pack(add_size(body_size), header) + master_key


def add_size(body_size: int) -> int:
    """Return the length that a request to add a body begins with."""
    return _ADD_HEAD.size - LENGTH + _KEY_SIZE + body_size


def read_request(ledger_id: int, entry_id: int, fence_key: bytes = b"") -> bytes:
    """Ask for one entry; with the ledger's master key the bookie is fenced first."""
    size = _READ_HEAD.size - LENGTH + len(fence_key)
    return _READ_HEAD.pack(size, _packet_header(READ, FENCE if fence_key else 0), ledger_id, entry_id) + fence_key


def batch_request(ledger_id: int, first_entry: int, number: int, count: int, size: int) -> bytes:
    """Ask for consecutive entries; the answer has at least the first, and ends before one that is missing.

    Args:
        ledger_id: their ledger.
        first_entry: the first of them.
        number: the answer carries it.
        count: most entries of the answer.
        size: most bytes of the answer, except that one entry may have more.
    """
    return _BATCH_HEAD.pack(
        _BATCH_HEAD.size - LENGTH, _packet_header(BATCH_READ, 0), ledger_id, first_entry, number, count, size
    )


def operation(header: int) -> int:
    """Return the operation that an answer belongs to."""
    return header >> 16 & 0xFF


def read_start(connected: socket.socket) -> tuple[int, int] | None:
    """Wait for the start of an answer: its packet header and its code; None if the connection ends before it.

    Raises:
        OSError: the connection breaks, or nothing arrives within its timeout.
    """
    data = b""
    while len(data) < _START.size:
        received = connected.recv(_START.size - len(data))
        if not received:
            return None
        data += received
    _, header, code = _START.unpack(data)
    return header, code


def split_bodies(frame: memoryview, position: int) -> list[bytes]:
    """Return the bodies of an answer to a batch read, each of which follows its length."""
    bodies: list[bytes] = []
    end = len(frame)
    while position < end:
        start = position + LENGTH
        position = start + int.from_bytes(frame[position:start])
        bodies.append(bytes(frame[start:position]))
    if position != end:
        raise StoreProtocolError("the last entry of an answer is cut")
    return bodies


def _packet_header(operation: int, flags: int) -> int:
    return 2 << 24 | operation << 16 | flags
