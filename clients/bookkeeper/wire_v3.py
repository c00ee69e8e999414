"""BookKeeper's wire protocol, version 3: protobuf messages in the same frames as version 2.

Only what comes before the first request of version 2, TLS and a login, and the space that a bookie has.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from google.protobuf.message import DecodeError

from clients.bookkeeper.bookie_protocol_pb2 import (
    AUTH,
    EBADREQ,
    EIO,
    EOK,
    EUA,
    GET_BOOKIE_INFO,
    START_TLS,
    AuthMessage,
    BKPacketHeader,
    GetBookieInfoRequest,
    OperationType,
    Request,
    Response,
    StartTLSRequest,
)
from clients.deadline import Deadline
from clients.errors import StoreDenied, StoreProtocolError, StoreUnreachable, StoreUnsupported

_LENGTH = 4
_LONGEST = 1 << 20
_TOTAL, _FREE = 1, 2
_SASL = "sasl"
"""The name of BookKeeper's plug-in for logins (SaslConstants.java)."""


class Space(NamedTuple):
    """Bytes of a bookie's ledger disks.

    Attributes:
        total: all of them.
        free: those that are free.
    """

    total: int
    free: int


def start_tls_request() -> bytes:
    """Return the frame after whose answer TLS begins."""
    return _frame(Request(header=_header(START_TLS), startTLSRequest=StartTLSRequest()))


def login_request(token: bytes) -> bytes:
    """Return the frame with a token of a login by SASL."""
    return _frame(Request(header=_header(AUTH), authRequest=AuthMessage(authPluginName=_SASL, payload=token)))


def read_login(payload: bytes, bookie: str) -> bytes | None:
    """Return the token of the answer to `login_request`; None if the bookie refuses the login.

    Raises:
        StoreError: the bookie takes no logins by SASL, or the answer has no token.
    """
    try:
        answer = read_answer(payload, bookie)
    except StoreDenied:
        return None
    if not answer.HasField("authResponse"):
        raise StoreProtocolError(f"bookie {bookie} does not answer a login", server=bookie)
    if answer.authResponse.authPluginName != _SASL:
        raise StoreUnsupported(
            f"bookie {bookie} takes no logins by SASL; set bookieAuthProviderFactoryClass there, or give no login here",
            server=bookie,
        )
    return answer.authResponse.payload


def space_request() -> bytes:
    """Return the frame that asks for a bookie's space."""
    return _frame(
        Request(header=_header(GET_BOOKIE_INFO), getBookieInfoRequest=GetBookieInfoRequest(requested=_TOTAL | _FREE))
    )


def read_space(payload: bytes, bookie: str) -> Space:
    """Read the answer to `space_request`.

    Raises:
        StoreError: the bookie refuses, or the answer has none.
    """
    answer = read_answer(payload, bookie).getBookieInfoResponse
    if not answer.HasField("totalDiskCapacity") or not answer.HasField("freeDiskSpace"):
        raise StoreProtocolError(f"bookie {bookie} does not say how much space it has", server=bookie)
    return Space(answer.totalDiskCapacity, answer.freeDiskSpace)


def read_answer(payload: bytes, bookie: str) -> Response:
    """Return an answer that grants what was asked.

    Raises:
        StoreDenied: the bookie wants other credentials, or TLS.
        StoreUnsupported: it has no TLS.
        StoreProtocolError: any other refusal, or no answer of this protocol.
    """
    try:
        answer = Response.FromString(payload)
    except DecodeError as cause:
        raise StoreProtocolError(
            f"bookie {bookie} does not speak version 3 of its protocol; check the port", server=bookie
        ) from cause
    if answer.status == EOK:
        return answer
    if answer.status == EBADREQ and answer.header.operation == START_TLS:
        raise StoreUnsupported(f"bookie {bookie} has no TLS; set it up there, or leave TLS out here", server=bookie)
    if answer.status == EIO and answer.header.operation == START_TLS:
        # It comes after the handshake, instead of the first answer.
        raise StoreDenied(
            f"bookie {bookie} refuses our certificate; set bookie_tls_certificate to one with a role that it allows",
            server=bookie,
        )
    if answer.status == EUA:
        raise StoreDenied(
            f"bookie {bookie} refuses us: set bookie_tls_ca, bookie_tls_certificate or bookie_sasl_username "
            f"(status {answer.status})",
            server=bookie,
        )
    raise StoreProtocolError(
        f"bookie {bookie} refuses the request with status {answer.status}; see its log", server=bookie
    )


def exchange(connected: socket.socket, request: bytes, bookie: str) -> bytes:
    """Send one frame on a blocking socket and wait for its answer; nothing else may be in flight.

    Raises:
        StoreUnreachable: the connection is lost, or the answer does not come in time.
    """
    try:
        deadline = Deadline(connected.gettimeout())
        connected.sendall(request)
        size = int.from_bytes(_receive(connected, _LENGTH, deadline))
        if size > _LONGEST:
            raise StoreProtocolError(
                f"bookie {bookie} does not speak BookKeeper's protocol; check the port", server=bookie
            )
        return _receive(connected, size, deadline)
    except OSError as cause:
        raise StoreUnreachable(f"bookie {bookie} does not answer: {cause or 'timed out'}", server=bookie) from cause


def _receive(connected: socket.socket, size: int, deadline: Deadline) -> bytes:
    # Byte for byte no more than the answer: TLS may start right after it.
    parts = bytearray()
    while len(parts) < size:
        deadline.check()
        received = connected.recv(size - len(parts))
        if not received:
            raise ConnectionResetError("it closed the connection")
        parts += received
    return bytes(parts)


def _header(operation: OperationType) -> BKPacketHeader:
    return BKPacketHeader(version=3, operation=operation, txnId=1)


def _frame(request: Request) -> bytes:
    payload = request.SerializeToString()
    return len(payload).to_bytes(_LENGTH) + payload
