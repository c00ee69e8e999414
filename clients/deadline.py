"""The longest time of a whole answer: timeouts of sockets are for its parts, and a slow server can send many parts."""

from __future__ import annotations

import time

PARTS = 20
"""A whole answer may take as long as so many timeouts. Large answers need time: 100 MB take 80 s at 10 Mbit/s."""


class Deadline:
    """The latest end of one answer.

    Args:
        timeout: seconds that one part of the answer may take; None for any number.
        parts: how many of these the whole answer may take; None for the usual number.

    Attributes:
        seconds: what the whole answer may take.
    """

    def __init__(self, timeout: float | None, parts: int | None = None) -> None:
        self.seconds = float("inf") if timeout is None else (parts or PARTS) * timeout
        self._end = time.monotonic() + self.seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def check(self) -> None:
        """Raise TimeoutError once the time is over."""
        if self.is_over:
            raise TimeoutError(f"the whole answer took longer than {self.seconds:g} s")
