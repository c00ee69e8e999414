"""One connection to a broker: any number of threads ask, one thread of its own reads and writes.

What is called back runs in that thread, and must not wait for the connection.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum, auto
from itertools import count
from typing import Protocol

from pulsar_scalable.errors import (
    ConnectionLost,
    ProtocolViolation,
    ScalableError,
    TimedOut,
    Unsupported,
    refused,
)
from pulsar_scalable.wire import commands, scalable
from pulsar_scalable.wire.access import Access, Address
from pulsar_scalable.wire.commands import Command
from pulsar_scalable.wire.frames import Frame, decode, encode
from pulsar_scalable.wire.sockets import Transport, connect

_logger = logging.getLogger("pulsar_scalable")
_VERSION = "pulsar-scalable-python"
# Of Pulsar 5.0.1.
_PROTOCOL = 21
_MESSAGE_SIZE = 5 << 20


class Channel(Enum):
    """Whose id a pushed command has."""

    PRODUCER = auto()
    CONSUMER = auto()
    LAYOUT = auto()
    ASSIGNMENT = auto()


class Handler(Protocol):
    """Takes what brokers push; nothing of it may wait."""

    def on_command(self, command: Command, body: bytes) -> None:
        """A command came, with a message or without."""
        ...

    def on_lost(self, connection: Connection, error: ScalableError) -> None:
        """The connection is lost; nothing more will come over it."""
        ...


class _Pending:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Command | ScalableError | None = None

    def settle(self, answer: Command | ScalableError) -> None:
        self.answer = answer
        self.done.set()


class Connection:
    """A connection that is made and greeted.

    Args:
        address: of the broker.
        access: credentials, TLS and timeouts.

    Raises:
        ConnectionLost: the broker cannot be reached.
        TimedOut: it does not answer in time.
        AuthenticationFailed: it does not take the credentials.

    Attributes:
        address: of the broker.
        largest_message: bytes that a message may have, with its metadata.
        scalable: whether the broker serves scalable topics.
        server: what the broker says of its version.
    """

    def __init__(self, address: Address, access: Access) -> None:
        self.address = address
        self.largest_message = _MESSAGE_SIZE
        self.scalable = False
        self.server = "an unknown version"
        self._access = access
        self._lock = threading.Lock()
        self._lost: ScalableError | None = None
        self._ids = count(1)
        self._requests: dict[int, _Pending] = {}
        self._handlers: dict[tuple[Channel, int], Handler] = {}
        self._greeted = _Pending()
        self._pinged = False
        self._transport = Transport(connect(address, access))
        self._thread = threading.Thread(target=self._run, name=f"pulsar-scalable {address}", daemon=True)
        self._thread.start()
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> ScalableError | None:
        """Why it is lost; None while it stands."""
        return self._lost

    def require_scalable(self) -> None:
        """Raise an error unless the broker serves scalable topics.

        Raises:
            Unsupported: it is older than Pulsar 5.0, or has them switched off.
        """
        if not self.scalable:
            raise Unsupported(
                f"{self.address} ({self.server}) does not serve scalable topics of Pulsar;"
                " they need brokers of Pulsar 5.0 with scalableTopicsEnabled=true"
            )

    def new_request(self) -> int:
        """A number for a request."""
        return next(self._ids)

    def attach(self, channel: Channel, number: int, handler: Handler) -> None:
        """Let a handler have what is pushed with an id.

        Raises:
            ConnectionLost: the connection is lost already.
        """
        with self._lock:
            self._check()
            self._handlers[channel, number] = handler

    def detach(self, channel: Channel, number: int) -> None:
        """End that."""
        with self._lock:
            self._handlers.pop((channel, number), None)

    def send(self, command: Command, body: bytes = b"") -> None:
        """Queue a command; those of one thread are sent in order.

        Raises:
            ConnectionLost: the connection is lost.
        """
        self.send_frame(encode(command, body))

    def send_frame(self, frame: bytes) -> None:
        """Queue a command that is encoded already; raises as `send`."""
        with self._lock:
            self._check()
            self._transport.queue(frame)

    def ask(self, command: Command, request: int, what: str, timeout: float | None = None) -> Command:
        """Send a request, and wait for its answer.

        Args:
            command: the request.
            request: its number, from `new_request`.
            what: is asked, for messages.
            timeout: seconds; None for the operation timeout.

        Raises:
            TimedOut: the broker does not answer in time.
            ConnectionLost: the connection is lost.
            Refused: the broker says no.
        """
        if threading.current_thread() is self._thread:
            raise ScalableError(f"{what}: a callback of a connection cannot wait for that connection")
        pending = _Pending()
        with self._lock:
            self._check()
            self._requests[request] = pending
            self._transport.queue(encode(command))
        try:
            return self._awaited(pending, what, self._access.operation_timeout if timeout is None else timeout)
        finally:
            with self._lock:
                self._requests.pop(request, None)

    def close(self) -> None:
        """End the connection, after what is queued is sent; brokers close what was opened on it."""
        self._transport.finish()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._access.connection_timeout)
        self._lose(ConnectionLost(f"the connection to {self.address} was closed"))

    # Inside ---------------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        credentials = self._access.credentials()
        greeting = commands.Connect(
            client_version=_VERSION,
            protocol_version=_PROTOCOL,
            auth_method_name="token" if credentials is not None else None,
            auth_data=credentials,
            feature_flags=commands.FeatureFlags(supports_auth_refresh=True, supports_scalable_topics=True),
        )
        self.send(greeting)
        answer = self._awaited(self._greeted, f"connecting to {self.address}", self._access.connection_timeout)
        if not isinstance(answer, commands.Connected):
            raise ProtocolViolation(f"{self.address} greets with {type(answer).__name__}")
        self.server = answer.server_version
        self.largest_message = answer.max_message_size or _MESSAGE_SIZE
        self.scalable = bool(answer.feature_flags and answer.feature_flags.supports_scalable_topics)

    def _awaited(self, pending: _Pending, what: str, timeout: float) -> Command:
        if not pending.done.wait(timeout):
            raise TimedOut(f"{what}: {self.address} did not answer for {timeout:g} s")
        answer = pending.answer
        if isinstance(answer, ScalableError):
            raise ConnectionLost(f"{what}: {answer}") from answer
        if isinstance(answer, commands.Error):
            raise refused(answer.error, answer.message, what)
        if isinstance(answer, commands.AckResponse | scalable.ScalableTopicSubscribeResponse) and (
            answer.error is not None
        ):
            raise refused(answer.error, answer.message or "", what)
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
        except OSError as error:
            self._lose(ConnectionLost(f"the connection to {self.address} broke: {error}"))
        except ScalableError as error:
            self._lose(error)
        except Exception as error:
            _logger.exception("the connection to %s is given up", self.address)
            self._lose(ConnectionLost(f"the connection to {self.address} is given up: {error}"))
        finally:
            self._lose(ConnectionLost(f"the connection to {self.address} was closed"))
            self._transport.close()

    def _keep_alive(self) -> None:
        silence = time.monotonic() - self._transport.heard
        if silence < self._access.keep_alive:
            self._pinged = False
        elif silence > 2 * self._access.keep_alive:
            raise ConnectionLost(f"{self.address} was silent for {silence:.0f} s")
        elif not self._pinged:
            self._pinged = True
            self.send(commands.Ping())

    def _take(self, data: bytes) -> None:
        frame = decode(data)
        command = frame.command
        if isinstance(command, commands.Ping):
            self.send(commands.Pong())
        elif isinstance(command, commands.AuthChallenge):
            self._answer_challenge()
        elif isinstance(command, commands.Connected):
            self._greeted.settle(command)
        elif command is not None and not isinstance(command, commands.Pong):
            self._route(frame, command)

    def _route(self, frame: Frame, command: Command) -> None:
        if not self._greeted.done.is_set() and isinstance(command, commands.Error):
            self._greeted.settle(command)
            return
        answered = _request_of(command)
        if answered is not None:
            with self._lock:
                pending = self._requests.get(answered)
            if pending is not None:
                pending.settle(command)
            return
        place = _place_of(command)
        with self._lock:
            handler = self._handlers.get(place) if place else None
        if handler is not None:
            handler.on_command(command, frame.body)

    def _answer_challenge(self) -> None:
        credentials = self._access.credentials()
        if credentials is None:
            raise Unsupported(f"{self.address} asks for credentials, and there are none")
        data = commands.AuthData(auth_method_name="token", auth_data=credentials)
        self.send(commands.AuthResponse(client_version=_VERSION, response=data, protocol_version=_PROTOCOL))

    def _lose(self, error: ScalableError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting = [*self._requests.values(), self._greeted]
            # One object may listen to several ids.
            handlers = list({id(one): one for one in self._handlers.values()}.values())
            self._handlers.clear()
        for pending in waiting:
            if not pending.done.is_set():
                pending.settle(error)
        for handler in handlers:
            try:
                handler.on_lost(self, error)
            except Exception:
                # The others have to be told as well.
                _logger.exception("the loss of %s cannot be told", self.address)


def _place_of(command: Command) -> tuple[Channel, int] | None:
    """To whom a pushed command goes."""
    if isinstance(command, commands.SendReceipt | commands.SendError | commands.CloseProducer):
        return Channel.PRODUCER, command.producer_id
    if isinstance(command, commands.Deliver | commands.ReachedEndOfTopic | commands.CloseConsumer):
        return Channel.CONSUMER, command.consumer_id
    if isinstance(command, scalable.ScalableTopicUpdate):
        return Channel.LAYOUT, command.session_id
    if isinstance(command, scalable.ScalableTopicAssignmentUpdate):
        return Channel.ASSIGNMENT, command.consumer_id
    return None


def _request_of(command: Command) -> int | None:
    """The request that a command answers; None if it answers none, or not yet."""
    if isinstance(command, commands.ProducerSuccess) and command.producer_ready is False:
        return None
    if isinstance(
        command,
        commands.Success
        | commands.Error
        | commands.ProducerSuccess
        | commands.LookupTopicResponse
        | commands.AckResponse
        | commands.GetLastMessageIdResponse
        | scalable.ScalableTopicSubscribeResponse,
    ):
        return command.request_id
    return None
