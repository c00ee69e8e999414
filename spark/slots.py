"""Scheduling of tasks on Spark's slots: urgent work always finds a slot, and no run takes all of them.

Spark never takes a slot from a running task, and a throttled task keeps its slot while it waits. So fair pools do
not help: once a copy has all slots, everything else waits for it. Therefore the driver decides before it submits a
task.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

#: Slots of a local session. An unused slot costs nothing: no Python process, and no thread, see `SparkEngine`.
LOCAL_SLOTS = 1024

# Bulk runs on one machine at full width; further ones wait, and their status says so.
_BULK_RUNS = 16
# Stopping must not wait for a slot.
_CHECK_SECONDS = 0.1


class Limits(NamedTuple):
    """Limits of how many tasks run at once.

    Attributes:
        each: tasks of one run.
        bulk: tasks of all runs together that are not urgent.
        urgent: tasks of one urgent run.
    """

    each: int
    bulk: int
    urgent: int


def local_limits(cores: int) -> Limits:
    """Return limits that give each run as many tasks as there are cores; the runs share the cores."""
    return Limits(cores, min(_BULK_RUNS * cores, LOCAL_SLOTS // 2), cores)


def cluster_limits(slots: int) -> Limits:
    """Return limits that keep an eighth of the slots, at least one, for urgent runs, and share the others.

    With three or more shared slots, no single run may take them all.
    """
    bulk = max(1, slots - max(1, slots // 8))
    spare = max(1, bulk // 8) if bulk > 2 else 0
    return Limits(bulk - spare, bulk, slots)


class SlotScheduler:
    """Scheduler of the slots of one session.

    Args:
        limits: returns the current limits; executors come and go.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._bulk: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._held: set[str] = set()

    @property
    def limits(self) -> Limits:
        """Current limits."""
        return self._limits()

    @contextmanager
    def slot(self, tag: str, stopped: threading.Event, *, urgent: bool) -> Generator[bool]:
        """Hold a slot while the block runs; yield False if the run was stopped before it got one.

        Args:
            tag: name of the runs that share the limit of one run.
            stopped: set when the run must end.
            urgent: whether clients are blocked until the run ends; it gets a slot immediately.
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

    def hold(self, tag: str) -> None:
        """Start no more tasks of the runs with this tag, until `release`; those that run end."""
        with self._changed:
            self._held.add(tag)

    def release(self, tag: str) -> None:
        """Start tasks of the runs with this tag again; harmless if they are not held."""
        with self._changed:
            self._held.discard(tag)
            self._changed.notify_all()

    def waits(self, tag: str) -> bool:
        """Return whether the runs with this tag wait for a slot and have none."""
        with self._changed:
            return self._waiting[tag] > 0 and self._bulk[tag] == 0 and tag not in self._held

    def _take(self, tag: str, stopped: threading.Event) -> bool:
        with self._changed:
            self._waiting[tag] += 1
            try:
                while not self._may_start(tag):
                    if stopped.is_set():
                        return False
                    self._changed.wait(_CHECK_SECONDS)
                self._bulk[tag] += 1
            finally:
                self._waiting -= Counter((tag,))
                self._changed.notify_all()
            return True

    def _may_start(self, tag: str) -> bool:
        if tag in self._held:
            return False
        each, bulk, _ = self._limits()
        own = self._bulk[tag]
        # The run with the fewest slots comes first.
        first = all(own <= self._bulk[other] for other in self._waiting.keys() - self._held)
        return first and own < each and self._bulk.total() < bulk
