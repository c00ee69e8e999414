"""ZooKeeper's wire format (jute), as far as bulk reading, bulk writing and change feeds need it.

All functions are pure; those that read raise StoreProtocolError for a damaged answer. Paths are absolute on the server
(chroot included) and bytes. Integers are big endian; a string or buffer is its length (int32, -1 for none) and its
bytes. Every packet is an int32 length and that many bytes; a request begins with xid (int32) and opcode (int32), an
answer with xid (int32), zxid (int64) and error (int32), so that the body of an answer begins at `BODY`.

Source: zookeeper.jute of ZooKeeper 3.9 and MultiOperationRecord, MultiResponse.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from clients.errors import StoreProtocolError

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11
GET_CHILDREN2 = 12
CHECK, MULTI, MULTI_READ, AUTH, SASL, ADD_WATCH, WHO_AM_I, CLOSE = 13, 14, 22, 100, 102, 106, 107, -11

#: Xids that the protocol reserves.
XID_EVENT, XID_PING, XID_AUTH = -1, -2, -4

#: Event types of a watch.
EVENT_CREATED, EVENT_DELETED, EVENT_CHANGED = 1, 2, 3
#: Mode of `add_watch`: stays set after an event and covers all that is beneath the path.
PERSISTENT_RECURSIVE = 1

OK, RUNTIME_INCONSISTENCY, UNIMPLEMENTED, NO_NODE, NO_AUTH, BAD_VERSION = 0, -2, -6, -101, -102, -103
NODE_EXISTS, NOT_EMPTY, SESSION_EXPIRED, AUTH_FAILED = -110, -111, -112, -115

#: Offset of an answer's body.
BODY = 16
#: Size of a Stat in bytes.
STAT_SIZE = 68

_INT = struct.Struct(">i")
_REQUEST = struct.Struct(">iii")
_ANSWER = struct.Struct(">iqi")
_CONNECT = struct.Struct(">iqiqi16sb")
_CONNECTED = struct.Struct(">iiq")
_EVENT = struct.Struct(">iii")
_STAT = struct.Struct(">qqqqiiiqiiq")
_OP_HEADER = struct.Struct(">ibi")
_OP_END = _OP_HEADER.pack(-1, 1, -1)
_NO_PASSWORD = b"\0" * 16
_OPEN_ENTRY = _INT.pack(31) + _INT.pack(5) + b"world" + _INT.pack(6) + b"anyone"
#: One entry: all permissions (31) for world:anyone.
OPEN_ACL = _INT.pack(1) + _OPEN_ENTRY
_PERSISTENT = _INT.pack(0)


class Answer(NamedTuple):
    """One packet from the server; `frame` holds the header too, the body begins at `BODY`."""

    xid: int
    zxid: int
    error: int
    frame: bytes


class Stat(NamedTuple):
    """A znode's statistics in the server's order; times in milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


@contextlib.contextmanager
def well_formed() -> Generator[None]:
    """Raise StoreProtocolError for an answer that ends before what it should hold; also a decorator."""
    try:
        yield
    except struct.error as error:
        raise StoreProtocolError(f"an answer of ZooKeeper is damaged: {error}") from error


def packet(xid: int, op: int, body: bytes) -> bytes:
    """Return a whole request with its length."""
    return _REQUEST.pack(len(body) + 8, xid, op) + body


def buffer(data: bytes) -> bytes:
    """Return a string or buffer with its length."""
    return _INT.pack(len(data)) + data


def connect_packet(session_timeout_ms: int) -> bytes:
    """Return the first packet of a connection: asks for a new session that may not be read-only."""
    return buffer(_CONNECT.pack(0, 0, session_timeout_ms, 0, 16, _NO_PASSWORD, 0))


@well_formed()
def read_connected(frame: bytes) -> tuple[int, int]:
    """Return negotiated session timeout in ms (0: session refused) and session id."""
    _, timeout_ms, session_id = _CONNECTED.unpack_from(frame)
    return timeout_ms, session_id


def auth_packet(scheme: str, credential: bytes) -> bytes:
    """Build the packet that adds a credential to the session."""
    return packet(XID_AUTH, AUTH, _INT.pack(0) + buffer(scheme.encode()) + buffer(credential))


@well_formed()
def read_answer(frame: bytes) -> Answer:
    """Split off the header of an answer."""
    xid, zxid, error = _ANSWER.unpack_from(frame)
    return Answer(xid, zxid, error, frame)


def watched_path(path: bytes) -> bytes:
    """Return body of getData, exists, getChildren and getChildren2, without a watch."""
    return buffer(path) + b"\0"


@well_formed()
def is_open_acl(frame: bytes) -> bool:
    """Return whether the answer to a getACL gives everyone all permissions."""
    if frame.startswith(OPEN_ACL, BODY):
        return True
    count, offset = _INT.unpack_from(frame, BODY)[0], BODY + 4
    for _ in range(count):
        end = offset + 4
        for _ in range(2):  # scheme and id
            end += 4 + max(0, _INT.unpack_from(frame, end)[0])
        if frame[offset:end] == _OPEN_ENTRY:
            return True
        offset = end
    return False


