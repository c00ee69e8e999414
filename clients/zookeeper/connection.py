"""One session with a ZooKeeper server over a blocking socket, with requests pipelined.

Field libraries do one request a time slice; bulk work needs many nodes in one request and many requests in flight.
"""

from __future__ import annotations

import contextlib
import random
import time
from io import BufferedReader
from typing import NoReturn

from clients.closeable import Closeable
from clients.deadline import Deadline
from clients.errors import (
    DestinationRefused,
    NoCredentials,
    NoServer,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.reach import explained, is_permanent, split_host
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, SASL_HOST, ZooKeeperAccess
from clients.zookeeper.acl import OWN_ACL
from clients.zookeeper.link import Stream, open_socket, why_refused
from clients.zookeeper.sessions import register
from models.store_url import StoreUrl

# A greeting has 36 or 37 bytes; a length far from that comes from another protocol on the port.
_GREETING_SIZES = range(36, 256)
# The names of ten million children have about 400 MB. A forged length must not reserve more.
_PACKET_SIZES = range(wire.BODY, 512 << 20)
_PIECE = 4 << 20
_MEANINGS: dict[int, tuple[type[StoreError], str]] = {
    -4: (StoreUnreachable, "the server lost its connection to the ensemble; try again"),
    wire.UNIMPLEMENTED: (StoreUnsupported, "the server does not know this request; use ZooKeeper 3.6 or newer"),
    -7: (StoreUnreachable, "the server's ensemble did not answer in time; try again"),
    wire.NO_NODE: (StoreConflict, "no such node"),
    wire.NO_AUTH: (StoreDenied, "the node's ACL refuses it; give credentials that may"),
    wire.BAD_VERSION: (StoreConflict, "the node has another version by now"),
    wire.NODE_EXISTS: (StoreConflict, "the node exists already"),
    wire.NOT_EMPTY: (StoreConflict, "the node has children"),
    wire.SESSION_EXPIRED: (StoreUnreachable, "the session has expired; connect again"),
    wire.AUTH_FAILED: (StoreDenied, "the server refuses the credentials or does not know their scheme"),
    -118: (StoreUnreachable, "the session has moved to another server; connect again"),
    -124: (StoreDenied, "the server takes only sessions with a login; set zookeeper_sasl_username and its password"),
    -127: (StoreUnreachable, "the server is throttled; try again later"),
}


def error_for(code: int, doing: str, *, server: str = "", path: bytes = b"") -> StoreError:
    """Return the typed error of a server's error code; `doing` says what was tried, on which node."""
    kind, meaning = _MEANINGS.get(code, (StoreProtocolError, "unexpected answer; see the server's log"))
    return kind(f"{doing}: {meaning} (ZooKeeper error {code})", server=server, path=path)


class Connection(Closeable):
    """A session of its own; for one thread at a time. It dies with its connection, and connecting again is a new one.

    Paths are absolute on the server: `absolute` and `relative` translate from and to paths beneath the chroot.

    Args:
        url: the servers, tried in random order until one answers, and the chroot.
        access: credentials and TLS settings.
        timeout: seconds that connecting to one server, sending, and waiting for the next byte of an answer may take; a
            whole answer may take several times as long (`clients.deadline`).
        session_timeout: seconds; the server may grant another one (see the attribute).

    Attributes:
        host: the server that answered.
        session_id: id of the session.
        session_timeout: seconds granted; without a packet for so long the server ends the session.
        last_zxid: zxid of the last answer: what the server had applied by then.
        own_acl: ACL for nodes of ours; the open one if the server does not know who we are.

    Raises:
        NoServer: none of the addresses leads to a ZooKeeper.
        StoreUnreachable: no server answered.
        StoreDenied: the server refuses a credential or our certificate, or its own certificate is refused.
        NoCredentials: a file of the access cannot be read.
    """

    def __init__(
        self,
        url: StoreUrl,
        *,
        access: ZooKeeperAccess = ANONYMOUS,
        timeout: float = 10,
        session_timeout: float = 30,
    ) -> None:
        self.chroot = url.root.encode()
        self.last_zxid = 0
        self.in_flight = 0
        self._xid = 0
        self._timeout = timeout
        self._used = time.monotonic()
        self._access = access
        self._connect(url, session_timeout)

    def _connect(self, url: StoreUrl, session_timeout: float) -> None:
        causes: list[str] = []
        kinds: set[type[StoreError]] = set()
        for address in random.sample(url.hosts, len(url.hosts)):
            self.host = address
            try:
                self._open(address, session_timeout)
            except OSError as cause:
                causes.append(f"{address}: {explained(address, cause)}")
                kinds.add(NoServer if is_permanent(cause) else StoreUnreachable)
            except (NoCredentials, DestinationRefused):
                raise
            except StoreError as cause:
                causes.append(f"{address}: {cause}")
                kinds.add(NoServer if isinstance(cause, StoreProtocolError) else type(cause))
            else:
                return
        if StoreDenied in kinds and kinds <= {StoreDenied, NoServer}:
            raise StoreDenied(f"no ZooKeeper server lets us in ({'; '.join(causes)})", server=str(url))
        kind = NoServer if kinds == {NoServer} else StoreUnreachable
        raise kind(f"no ZooKeeper server answers ({'; '.join(causes)}); check host and port", server=str(url))

    def _open(self, address: str, session_timeout: float) -> None:
        try:
            self._greet(address, session_timeout)
        except (OSError, StoreUnreachable, StoreProtocolError) as error:
            raise why_refused(address, self._access, error, self._timeout) from error
        try:
            self._log_in()
            self._add_credentials()
            self.own_acl = OWN_ACL if self._is_known() else wire.OPEN_ACL
        except BaseException:
            self.close()
            raise
        register(self)

    def _greet(self, address: str, session_timeout: float) -> None:
        self._link = Stream(open_socket(*split_host(address), self._access, self._timeout))
        self._stream = BufferedReader(self._link, 1 << 20)
        self._xid = self.in_flight = 0
        try:
            self._link.sendall(wire.connect_packet(int(session_timeout * 1000)))
            timeout_ms, self.session_id = wire.read_connected(
                self._next_frame(Deadline(self._timeout), _GREETING_SIZES)
            )
            if timeout_ms <= 0:
                raise StoreUnreachable("the server refused the session")
        except BaseException:
            self._link.close()
            raise
        self.session_timeout = timeout_ms / 1000

    def _log_in(self) -> None:
        if login := self._access.login:
            cure = "check its JAAS file; ZooKeeper 3.9 also needs zookeeper.fips-mode=false"
            login.log_in(SASL_HOST, self._exchange_token, self.host, cure)

    def _exchange_token(self, token: bytes) -> bytes | None:
        self.submit(wire.SASL, wire.buffer(token))
        answer = self.receive()
        return None if answer.error else wire.read_buffer(answer.frame, wire.BODY)[0]

    def _add_credentials(self) -> None:
        for scheme, credential in self._access.auth_pairs():
            self.send(wire.auth_packet(scheme, credential))
            answer = self.next_packet()
            if answer.error:
                raise error_for(
                    answer.error, f"adding a credential of scheme {scheme} at {self.host}", server=self.host
                )

    def _is_known(self) -> bool:
        """Return whether the server has an identity of ours: it may not have asked for our certificate."""
        if not self._access.has_identity:
            return False
        self.submit(wire.WHO_AM_I, b"")
        answer = self.receive()
        if answer.error == wire.UNIMPLEMENTED:  # servers before 3.7 do not know the question
            return bool(self._access.login or self._access.auth_pairs())
        if answer.error:
            raise error_for(answer.error, f"asking {self.host} for our identity", server=self.host)
        return any(scheme != b"ip" for scheme in wire.read_schemes(answer.frame))

    def absolute(self, path: bytes) -> bytes:
        """Return the path on the server of a path beneath the chroot."""
        if not self.chroot:
            return path
        return self.chroot if path == b"/" else self.chroot + path

    def relative(self, path: bytes) -> bytes:
        """Return the path beneath the chroot of a path on the server."""
        return path[len(self.chroot) :] or b"/"

    @property
    def usable(self) -> bool:
        """True if it is open with no request in flight, and was not idle so long that its session may have expired."""
        return (
            self._link.fileno() >= 0 and not self.in_flight and time.monotonic() - self._used < self.session_timeout / 3
        )

    def submit(self, op: int, body: bytes) -> int:
        """Send a request without waiting and return its xid; its answer comes in turn from `receive`."""
        self._xid = self._xid % 0x7FFFFFFF + 1
        # Counted before it is sent: where that fails, answers to earlier requests may have arrived and keep their turn.
        self.in_flight += 1
        self.send(wire.packet(self._xid, op, body))
        return self._xid

    def receive(self) -> wire.Answer:
        """Return the answer to the oldest request in flight, with its error not looked at."""
        # One for all: a server could send events without end instead of the answer.
        deadline = Deadline(self._timeout)
        answer = self.next_packet(deadline)
        while answer.xid < 0:
            answer = self.next_packet(deadline)
        self.in_flight -= 1
        expected = (self._xid - self.in_flight - 1) % 0x7FFFFFFF + 1
        # A server answers in order, so the stream is misread: continuing would give answers to the wrong requests.
        if answer.xid != expected:
            mismatch = f"{self.host} answered request {answer.xid} where {expected} was due"
            self._lost(StoreProtocolError(mismatch, server=self.host))
        return answer

    def call(self, op: int, path: bytes, body: bytes) -> wire.Answer:
        """Send one request and wait for its answer, with nothing else in flight.

        Raises:
            StoreError: the server answers with an error, or not at all; the message names the path.
        """
        self.submit(op, body)
        answer = self.receive()
        if answer.error:
            doing = f"request {op} on {path.decode(errors='replace')} at {self.host}"
            raise error_for(answer.error, doing, server=self.host, path=path)
        return answer

    def sync(self) -> int:
        """Wait until the server has caught up with its leader; return the zxid that it then has."""
        root = self.absolute(b"/")
        return self.call(wire.SYNC, root, wire.buffer(root)).zxid

    def send(self, packet: bytes) -> None:
        """Send a whole packet.

        Raises:
            StoreUnreachable: the connection is lost, or the server does not take it in time.
        """
        try:
            self._link.sendall(packet)
        except (OSError, ValueError) as cause:
            self._lost(StoreUnreachable(f"lost the connection to {self.host}: {cause}", server=self.host))

    def next_packet(self, deadline: Deadline | None = None) -> wire.Answer:
        """Receive the next packet of the server: an answer, a ping's answer or an event.

        Args:
            deadline: latest end; by default that of one answer from now on.

        Raises:
            StoreUnreachable: the connection is lost, or the server is silent for too long.
        """
        try:
            answer = wire.read_answer(self._next_frame(deadline or Deadline(self._timeout)))
        except (OSError, ValueError, StoreUnreachable) as cause:
            self._lost(StoreUnreachable(f"lost the connection to {self.host}: {cause}", server=self.host))
        self._used = time.monotonic()
        if answer.zxid > 0:
            self.last_zxid = answer.zxid
        return answer

    def _next_frame(self, deadline: Deadline, sizes: range = _PACKET_SIZES) -> bytes:
        self._link.deadline = deadline
        length = self._stream.read(4)
        if len(length) == 4:
            size = int.from_bytes(length)
            if size not in sizes:
                text = f"{self.host} does not speak ZooKeeper's protocol; is it the port of Oxia or of a bookie?"
                raise StoreProtocolError(text, server=self.host)
            frame = self._read(size)
            if len(frame) == size:
                return frame
        raise StoreUnreachable("the server closed the connection")

    def _read(self, size: int) -> bytes:
        """Return so many bytes, or fewer at the end; what is reserved follows what has come."""
        if size <= _PIECE:
            return self._stream.read(size)
        received = bytearray()
        while piece := self._stream.read(min(_PIECE, size - len(received))):
            received += piece
        return bytes(received)

    def _lost(self, error: StoreError) -> NoReturn:
        self.abandon()
        raise error

    def abandon(self) -> None:
        """Drop the connection at once; a thread that waits for a packet gets StoreUnreachable."""
        with contextlib.suppress(OSError):  # it may be gone already, which is what is wanted
            self._link.shutdown()
        self._link.close()

    def close(self) -> None:
        """End the session and free the connection; harmless when done twice."""
        with contextlib.suppress(OSError, ValueError, StoreError):  # a lost session ends by itself
            self._link.sendall(wire.packet(0, wire.CLOSE, b""))
            if not self.in_flight:
                self._next_frame(Deadline(self._timeout))
        self.abandon()
