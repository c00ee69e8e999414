"""Background tasks of a worker process, which run after their step has ended, also without Temporal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from clients.closeable import Closeable
from clients.errors import RetryableError, StoreError

_log = logging.getLogger(__name__)


class BackgroundTasks(Closeable):
    """Small tasks that run at set times, each in its own thread; all end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, threading.Event] = {}

    def schedule(self, name: str, pauses: Iterable[float], work: Callable[[], bool]) -> None:
        """Run a task after each pause, until it is done or fails finally; nothing if the name is already scheduled.

        Args:
            name: of the task, for `cancel`.
            pauses: seconds before each run.
            work: returns whether it is done; run again after the next pause if a store cannot be reached.
        """
        end = threading.Event()
        with self._lock:
            if self._ends.setdefault(name, end) is not end:
                return
        thread = threading.Thread(target=self._run, args=(name, end, pauses, work), name=name, daemon=True)
        thread.start()

    def cancel(self, name: str) -> None:
        """Cancel a task; safe if the name is not scheduled."""
        with self._lock:
            end = self._ends.pop(name, None)
        if end is not None:
            end.set()

    def close(self) -> None:
        """Cancel everything."""
        for name in list(self._ends):
            self.cancel(name)

    def _run(self, name: str, end: threading.Event, pauses: Iterable[float], work: Callable[[], bool]) -> None:
        try:
            for pause in pauses:
                if end.wait(pause) or self._done(name, work):
                    return
        finally:
            with self._lock:
                if self._ends.get(name) is end:
                    del self._ends[name]

    @staticmethod
    def _done(name: str, work: Callable[[], bool]) -> bool:
        try:
            return work()
        except RetryableError as error:
            _log.warning("%s: %s", name, error)
            return False  # mutant: shared/deadline-is-given-up-when-the-store-is-away
        except StoreError as error:
            # Another attempt or migration holds the store now.
            _log.info("%s ends: %s", name, error)
            return True