def add_watch(path: bytes, mode: int) -> bytes:
    """Return body of addWatch."""
    return buffer(path) + _INT.pack(mode)


@well_formed()
def read_event(frame: bytes) -> tuple[int, bytes]:
    """Return type and path of a watch's event."""
    kind, _, length = _EVENT.unpack_from(frame, BODY)
    start = BODY + _EVENT.size
    return kind, frame[start : start + length]


@well_formed()
def read_buffer(frame: bytes, offset: int) -> tuple[bytes, int]:
    """Return a string or buffer (none reads as empty) and the offset after it."""
    (length,) = _INT.unpack_from(frame, offset)
    end = offset + 4 + max(length, 0)
    return frame[offset + 4 : end], end


@well_formed()
def read_stat(frame: bytes, offset: int) -> Stat:
    """Return a Stat at this offset; it takes `STAT_SIZE` bytes."""
    return Stat._make(_STAT.unpack_from(frame, offset))


@well_formed()
def read_names(frame: bytes, offset: int) -> tuple[list[bytes], int]:
    """Return a vector of strings and the offset after it."""
    (count,) = _INT.unpack_from(frame, offset)
    offset += 4
    if count > (len(frame) - offset) // _INT.size:
        raise StoreProtocolError(f"an answer of ZooKeeper with {len(frame):,} bytes claims to hold {count:,} names")
    names: list[bytes] = []
    length_at = _INT.unpack_from
    for _ in range(count):
        start = offset + 4
        offset = start + length_at(frame, offset)[0]
        names.append(frame[start:offset])
    return names, offset


def multi_read(op: int, paths: Iterable[bytes]) -> bytes:
    """Return body of multiRead, all of one kind: GET_DATA or GET_CHILDREN."""
    header, length = _OP_HEADER.pack(op, 0, -1), _INT.pack
    parts = [piece for path in paths for piece in (header, length(len(path)), path, b"\0")]
    parts.append(_OP_END)
    return b"".join(parts)


def op_create(path: bytes, data: bytes) -> bytes:
    """Return part of a multi: create a persistent node with the open ACL."""
    return _OP_HEADER.pack(CREATE, 0, -1) + buffer(path) + buffer(data) + OPEN_ACL + _PERSISTENT


def op_set(path: bytes, data: bytes, version: int = -1) -> bytes:
    """Return part of a multi: set a node's data; version -1 means any."""
    return _OP_HEADER.pack(SET_DATA, 0, -1) + buffer(path) + buffer(data) + _INT.pack(version)


def op_delete(path: bytes, version: int = -1) -> bytes:
    """Return part of a multi: delete a node without children; version -1 means any."""
    return _OP_HEADER.pack(DELETE, 0, -1) + buffer(path) + _INT.pack(version)


def op_check(path: bytes) -> bytes:
    """Return part of a multi: the node exists."""
    return _OP_HEADER.pack(CHECK, 0, -1) + buffer(path) + _INT.pack(-1)


def created(path: bytes, acl: bytes = OPEN_ACL) -> bytes:
    """Return body of create: a persistent node without data."""
    return buffer(path) + buffer(b"") + acl + _PERSISTENT


def set_acl(path: bytes, acl: bytes) -> bytes:
    """Return body of setACL, whatever the version of the node's ACL."""
    return buffer(path) + acl + _INT.pack(-1)


def read_schemes(frame: bytes) -> list[bytes]:
    """Return the schemes of a session's identities, from the answer to whoAmI."""
    (count,) = _INT.unpack_from(frame, BODY)
    schemes: list[bytes] = []
    offset = BODY + 4
    for _ in range(count):
        scheme, offset = read_buffer(frame, offset)
        _, offset = read_buffer(frame, offset)
        schemes.append(scheme)
    return schemes


def deleted(path: bytes) -> bytes:
    """Return body of delete, whatever the node's version."""
    return buffer(path) + _INT.pack(-1)


def multi(ops: Sequence[bytes]) -> bytes:
    """Return body of a multi of these parts: all of them happen or none."""
    return b"".join((*ops, _OP_END))


@well_formed()
def read_multi_failure(frame: bytes) -> tuple[int, int]:
    """Return number of the part of a multi that failed, from 0, and its error; error 0 when all were done.

    A multi that failed answers with one error for each part: 0 for those before the culprit, its own error for that one
    and RUNTIME_INCONSISTENCY for those after it. So the first answer tells success from failure.
    """
    offset, index = BODY, 0
    while True:
        kind, done, _ = _OP_HEADER.unpack_from(frame, offset)
        if done or kind != -1:
            return index, OK
        (error,) = _INT.unpack_from(frame, offset + _OP_HEADER.size)
        if error:
            return index, error
        offset += _OP_HEADER.size + 4
        index += 1
