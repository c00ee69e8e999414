"""What a worker process still does of itself when a step has ended: also without Temporal, and for a bounded time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from clients.closeable import Closeable
from clients.errors import RetryableError, StoreError

_log = logging.getLogger(__name__)


class BackgroundTasks(Closeable):
    """Small pieces of work at set times, each in a thread of its own; all end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, threading.Event] = {}

    def schedule(self, name: str, pauses: Iterable[float], work: Callable[[], bool]) -> None:
        """Do the work after each pause, until it says that it is done, or fails for good.

        Where work of this name is scheduled already, nothing is.

        Args:
            name: of the work; ends it by `cancel`.
            pauses: seconds.
            work: returns whether it is done; a store that cannot be reached is asked again after the next pause.
        """
        end = threading.Event()
        with self._lock:
            if self._ends.setdefault(name, end) is not end:
                return
        thread = threading.Thread(target=self._run, args=(name, end, pauses, work), name=name, daemon=True)
        thread.start()

    def cancel(self, name: str) -> None:
        """Do not do it any more; harmless where nothing is scheduled under this name."""
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
            # Somebody else is in charge by now.
            _log.info("%s ends: %s", name, error)
            return True
