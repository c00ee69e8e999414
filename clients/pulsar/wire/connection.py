"""One thread's connection to a broker, with the errors of the stores' clients."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import Message

from clients.closeable import Closeable
from clients.errors import (
    DestinationRefused,
    NoCredentials,
    NoServer,
    RetryableError,
    StoreConflict,
    StoreContention,
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
    by_class,
)
from clients.pulsar.wire.access import WireAccess
from models.text import shown
from pulsar_wire.access import Access, Address
from pulsar_wire.connection import Channel, Connection, wait_until
from pulsar_wire.errors import ProtocolViolation, PulsarError, Refused, ServerError, TlsFailed, Unsupported
from pulsar_wire.frames import Command
from pulsar_wire.lookup import NoAddress

AnswerT = TypeVar("AnswerT", bound=Message)

_KINDS: dict[int, type[StoreError]] = {
    ServerError.AUTHENTICATION: StoreDenied,
    ServerError.AUTHORIZATION: StoreDenied,
    # Another attempt still holds it, or an application came first: the next attempt sees which.
    ServerError.CONSUMER_BUSY: StoreContention,
    ServerError.PRODUCER_BUSY: StoreContention,
    ServerError.PRODUCER_FENCED: StoreContention,
    ServerError.CHECKSUM: StoreProtocolError,
    ServerError.UNSUPPORTED_VERSION: StoreUnsupported,
    ServerError.TOPIC_NOT_FOUND: StoreNotFound,
    ServerError.SUBSCRIPTION_NOT_FOUND: StoreNotFound,
    ServerError.TERMINATED: StoreConflict,
    ServerError.INVALID_TOPIC: StoreNotFound,
    ServerError.INCOMPATIBLE_SCHEMA: StoreUnsupported,
    ServerError.NOT_ALLOWED: StoreUnsupported,
}
_CURES: dict[type[StoreError], str] = {
    StoreError: "",
    RetryableError: "",
    StoreDenied: "; give credentials that may produce and consume on this topic",
    StoreUnsupported: "; change what forbids it, or let these subscriptions wait",
}
_BY_ERROR: tuple[tuple[type[PulsarError], type[StoreError]], ...] = (
    (TlsFailed, StoreDenied),
    (ProtocolViolation, StoreProtocolError),
    (NoAddress, NoServer),
    (Unsupported, StoreUnsupported),
    (PulsarError, StoreUnreachable),
)


def refused(what: str, error: int, reason: str, server: str) -> StoreError:
    """Return the typed error of a broker's refusal; a code that is not known is worth another attempt."""
    kind = _KINDS.get(error, StoreUnreachable)
    return kind(f"{what}: {server} refuses ({shown(reason) or error}){by_class(_CURES, kind('x'))}", server=server)


@contextmanager
def store_errors(what: str, server: str) -> Generator[None]:
    """Raise what the protocol package raises as an error of the stores' clients.

    Args:
        what: is done, for messages.
        server: the broker.
    """
    try:
        yield
    except Refused as error:
        raise refused(what, error.code, error.message, server) from error
    except PulsarError as error:
        # A connection that was given up for its broker's answers is lost for that reason.
        reason = error.__cause__ if isinstance(error.__cause__, ProtocolViolation) else error
        kind = next(store for wire, store in _BY_ERROR if isinstance(reason, wire))
        raise kind(str(error), server=server) from error


class BrokerConnection(Closeable):
    """A connection for one thread, which reads and writes in its calls; see `Connection`.

    Args:
        address: of the broker, or of a proxy.
        access: timeout, TLS and credentials.
        proxy_to: URL of the broker that a proxy is to connect to; empty where there is no proxy.

    Raises:
        StoreUnreachable: it cannot be made, or nothing answers in time.
        StoreDenied: the credentials or the certificate are refused.
        DestinationRefused: the settings do not allow to send the credentials there.
    """

    def __init__(self, address: Address, access: WireAccess, *, proxy_to: str = "") -> None:
        self.server = proxy_to or str(address)
        # The address may come from a registration or from the answer to a lookup.
        if reason := access.objection(address.host, encrypted=address.secure):
            raise DestinationRefused(f"connecting to {address}: {reason}", server=self.server)
        self.access = _access(address, access)
        with store_errors("connecting", self.server):
            self.wire = Connection(address, self.access, proxy_to=proxy_to, own_thread=False)
        self._pushed: list[tuple[Command, bytes]] = []

    @property
    def largest_message(self) -> int:
        """Bytes that a message may have, with its metadata."""
        return self.wire.largest_message

    def close(self) -> None:
        """End the connection; the broker closes what was opened on it."""
        self.wire.close()

    def new_id(self, channel: Channel) -> int:
        """Return the id of a new producer or consumer; what is pushed with it is collected for `receive` and `take`."""
        number = self.wire.new_id()
        self.wire.attach(channel, number, self)
        return number

    def on_command(self, command: Command, body: bytes) -> None:
        """Collect what was pushed."""
        self._pushed.append((command, body))

    def on_lost(self, connection: Connection, error: PulsarError) -> None:
        """Ignore the loss here: the call that noticed it raises."""

    def send(self, frames: bytes) -> None:
        """Queue encoded commands, and send what the broker takes now.

        Raises:
            StoreUnreachable: the connection is lost.
        """
        with store_errors("sending", self.server):
            self.wire.send_frames(frames)
            self.wire.poll(0)

    def ask(self, request: Command, what: str, expected: type[AnswerT]) -> AnswerT:
        """Send a request, and wait for its answer.

        Args:
            request: the command; it gets a number.
            what: is done, for messages.
            expected: the type of the answer.

        Raises:
            StoreError: the broker refuses, or does not answer in time.
        """
        with store_errors(what, self.server):
            return self.wire.ask(request, what, expected)

    def receive(self, what: str) -> list[tuple[Command, bytes]]:
        """Wait until something is pushed, and return all that is there.

        Raises:
            StoreUnreachable: nothing is pushed in time.
        """
        timeout = self.access.operation_timeout
        if not wait_until(lambda: self._pushed, lambda seconds: self._poll(seconds, what), timeout):
            raise StoreUnreachable(f"{what}: {self.server} did not answer for {timeout:g} s", server=self.server)
        return self._collected()

    def take(self) -> list[tuple[Command, bytes]]:
        """Return the commands that the broker has pushed, without waiting; answer keep-alives.

        Raises:
            StoreUnreachable: the connection is lost.
        """
        self._poll(0, "receiving")
        return self._collected()

    def _poll(self, timeout: float, what: str) -> None:
        try:
            with store_errors(what, self.server):
                self.wire.poll(timeout)
        except StoreError:
            # What came before the connection was lost counts; the next call raises again.
            if not self._pushed:
                raise

    def _collected(self) -> list[tuple[Command, bytes]]:
        pushed, self._pushed = self._pushed, []
        return pushed


def _access(address: Address, access: WireAccess) -> Access:
    try:
        return access.connecting(secure=address.secure)
    except OSError as cause:
        text = f"TLS with {address} fails, because a file of the settings cannot be used: {cause}"
        raise NoCredentials(text, server=str(address)) from cause
