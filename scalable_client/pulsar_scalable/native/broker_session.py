"""Base of producers and consumers at a topic's owner: they reopen when the owner changes or the connection breaks."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod

from pulsar_scalable.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConnectionLost,
    IncompatibleSchema,
    NotAuthorized,
    ProtocolViolation,
    ScalableError,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
    Unready,
    Unsupported,
)
from pulsar_scalable.native.backoff import Backoff
from pulsar_wire.connection import Channel, Connection
from pulsar_wire.frames import Command
from pulsar_wire.pool import Pool
from pulsar_wire.pulsar_api_pb2 import CommandSuccess

_logger = logging.getLogger("pulsar_scalable")
# Errors that another attempt would not change.
_FINAL = (
    AlreadyClosed,
    AuthenticationFailed,
    IncompatibleSchema,
    NotAuthorized,
    ProtocolViolation,
    TopicNotFound,
    TopicTerminated,
    Unsupported,
)
_WORTH_WAITING = (ConnectionLost, Unready)
# Sessions that hold messages back must retry at least this often.
_LONGEST_PAUSE = 5.0


class BrokerSession(ABC):
    """A producer or consumer at the owner of its topic.

    Args:
        pool: connections to brokers.
        topic: complete name.
        channel: kind of `number`.
        number: id of the producer or consumer.
    """

    def __init__(self, pool: Pool, topic: str, channel: Channel, number: int) -> None:
        self._pool = pool
        self._topic = topic
        self._channel = channel
        self._number = number
        #: Guards all following attributes, and those of subclasses; notified of each change.
        self._changed = threading.Condition()
        self._connection: Connection | None = None
        self._last: Connection | None = None
        self._opening: Connection | None = None
        self._opening_failed = False
        self._reopening = False
        self._failure: ScalableError | None = None
        self._closed = threading.Event()

    @property
    def topic(self) -> str:
        """The segment's topic."""
        return self._topic

    @property
    def is_connected(self) -> bool:
        """True if it is open at the owner of its topic now."""
        return self._connection is not None

    @property
    def is_closed(self) -> bool:
        """True if it was closed."""
        return self._closed.is_set()

    @abstractmethod
    def _open(self, connection: Connection) -> None:
        """Ask the owner to open it."""

    @abstractmethod
    def _opened(self, connection: Connection) -> None:
        """Handle that it is open; called with the lock held, before anything else is sent."""

    @abstractmethod
    def _closing(self, request_id: int) -> Command:
        """Return the request that closes it at the owner."""

    @abstractmethod
    def _failed(self, error: ScalableError) -> None:
        """Handle that it will not be opened again; called without the lock, after `_failure` is set."""

    @abstractmethod
    def pushed(self, connection: Connection, command: Command, body: bytes) -> None:
        """Handle a command from the owner; called in the connection's thread."""

    def _begin(self) -> None:
        """Open it for the first time, within the operation timeout.

        Raises:
            ScalableError: it cannot be opened.
        """
        backoff, until = Backoff(_LONGEST_PAUSE), time.monotonic() + self._pool.access.operation_timeout
        while True:
            try:
                self._open_once()
            except _WORTH_WAITING:
                pause = backoff.next()
                if time.monotonic() + pause > until:
                    raise
                self._closed.wait(pause)
            else:
                return

    def _open_once(self) -> None:
        connection = self._pool.to_owner(self._topic)
        with self._changed:
            self._opening, self._opening_failed = connection, False
        try:
            connection.attach(self._channel, self._number, _ConnectionHandler(self, connection))
            self._open(connection)
            with self._changed:
                # The owner may have closed it again during the opening, in another thread.
                if self._opening_failed:
                    raise ConnectionLost(f"{self._topic}: {connection.address} closed it immediately")
                if self._is_over:
                    raise AlreadyClosed(f"{self._topic}: closed while it was being opened")
                self._opened(connection)
                last, self._last = self._last, connection
                self._connection, self._opening = connection, None
                self._changed.notify_all()
            if last is not None and last is not connection:
                last.detach(self._channel, self._number)
        except BaseException as error:
            with self._changed:
                self._opening = None
            self._abandon(connection, error)
            raise

    def _abandon(self, connection: Connection, error: BaseException) -> None:
        """Clean up a failed opening: a broker may still answer a request that timed out."""
        if isinstance(error, TimedOut | AlreadyClosed) and connection.lost is None:
            try:
                connection.send(self._closing(connection.new_id()))
            except ScalableError as cause:
                _logger.debug("%s: %s", self._topic, cause)
        connection.detach(self._channel, self._number)

    def detached(self, connection: Connection, reason: object, *, leave: bool = False) -> None:
        """Reopen it in a new thread; with `leave`, close it first."""
        with self._changed:
            if connection is self._opening:
                self._opening_failed = True
                return
            if connection is not self._connection:
                return
            self._connection = None
            if self._reopening or self._is_over:
                return
            self._reopening = True
        _logger.info("%s: reopening: %s", self._topic, reason)
        unclosed = connection if leave else None
        threading.Thread(target=self._reopen, args=(unclosed,), name=f"reopen {self._topic}", daemon=True).start()

    def _reopen(self, unclosed: Connection | None) -> None:
        backoff = Backoff(_LONGEST_PAUSE)
        error: ScalableError | None = None
        while not self._is_over:
            try:
                if unclosed is not None:
                    self._leave(unclosed)
                    unclosed = None
                self._open_once()
            except _FINAL as final:
                error = final
                break
            except ScalableError as cause:
                _logger.info("%s: %s; retrying", self._topic, cause)
                # Do not try again to close it at an owner that does not answer.
                unclosed = None
                self._closed.wait(backoff.next())
            except Exception as cause:
                # No other thread would report the failure to waiting callers.
                _logger.exception("%s: cannot be reopened", self._topic)
                error = ScalableError(f"{self._topic}: cannot be reopened: {cause!r}")
                break
            else:
                if self._reopened():
                    return
        with self._changed:
            self._reopening = False
        if error is not None and not self._is_over:
            self._give_up(error)

    def _reopened(self) -> bool:
        """Return whether it is still open when this thread ends; a later loss starts another thread."""
        with self._changed:
            if self._connection is None:
                return False
            self._reopening = False
            return True

    def _give_up(self, error: ScalableError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._failed(error)

    def _leave(self, connection: Connection) -> None:
        """Close it at an owner; the answer arrives after all other commands for it."""
        connection.ask(self._closing(connection.new_id()), f"closing a session of {self._topic}", CommandSuccess)

    @property
    def _is_over(self) -> bool:
        """True if it must never be opened again."""
        return self._closed.is_set() or self._failure is not None

    def _check(self) -> None:
        """Raise the error that makes further use impossible."""
        if self._closed.is_set():
            raise AlreadyClosed(f"{self._topic}: closed")
        if self._failure is not None:
            raise self._failure

    def _attached(self, what: str) -> Connection:
        """Return the connection, after waiting for it.

        Raises:
            TimedOut: it is not reopened within the operation timeout.
        """
        until = time.monotonic() + self._pool.access.operation_timeout
        with self._changed:
            while True:
                self._check()
                if self._connection is not None:
                    return self._connection
                remaining = until - time.monotonic()
                if remaining <= 0:
                    raise TimedOut(f"{what}: {self._topic} has no connection to its owner")
                self._changed.wait(remaining)

    def _finish(self) -> None:
        """Close it permanently."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._close_at_owner()

    def _close_at_owner(self) -> None:
        """Close it at its owner, if it has one; ignore errors."""
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self._leave(connection)
        except ScalableError as error:
            _logger.info("%s: closed without its owner: %s", self._topic, error)
        connection.detach(self._channel, self._number)


class _ConnectionHandler:
    """Forwards commands to a session together with their connection."""

    def __init__(self, session: BrokerSession, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    def on_command(self, command: Command, body: bytes) -> None:
        self._session.pushed(self._connection, command, body)

    def on_lost(self, connection: Connection, error: ScalableError) -> None:
        self._session.detached(connection, error)
