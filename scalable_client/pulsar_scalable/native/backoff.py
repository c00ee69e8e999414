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
    """Pauses that double, from a tenth of a second to half a minute; each up to a fifth shorter by chance.

    Args:
        longest: seconds that a pause has at most.
    """

    def __init__(self, longest: float = _LONGEST) -> None:
        self._longest = longest
        self._pause = _FIRST

    def next(self) -> float:
        """Seconds of the next pause."""
        pause = self._pause
        self._pause = min(self._longest, 2 * pause)
        return pause * random.uniform(0.8, 1)

    def reset(self) -> None:
        """Begin again with the shortest."""
        self._pause = _FIRST


class Ticking(Protocol):
    """Has something to do at a certain time."""

    def tick(self, now: float) -> None:
        """Do what is due, by the monotonic clock."""
        ...


class Ticker:
    """Calls others ten times a second, as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: list[Ticking] = []
        self._running = False

    def add(self, member: Ticking) -> None:
        """Begin to call something."""
        with self._lock:
            self._members.append(member)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="pulsar-scalable ticker", daemon=True).start()

    def remove(self, member: Ticking) -> None:
        """End that; harmless when done twice."""
        with self._lock:
            self._members = [one for one in self._members if one is not member]

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
                    # One that fails must not stop the timeouts of others.
                    _logger.exception("what is due cannot be done")
