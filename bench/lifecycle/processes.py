"""Processor time and memory of processes with all their children, from `/proc`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_EVERY = 0.2


def tree(roots: Iterable[int]) -> set[int]:
    """Return the processes `roots` and all their descendants that are alive."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            alive.add(int(entry.name))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree_pids: set[int] = set()
    waiting = [root for root in roots if root in alive]
    while waiting:
        pid = waiting.pop()
        if pid not in tree_pids:
            tree_pids.add(pid)
            waiting += children.get(pid, [])
    return tree_pids


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of `pids`, including children that ended and were waited for."""
    return sum(sum(int(ticks) for ticks in fields[11:15]) for pid in pids if (fields := _stat(pid))) / _TICKS


def rss_bytes(pids: Iterable[int]) -> int:
    """Sum of resident sets; memory that forked processes share counts once for each of them."""
    return sum(int(fields[21]) * _PAGE for pid in pids if (fields := _stat(pid)))


def pss_bytes(pid: int) -> int:
    """Return the memory of a process, with its share of shared memory; 0 if it has ended."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def program(pid: int) -> str:
    """Return the name of the program of a process; empty if it has ended."""
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/<pid>/stat` from the third (state) on; None if the process has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


class Meter:
    """Measures process trees while it is entered.

    Attributes:
        cpu_seconds: processor time of each named tree between entry and exit.
        peak_rss_bytes: of each named tree, the largest sum of resident sets in any sample.
    """

    def __init__(self, roots: dict[str, int]) -> None:
        """Start to measure. `roots`: a name for each tree, and the process id of its root."""
        self.cpu_seconds: dict[str, float] = {}
        self.peak_rss_bytes = dict.fromkeys(roots, 0)
        self._roots = roots
        self._before: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._before = self._cpu()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = self._cpu()
        self._ended.set()
        self._thread.join()
        self.cpu_seconds = {name: after[name] - self._before[name] for name in self._roots}

    def _cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(tree([root])) for name, root in self._roots.items()}

    def _sample(self) -> None:
        while True:
            for name, root in self._roots.items():
                self.peak_rss_bytes[name] = max(self.peak_rss_bytes[name], rss_bytes(tree([root])))
            if self._ended.wait(_SAMPLE_EVERY):
                return
