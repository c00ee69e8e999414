"""One connection to a broker: commands, answers and keep-alives, with a timeout on everything."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from itertools import count

from clients.closeable import Closeable
from clients.errors import StoreDenied, StoreProtocolError, StoreUnreachable
from clients.pulsar.wire.access import Address, WireAccess
from clients.pulsar.wire.errors import refused
from clients.pulsar.wire.frames import SIZE, command, decode, encode
from clients.pulsar.wire.pulsar_api_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPong,
    FeatureFlags,
)

_VERSION = "pulsar-migrate"
# The first that clients of today's brokers need not go beyond: acknowledgements are answered from 17 on.
_PROTOCOL = 19
_READ = 256 << 10
# No command and no message of a broker's is larger, whatever its limit.
_LARGEST = 64 << 20

OnFrame = Callable[[BaseCommand, bytes], None]


class Connection(Closeable):
    """A connection that is made and greeted; for one thread.

    Args:
        address: of the broker, or of a proxy.
        access: timeout, TLS and credentials.
        proxy_to: the broker that a proxy shall connect to; empty for none.

    Raises:
        StoreUnreachable: it cannot be made, or nothing answers in time.
        StoreDenied: the credentials or the certificate are refused.
    """

    def __init__(self, address: Address, access: WireAccess, *, proxy_to: str = "") -> None:
        self.server = proxy_to or str(address)
        self._access = access
        self._held = bytearray()
        self._requests = count(1)
        #: Takes what is no answer to a request: messages, receipts, and that something was closed.
        self.on_frame: OnFrame = lambda _command, _message: None
        self._socket = self._connect(address)
        try:
            self.largest_message = self._greet(proxy_to)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; the broker closes what was opened on it."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def new_id(self) -> int:
        """A number for a request, a producer or a consumer."""
        return next(self._requests)

    def send(self, sent: BaseCommand, message: bytes = b"") -> None:
        """Send a command, and a message with it.

        Raises:
            StoreUnreachable: the connection is lost, or takes nothing for too long.
        """
        self.send_parts(encode(sent, message))

    def send_parts(self, parts: list[bytes]) -> None:
        """Send frames that are encoded already; raises as `send`."""
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as cause:
            raise self._lost(cause) from cause

    def ask(self, sent: BaseCommand, request_id: int, what: str) -> BaseCommand:
        """Send a request, and wait for its answer; what else arrives goes to `on_frame`.

        Args:
            sent: the command.
            request_id: that it carries.
            what: is done, for messages.

        Raises:
            StoreError: the broker refuses, or does not answer in time.
        """
        self.send(sent)
        until = time.monotonic() + self._access.timeout
        while True:
            answer, message = self._next(until, what)
            if (kind := _answer(answer, request_id)) is None:
                self.on_frame(answer, message)
            elif kind == "error":
                raise refused(what, answer.error.error, answer.error.message, self.server)
            elif kind == "ackResponse" and answer.ackResponse.HasField("error"):
                raise refused(what, answer.ackResponse.error, answer.ackResponse.message, self.server)
            elif kind != "producer_success" or answer.producer_success.producer_ready:
                return answer

    def receive(self, what: str) -> None:
        """Wait until something arrives, and hand it to `on_frame` with all that is there.

        Raises:
            StoreUnreachable: nothing arrives in time.
        """
        frame: tuple[BaseCommand, bytes] | None = self._next(time.monotonic() + self._access.timeout, what)
        while frame is not None:
            self.on_frame(*frame)
            frame = self._there()

    def take(self) -> None:
        """Hand to `on_frame` what has arrived, without waiting; answers keep-alives."""
        while (frame := self._there()) is not None:
            self.on_frame(*frame)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _connect(self, address: Address) -> socket.socket:
        timeout = self._access.timeout
        try:
            plain = socket.create_connection((address.host, address.port), timeout=timeout)
        except OSError as cause:
            raise StoreUnreachable(f"{address} cannot be reached: {cause}", server=str(address)) from cause
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not address.secure:
                return plain
            return self._access.tls.context().wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLError as cause:
            plain.close()
            raise StoreDenied(
                f"TLS with {address} fails: {cause.reason or cause}; check the authorities and the name in its "
                "certificate",
                server=str(address),
            ) from cause
        except OSError as cause:
            plain.close()
            raise StoreUnreachable(f"TLS with {address} fails: {cause}", server=str(address)) from cause

    def _greet(self, proxy_to: str) -> int:
        access = self._access
        greeting = CommandConnect(
            client_version=_VERSION,
            protocol_version=_PROTOCOL,
            auth_method_name=access.method or None,
            auth_data=access.token.encode() if access.token else None,
            # A proxy takes host and port alone.
            proxy_to_broker_url=proxy_to.partition("://")[2] or None,
            feature_flags=FeatureFlags(supports_auth_refresh=True),
        )
        self.send(command(connect=greeting))
        until = time.monotonic() + access.timeout
        while True:
            answer, _ = self._next(until, "connecting")
            if answer.HasField("connected"):
                return answer.connected.max_message_size or 5 << 20
            if answer.HasField("error"):
                raise refused("connecting", answer.error.error, answer.error.message, self.server)

    def _next(self, until: float, what: str) -> tuple[BaseCommand, bytes]:
        """The next frame that is not a keep-alive."""
        while True:
            if (frame := self._cut()) is not None:
                return frame
            left = until - time.monotonic()
            if left <= 0 or not self._fill(left):
                raise StoreUnreachable(
                    f"{what}: {self.server} did not answer for {self._access.timeout:g} s", server=self.server
                )

    def _there(self) -> tuple[BaseCommand, bytes] | None:
        """The next frame, if it has arrived."""
        while (frame := self._cut()) is None:
            if not self._fill(0):
                return None
        return frame

    def _cut(self) -> tuple[BaseCommand, bytes] | None:
        """The next whole frame of what was received; answers keep-alives on the way."""
        while len(self._held) >= SIZE.size:
            size = SIZE.unpack_from(self._held)[0]
            if size > _LARGEST:
                raise StoreProtocolError(f"{self.server} announces a frame of {size} bytes", server=self.server)
            if len(self._held) < SIZE.size + size:
                return None
            frame = bytes(self._held[SIZE.size : SIZE.size + size])
            del self._held[: SIZE.size + size]
            found, message = decode(frame)
            if found.HasField("ping"):
                self.send(command(pong=CommandPong()))
            elif found.HasField("authChallenge"):
                self._answer_challenge()
            else:
                return found, message
        return None

    def _answer_challenge(self) -> None:
        data = AuthData(auth_method_name=self._access.method, auth_data=self._access.token.encode())
        answer = CommandAuthResponse(client_version=_VERSION, response=data, protocol_version=_PROTOCOL)
        self.send(command(authResponse=answer))

    def _fill(self, seconds: float) -> bool:
        """Receive more; whether anything arrived within these seconds."""
        try:
            pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
            if not pending and not select.select([self._socket], [], [], seconds)[0]:
                return False
            received = self._socket.recv(_READ)
        except (OSError, ValueError) as cause:
            raise self._lost(cause) from cause
        if not received:
            raise StoreUnreachable(f"{self.server} closed the connection", server=self.server)
        self._held += received
        return True

    def _lost(self, cause: Exception) -> StoreUnreachable:
        return StoreUnreachable(f"the connection to {self.server} is lost: {cause}", server=self.server)


_ANSWERS = (
    "success",
    "error",
    "producer_success",
    "lookupTopicResponse",
    "ackResponse",
    "getLastMessageIdResponse",
)


def _answer(found: BaseCommand, request_id: int) -> str | None:
    """Which kind of answer to this request a command is; None if it is none."""
    for kind in _ANSWERS:
        if found.HasField(kind):
            return kind if getattr(found, kind).request_id == request_id else None
    return None
