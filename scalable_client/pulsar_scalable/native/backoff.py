"""Pauses between attempts, and calls at regular times."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Protocol

_logger = logging.getLogger("pulsar_scalable")
_FIRST, _LONGEST = 0.1, 30.0
_TICK = 0.1


class Backoff:
    """Pauses that double, from 0.1 s to 30 s, each randomly up to a fifth shorter.

    Args:
        longest: longest pause in seconds.
    """

    def __init__(self, longest: float = _LONGEST) -> None:
        self._longest = longest
        self._pause = _FIRST

    def next(self) -> float:
        """Return the next pause in seconds."""
        pause = self._pause
        self._pause = min(self._longest, 2 * pause)
        return pause * random.uniform(0.8, 1)

    def reset(self) -> None:
        """Restart with the shortest pause."""
        self._pause = _FIRST


class Ticking(Protocol):
    """Interface of objects with work at certain times."""

    def tick(self, now: float) -> None:
        """Perform the work that is due, by the monotonic clock."""
        ...


class Ticker:
    """Calls its members ten times a second, as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: list[Ticking] = []
        self._running = False

    def add(self, member: Ticking) -> None:
        """Add a member."""
        with self._lock:
            self._members.append(member)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="pulsar-scalable ticker", daemon=True).start()

    def remove(self, member: Ticking) -> None:
        """Remove a member; removing twice is safe."""
        with self._lock:
            self._members = [other for other in self._members if other is not member]

    def _run(self) -> None:
        while True:
            time.sleep(_TICK)
            with self._lock:
                members = self._members
                if not members:
                    self._running = False
                    return
            for member in members:
                try:
                    member.tick(time.monotonic())
                except Exception:
                    # An error of one member must not stop the timeouts of the others.
                    _logger.exception("a periodic task failed")
