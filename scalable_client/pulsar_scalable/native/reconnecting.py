"""What a thread keeps up through lost connections, until it is closed."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from pulsar_scalable.errors import AlreadyClosed, ScalableError, TimedOut
from pulsar_scalable.native.backoff import Backoff
from pulsar_wire.pool import Pool

_logger = logging.getLogger("pulsar_scalable")


class Reconnecting(ABC):
    """Base of what is kept up: `_serve` continues until something fails, and is called again.

    Args:
        pool: of connections.
        what: that is kept up, for messages and the thread's name.
        backoff: between two attempts.
    """

    def __init__(self, pool: Pool, what: str, backoff: Backoff) -> None:
        self._pool = pool
        self._what = what
        self._backoff = backoff
        self._closed = threading.Event()
        self._settled = threading.Event()
        self._error: ScalableError | None = None
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    @property
    def error(self) -> ScalableError | None:
        """Why it is not up at present; None while it is."""
        return self._error

    def close(self) -> None:
        """End it; a callback that runs comes to its end. Harmless when done twice."""
        self._closed.set()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._pool.access.connection_timeout)

    def _begin(self) -> None:
        """Start the thread, and wait for the first answer.

        Raises:
            ScalableError: there is none.
        """
        self._thread.start()
        self._settled.wait(self._pool.access.operation_timeout)
        if not self._has_begun:
            error = self._error or TimedOut(f"{self._what}: no answer in time")
            self.close()
            raise error

    def _run(self) -> None:
        try:
            self._go_on()
        finally:
            # Also where this thread ends by a fault: nobody is to wait for it.
            self._settled.set()

    def _go_on(self) -> None:
        while not self._closed.is_set():
            try:
                self._serve()
            except AlreadyClosed:
                break
            except ScalableError as error:
                self._error = error
                if not self._has_begun and self._is_final(error):
                    break
                _logger.log(self._level(error), "%s: %s; tried again", self._what, error)
                self._closed.wait(self._backoff.next())

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether there was a first answer."""

    @abstractmethod
    def _serve(self) -> None:
        """Take what one connection brings, until it fails, or until this is closed."""

    @abstractmethod
    def _wake(self) -> None:
        """Let `_serve` see that this is closed."""

    @abstractmethod
    def _is_final(self, error: ScalableError) -> bool:
        """Whether it is not worth another attempt before the first answer."""

    def _level(self, error: ScalableError) -> int:
        """Of the log, for a failure after which it is tried again."""
        del error
        return logging.INFO
