"""The Spark session of a process as those see it who need it: not there yet, there, or never to come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from spark.run import RunStopped

if TYPE_CHECKING:
    from pyspark import SparkContext

# Stopping must not wait for the session's start.
_LOOK_SECONDS = 0.1


class Session:
    """One session, started in one thread and awaited in others."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._context: SparkContext | None = None
        self._error: BaseException | None = None

    @property
    def ready(self) -> bool:
        """Whether nobody must wait for it."""
        return self._told.is_set()

    def started(self, context: SparkContext) -> None:
        """It is there."""
        self._context, self._error = context, None
        self._told.set()

    def failed(self, error: BaseException) -> None:
        """It will not come, or has ended."""
        self._context, self._error = None, error
        self._told.set()

    def restarts(self) -> None:
        """It will be there again."""
        self._told.clear()

    def wait(self, stopped: threading.Event) -> SparkContext:
        """The session, as soon as it is there.

        Raises:
            RunStopped: whoever waits was stopped meanwhile.
            RuntimeError: it will not come.
        """
        while not self._told.wait(_LOOK_SECONDS):
            if stopped.is_set():
                raise RunStopped
        if self._context is None:
            raise RuntimeError("there is no Spark session") from self._error
        return self._context
