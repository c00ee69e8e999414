"""Work that continues next to a test or a demo, in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Self

_JOIN_LIMIT = 60.0


class BackgroundThread(ABC):
    """Works from the start of a `with` block to its end; then what went wrong in the work is raised.

    Args:
        name: of the thread.
        every: seconds between two ticks.
    """

    def __init__(self, name: str, every: float) -> None:
        self._every = every
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work_guarded, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_JOIN_LIMIT)
        # A failure of the block itself is more specific.
        if error is None and self._error is not None:
            raise self._error

    @abstractmethod
    def work(self) -> None:
        """Run the thread's work; it must return soon after the last tick."""

    @property
    def failure(self) -> BaseException | None:
        """Error that ended the work early."""
        return self._error

    @property
    def ending(self) -> bool:
        """True if the block has ended."""
        return self._end.is_set()

    def ticks(self) -> Iterator[None]:
        """Yield at the interval until the block has ended."""
        while not self._end.wait(self._every):
            yield

    def _work_guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised again at the end of the block
            self._error = error
