"""One connection to a broker.

A connection with a thread of its own can be used by any number of threads: the connection's thread reads and writes
for them. Callbacks run in that thread, and must not wait for the connection.

A connection without a thread is for one thread, which reads and writes in `ask` and in `poll`; callbacks run there.
Between its calls nothing is read and no keep-alive is answered: a caller that hangs loses its connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from itertools import count
from typing import Protocol, TypeVar, cast

from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access, Address
from pulsar_wire.errors import (
    ConnectionLost,
    ProtocolViolation,
    PulsarError,
    TimedOut,
    Unsupported,
    refused,
)
from pulsar_wire.frames import Command, Frame, decode, encode
from pulsar_wire.transport import Transport, connect

_logger = logging.getLogger("pulsar_wire")
_MESSAGE_SIZE = 5 << 20
_INTERVALS = 10
"""Intervals of a wait."""
_FREEZE = 0.1
"""Seconds by which an interval is too long only if the process was frozen."""

AnswerT = TypeVar("AnswerT", bound=Command)


class Request(Protocol):
    """A command that brokers answer."""

    request_id: int


class Channel(Enum):
    """Kind of the id that a pushed command carries."""

    PRODUCER = auto()
    CONSUMER = auto()
    LAYOUT = auto()
    ASSIGNMENT = auto()


class Handler(Protocol):
    """Receiver of commands that brokers push. Its methods must not block."""

    def on_command(self, command: Command, body: bytes) -> None:
        """Handle a pushed command and its message, which may be empty."""
        ...

    def on_lost(self, connection: Connection, error: PulsarError) -> None:
        """Handle the loss of the connection; nothing more will arrive on it."""
        ...


class _Pending:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Command | PulsarError | None = None

    def set_result(self, answer: Command | PulsarError) -> None:
        self.answer = answer
        self.done.set()


def wait_until(is_done: Callable[[], object], wait: Callable[[float], object], timeout: float) -> bool:
    """Wait until something is done; return False if that takes too long.

    Time in which this process was frozen does not count: it could neither send what was queued nor read what arrived.

    Args:
        is_done: whether to end.
        wait: waits for something to happen, for the seconds that it gets at most.
        timeout: seconds in which the process runs.
    """
    waited, interval, overran = 0.0, timeout / _INTERVALS, False
    while not is_done():
        if waited >= timeout and not overran:
            return False
        begun = time.monotonic()
        wait(interval)
        seconds = time.monotonic() - begun
        # After a freeze at the end of the time again: what arrived in it has not been read.
        overran = waited < timeout and seconds > interval + _FREEZE
        waited += min(seconds, interval)
    return True


class Connection:
    """An open connection; the handshake is done.

    Args:
        address: the broker's or the proxy's.
        access: credentials, TLS and timeouts.
        proxy_to: URL of the broker that the proxy must connect to; empty without a proxy.
        own_thread: whether the connection starts a thread that reads and writes.

    Raises:
        ConnectionLost: the broker cannot be reached.
        TimedOut: the broker does not answer in time.
        AuthenticationFailed: the broker does not accept the credentials.
        HostNotAllowed: the token must not be sent there.

    Attributes:
        address: address of the other side.
        broker: URL of the broker, also if a proxy is in between.
        largest_message: bytes that a message with its metadata may have.
        scalable: whether the broker serves scalable topics.
        server: version that the broker reports.
    """

    def __init__(self, address: Address, access: Access, *, proxy_to: str = "", own_thread: bool = True) -> None:
        self.address = address
        self.broker = proxy_to or str(address)
        self.largest_message = _MESSAGE_SIZE
        self.scalable = False
        self.server = "an unknown version"
        self._access = access
        self._lock = threading.Lock()
        self._lost: PulsarError | None = None
        self._ids = count(1)
        self._requests: dict[int, _Pending] = {}
        self._handlers: dict[tuple[Channel, int], Handler] = {}
        self._connected = _Pending()
        self._pinged_at = 0.0
        access.check_host(address.host)
        self._transport = Transport(connect(address, access))
        self._thread: threading.Thread | None = None
        if own_thread:
            self._thread = threading.Thread(target=self._run, name=f"pulsar {self.broker}", daemon=True)
            self._thread.start()
        try:
            self._shake_hands(proxy_to)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> PulsarError | None:
        """Reason why the connection is lost; None while it is open."""
        return self._lost

    def require_scalable(self) -> None:
        """Raise an error unless the broker serves scalable topics.

        Raises:
            Unsupported: the broker is older than Pulsar 5.0, or has them switched off.
        """
        if not self.scalable:
            raise Unsupported(
                f"{self.address} ({self.server}) does not serve scalable topics of Pulsar;"
                " they need brokers of Pulsar 5.0 with scalableTopicsEnabled=true"
            )

    def new_id(self) -> int:
        """Return a number that no other request of this connection has."""
        return next(self._ids)

    def attach(self, channel: Channel, number: int, handler: Handler) -> None:
        """Register a handler for the commands that are pushed with an id.

        Raises:
            ConnectionLost: the connection is lost already.
        """
        with self._lock:
            self._check()
            self._handlers[channel, number] = handler

    def detach(self, channel: Channel, number: int) -> None:
        """Remove a handler."""
        with self._lock:
            self._handlers.pop((channel, number), None)

    def send(self, command: Command, body: bytes = b"") -> None:
        """Queue a command; those of one thread are sent in order.

        Raises:
            ConnectionLost: the connection is lost.
        """
        self.send_frames(encode(command, body))

    def send_frames(self, frames: bytes) -> None:
        """Queue commands that are encoded already; raises as `send`."""
        with self._lock:
            self._check()
            self._transport.queue(frames)

    def ask(self, request: Command, what: str, expected: type[AnswerT], timeout: float | None = None) -> AnswerT:
        """Send a request and wait for its answer.

        Args:
            request: a command with a `request_id`; a missing one is set.
            what: description of the request, for errors.
            expected: the type of the answer.
            timeout: seconds; None for the operation timeout.

        Raises:
            TimedOut: the broker does not answer in time.
            ConnectionLost: the connection is lost.
            Refused: the broker rejects the request.
            ProtocolViolation: the broker answers something else.
        """
        if threading.current_thread() is self._thread:
            raise PulsarError(f"{what}: a callback of a connection cannot wait for that connection")
        numbered = cast("Request", request)
        if not request.HasField("request_id"):
            numbered.request_id = self.new_id()
        number = numbered.request_id
        pending = _Pending()
        with self._lock:
            self._check()
            self._requests[number] = pending
            self._transport.queue(encode(request))
        try:
            answer = self._wait_for(pending, what, self._access.operation_timeout if timeout is None else timeout)
        finally:
            with self._lock:
                self._requests.pop(number, None)
        if not isinstance(answer, expected):
            raise ProtocolViolation(f"{what}: {self.broker} answered with an unexpected {type(answer).__name__}")
        return answer

    def poll(self, timeout: float) -> None:
        """Write what is queued, and read what arrives; only for a connection without a thread.

        Args:
            timeout: most seconds to wait until something can be read or written.

        Raises:
            ConnectionLost: the connection is lost.
            ProtocolViolation: the broker sent what the protocol does not allow.
        """
        with self._lock:
            self._check()
        try:
            self._transport.step(timeout, self._take)
        except (PulsarError, OSError) as cause:
            error = self._reason(cause)
            self._lose(error)
            self._transport.close()
            raise error from cause

    def close(self) -> None:
        """Close the connection; brokers close what was opened on it. With a thread, queued frames are sent first."""
        if self._thread is None:
            if self._lost is None:
                self._lose(ConnectionLost(f"the connection to {self.broker} was closed"))
                self._transport.close()
            return
        self._transport.finish()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._access.connection_timeout)
        self._lose(ConnectionLost(f"the connection to {self.broker} was closed"))

    def _shake_hands(self, proxy_to: str) -> None:
        access = self._access
        method, data = access.credentials() or (None, None)
        connect = api.CommandConnect(
            client_version=access.client_version,
            protocol_version=access.protocol_version,
            auth_method_name=method,
            auth_data=data or None,
            # A proxy takes host and port alone.
            proxy_to_broker_url=proxy_to.partition("://")[2] or None,
            feature_flags=api.FeatureFlags(
                supports_auth_refresh=True, supports_scalable_topics=access.scalable_topics or None
            ),
        )
        self.send(connect)
        answer = self._wait_for(self._connected, f"connecting to {self.broker}", access.connection_timeout)
        if not isinstance(answer, api.CommandConnected):
            raise ProtocolViolation(f"{self.broker} answered the handshake with an unexpected {type(answer).__name__}")
        self.server = answer.server_version
        self.largest_message = answer.max_message_size or _MESSAGE_SIZE
        self._transport.allow(self.largest_message)
        self.scalable = answer.feature_flags.supports_scalable_topics

    def _wait_for(self, pending: _Pending, what: str, timeout: float) -> Command:
        wait = self.poll if self._thread is None else pending.done.wait
        if not wait_until(pending.done.is_set, wait, timeout):
            raise TimedOut(f"{what}: {self.broker} did not answer for {timeout:g} s")
        answer = pending.answer
        if isinstance(answer, PulsarError):
            raise ConnectionLost(f"{what}: {answer}") from answer
        if isinstance(answer, api.CommandError):
            raise refused(answer.error, answer.message, what)
        if isinstance(answer, api.CommandAckResponse | api.CommandScalableTopicSubscribeResponse) and answer.HasField(
            "error"
        ):
            raise refused(answer.error, answer.message, what)
        if answer is None:
            raise ProtocolViolation(f"{what}: no answer")
        return answer

    def _check(self) -> None:
        if self._lost is not None:
            raise ConnectionLost(str(self._lost)) from self._lost

    def _run(self) -> None:
        try:
            while self._transport.step(self._access.keep_alive / 2, self._take):
                self._keep_alive()
        except (PulsarError, OSError) as error:
            self._lose(self._reason(error))
        except Exception as error:
            _logger.exception("the connection to %s failed", self.broker)
            self._lose(ConnectionLost(f"the connection to {self.broker} failed: {error}"))
        finally:
            self._lose(ConnectionLost(f"the connection to {self.broker} was closed"))
            self._transport.close()

    def _reason(self, error: PulsarError | OSError) -> PulsarError:
        if isinstance(error, OSError):
            return ConnectionLost(f"the connection to {self.broker} is lost: {error}")
        return error if self.broker in str(error) else type(error)(f"{self.broker}: {error}")

    def _keep_alive(self) -> None:
        now, received = time.monotonic(), self._transport.last_received
        if now - received < self._access.keep_alive:
            return
        # After a time in which this process did not run, the broker must have a chance to answer.
        if self._pinged_at < received:
            self._pinged_at = now
            self.send(api.CommandPing())
        elif now - self._pinged_at > self._access.keep_alive:
            # Its answer may have arrived in that time.
            if not self._transport.step(0, self._take) or self._transport.last_received > received:
                return
            raise ConnectionLost(f"{self.broker} was silent for {now - received:.0f} s")

    def _take(self, data: bytes) -> None:
        frame = decode(data)
        command = frame.command
        if isinstance(command, api.CommandPing):
            self.send(api.CommandPong())
        elif isinstance(command, api.CommandAuthChallenge):
            self._answer_challenge()
        elif isinstance(command, api.CommandConnected):
            self._connected.set_result(command)
        elif command is not None and not isinstance(command, api.CommandPong):
            self._route(frame, command)

    def _route(self, frame: Frame, command: Command) -> None:
        if not self._connected.done.is_set() and isinstance(command, api.CommandError):
            self._connected.set_result(command)
            return
        answered = _request_of(command)
        if answered is not None:
            with self._lock:
                pending = self._requests.get(answered)
            if pending is not None:
                pending.set_result(command)
            return
        receiver = _receiver_of(command)
        with self._lock:
            handler = self._handlers.get(receiver) if receiver else None
        if handler is not None:
            handler.on_command(command, frame.body)

    def _answer_challenge(self) -> None:
        credentials = self._access.credentials()
        if credentials is None:
            raise Unsupported(f"{self.broker} requires credentials, but none are configured")
        method, data = credentials
        self.send(
            api.CommandAuthResponse(
                client_version=self._access.client_version,
                response=api.AuthData(auth_method_name=method, auth_data=data),
                protocol_version=self._access.protocol_version,
            )
        )

    def _lose(self, error: PulsarError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting = [*self._requests.values(), self._connected]
            # A handler may be registered for several ids.
            handlers = list({id(handler): handler for handler in self._handlers.values()}.values())
            self._handlers.clear()
        for pending in waiting:
            if not pending.done.is_set():
                pending.set_result(error)
        for handler in handlers:
            try:
                handler.on_lost(self, error)
            except Exception:
                # The other handlers must still be notified.
                _logger.exception("a handler failed when the connection to %s was lost", self.broker)


def _receiver_of(command: Command) -> tuple[Channel, int] | None:
    """Return the handler's key for a pushed command."""
    if isinstance(command, api.CommandSendReceipt | api.CommandSendError | api.CommandCloseProducer):
        return Channel.PRODUCER, command.producer_id
    if isinstance(command, api.CommandMessage | api.CommandReachedEndOfTopic | api.CommandCloseConsumer):
        return Channel.CONSUMER, command.consumer_id
    if isinstance(command, api.CommandTopicMigrated):
        is_producer = command.resource_type == api.CommandTopicMigrated.Producer
        return Channel.PRODUCER if is_producer else Channel.CONSUMER, command.resource_id
    if isinstance(command, api.CommandScalableTopicUpdate):
        return Channel.LAYOUT, command.session_id
    if isinstance(command, api.CommandScalableTopicAssignmentUpdate):
        return Channel.ASSIGNMENT, command.consumer_id
    return None


def _request_of(command: Command) -> int | None:
    """Return the request that a command answers; None if it does not answer one, or not yet finally."""
    if isinstance(command, api.CommandProducerSuccess) and not command.producer_ready:
        return None
    if isinstance(
        command,
        api.CommandSuccess
        | api.CommandError
        | api.CommandProducerSuccess
        | api.CommandLookupTopicResponse
        | api.CommandAckResponse
        | api.CommandGetLastMessageIdResponse
        | api.CommandScalableTopicSubscribeResponse,
    ):
        return command.request_id
    return None
