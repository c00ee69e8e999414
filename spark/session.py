"""A Spark session that is starting, ready or failed; callers wait for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from spark.run import RunStopped

if TYPE_CHECKING:
    from pyspark import SparkContext

# Stopping must not wait for the session's start.
_CHECK_SECONDS = 0.1


class Session:
    """Spark session that one thread starts and other threads wait for."""

    def __init__(self) -> None:
        self._decided = threading.Event()
        self._context: SparkContext | None = None
        self._error: BaseException | None = None

    @property
    def ready(self) -> bool:
        """True once `wait` answers without waiting."""
        return self._decided.is_set()

    def mark_ready(self, context: SparkContext) -> None:
        """Mark as ready."""
        self._context, self._error = context, None
        self._decided.set()

    def mark_failed(self, error: BaseException) -> None:
        """Mark as failed or ended."""
        self._context, self._error = None, error
        self._decided.set()

    def mark_restarting(self) -> None:
        """Mark as restarting."""
        self._decided.clear()

    def wait(self, stopped: threading.Event) -> SparkContext:
        """Wait for the session and return its context.

        Raises:
            RunStopped: the waiting run was stopped.
            RuntimeError: the session failed or ended.
        """
        while not self._decided.wait(_CHECK_SECONDS):
            if stopped.is_set():
                raise RunStopped
        if self._context is None:
            raise RuntimeError("there is no Spark session") from self._error
        return self._context
