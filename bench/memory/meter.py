"""The memory of a worker, its Spark driver and its executors together, by step."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from bench.lifecycle.processes import program, pss_bytes, tree

_SAMPLE_EVERY = 0.2


class Usage(NamedTuple):
    """Bytes at one moment; what processes share counts once (PSS).

    Attributes:
        worker: the worker's own process.
        driver: Spark's Java machine.
        executors: Spark's Python processes.
    """

    worker: int = 0
    driver: int = 0
    executors: int = 0

    @property
    def total(self) -> int:
        """Sum of all processes."""
        return sum(self)


class MemoryMeter:
    """Finds the moment at which a worker and its children take most.

    Args:
        root: process id of the worker.
    """

    def __init__(self, root: int) -> None:
        self._root = root

    @contextmanager
    def peak(self) -> Generator[list[Usage]]:
        """Sample while what is inside runs; the list holds the largest sample afterwards."""
        peak_usage: list[Usage] = [Usage()]
        ended = threading.Event()

        def sample() -> None:
            while True:
                peak_usage[0] = max(peak_usage[0], self.now(), key=lambda usage: usage.total)
                if ended.wait(_SAMPLE_EVERY):
                    return

        thread = threading.Thread(target=sample, name="memory", daemon=True)
        thread.start()
        try:
            yield peak_usage
        finally:
            ended.set()
            thread.join()

    def now(self) -> Usage:
        """Return the current usage."""
        usage = dict.fromkeys(Usage._fields, 0)
        for pid in tree([self._root]):
            role = "worker" if pid == self._root else "driver" if program(pid) == "java" else "executors"
            usage[role] += pss_bytes(pid)
        return Usage(**usage)
