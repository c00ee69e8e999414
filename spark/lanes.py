"""Which task may start: slots are kept free for work that somebody waits for, and no run takes those of all others.

Spark takes no slot away from a task that runs, and a throttled task holds its slot while it waits. Fair pools help
nobody, therefore: once a copy has all slots, everything else waits for it. So the driver decides, before it hands a
task over.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

#: Slots of a local session. One that is not used costs nothing: no thread, and no Python process.
LOCAL_SLOTS = 1024

# Bulk runs on one machine at full width: each further one waits, and is told so.
_BULK_RUNS = 16
# Stopping must not wait for a slot.
_LOOK_SECONDS = 0.1


class Limits(NamedTuple):
    """How many tasks may run at once.

    Attributes:
        each: of one run.
        bulk: of all runs together that are not urgent.
        urgent: of one run that somebody is blocked by.
    """

    each: int
    bulk: int
    urgent: int


def local_limits(cores: int) -> Limits:
    """Each run gets as many tasks as there are cores, whatever others do: the machine shares its cores among them."""
    return Limits(cores, min(_BULK_RUNS * cores, LOCAL_SLOTS // 2), cores)


def cluster_limits(slots: int) -> Limits:
    """Slots are the executors' cores: an eighth, at least one, is kept for urgent runs, and the rest is shared.

    Of that no single run takes all, as long as there are three or more.
    """
    bulk = max(1, slots - max(1, slots // 8))
    spare = max(1, bulk // 8) if bulk > 2 else 0
    return Limits(bulk - spare, bulk, slots)


class Lanes:
    """The slots of one session.

    Args:
        limits: as they are now; executors come and go.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._bulk: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    @property
    def limits(self) -> Limits:
        """As they are now."""
        return self._limits()

    @contextmanager
    def slot(self, tag: str, stopped: threading.Event, *, urgent: bool) -> Generator[bool]:
        """Hold a slot; yields whether there is one, which is so unless the run was stopped.

        Args:
            tag: whose tasks share what one run may have.
            stopped: set when the run is to end.
            urgent: whether somebody is blocked meanwhile: the slot is there at once.
        """
        if urgent:
            yield True
            return
        taken = self._take(tag, stopped)
        try:
            yield taken
        finally:
            if taken:
                with self._changed:
                    self._bulk -= Counter((tag,))
                    self._changed.notify_all()

    def waits(self, tag: str) -> bool:
        """Whether the runs with this tag wait for a slot, and have none."""
        with self._changed:
            return self._waiting[tag] > 0 and self._bulk[tag] == 0

    def _take(self, tag: str, stopped: threading.Event) -> bool:
        with self._changed:
            self._waiting[tag] += 1
            try:
                while not self._may_start(tag):
                    if stopped.is_set():
                        return False
                    self._changed.wait(_LOOK_SECONDS)
                self._bulk[tag] += 1
            finally:
                self._waiting -= Counter((tag,))
                self._changed.notify_all()
            return True

    def _may_start(self, tag: str) -> bool:
        each, bulk, _ = self._limits()
        mine = self._bulk[tag]
        # Whoever has least comes first.
        first = all(mine <= self._bulk[other] for other in self._waiting)
        return first and mine < each and self._bulk.total() < bulk
