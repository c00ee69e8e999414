"""Base of sessions that a thread restores after lost connections, until they are closed."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut
from pulsar_scalable.native.backoff import Backoff
from pulsar_wire.pool import Pool

_logger = logging.getLogger("pulsar_scalable")


class Reconnecting(ABC):
    """Base of restored sessions: `_serve` runs until an error, and is then called again.

    Args:
        pool: connections to brokers.
        what: description of the session, for messages and the thread's name.
        backoff: pauses between attempts.
    """

    def __init__(self, pool: Pool, what: str, backoff: Backoff) -> None:
        self._pool = pool
        self._what = what
        self._backoff = backoff
        self._closed = threading.Event()
        self._ready = threading.Event()
        self._error: ScalableError | None = None
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    @property
    def is_closed(self) -> bool:
        """True if it was closed."""
        return self._closed.is_set()

    @property
    def error(self) -> ScalableError | None:
        """Error of the last attempt; None while the session is up."""
        return self._error

    def close(self) -> None:
        """End it; a running callback finishes first. Calling it twice is safe."""
        self._closed.set()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._pool.access.connection_timeout)

    def _begin(self) -> None:
        """Start the thread and wait for the first answer.

        Raises:
            ScalableError: no answer arrives in time, or the error is final.
        """
        self._thread.start()
        self._ready.wait(self._pool.access.operation_timeout)
        if not self._has_begun:
            error = self._error or TimedOut(f"{self._what}: no answer in time")
            self.close()
            raise error

    def _run(self) -> None:
        try:
            self._serve_until_closed()
        finally:
            # Also if this thread fails: no caller must wait for it any more.
            self._ready.set()

    def _serve_until_closed(self) -> None:
        while not self._closed.is_set():
            try:
                self._serve()
            except AlreadyClosed:
                break
            except ScalableError as error:
                self._error = error
                if not self._has_begun and self._is_final(error):
                    break
                _logger.log(self._level(error), "%s: %s; retrying", self._what, error)
                self._closed.wait(self._backoff.next())

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """True if there was a first answer."""

    @abstractmethod
    def _serve(self) -> None:
        """Handle the events of one connection, until it fails or this is closed."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake `_serve` so that it sees that this is closed."""

    @abstractmethod
    def _is_final(self, error: ScalableError) -> bool:
        """Return whether an error before the first answer is final."""

    def _level(self, error: ScalableError) -> int:
        """Return the log level for a failure that is retried."""
        del error
        return logging.INFO
