"""Search for planted secrets where they must not be: in programs of a process, in files, in logs and histories."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self


class SecretWatch:
    """Looks again and again while a block runs; a context manager.

    Args:
        pids: returns the processes whose programs are watched; asked each time, because they may be started again.
        marks: the secrets.
        folders: where files may be left.
        every: seconds between two searches.

    Attributes:
        programs: command lines that were seen.
        found: where a secret was.
    """

    def __init__(
        self, pids: Callable[[], Iterable[int]], marks: Iterable[str], folders: Iterable[Path], *, every: float = 0.1
    ) -> None:
        self._pids, self._folders, self._every = pids, list(folders), every
        self._marks = [mark.encode() for mark in marks]
        self.programs: set[bytes] = set()
        self.found: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._search()

    def holds(self, content: bytes) -> bool:
        """Return whether a text has a secret."""
        return any(mark in content for mark in self._marks)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._search()

    def _search(self) -> None:
        for pid in (child for parent in self._pids() for child in descendants(parent)):
            # A program that starts, or has just ended, has no command for a moment.
            before = contents(Path(f"/proc/{pid}/cmdline"))
            environment = contents(Path(f"/proc/{pid}/environ"))
            command = contents(Path(f"/proc/{pid}/cmdline")) or before
            self.programs.add(command)
            if self.holds(command + environment):
                self.found.add(f"program {command[:200]!r}")
        for path in (path for folder in self._folders for path in files(folder)):
            if self.holds(contents(path)):
                self.found.add(str(path))


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes that a process started, and of theirs."""
    tasks = _entries(Path(f"/proc/{pid}/task"))
    children = [int(child) for task in tasks for child in contents(task / "children").split()]
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def _entries(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except OSError:
        return []


def files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; its parts may be deleted in the meantime, for which `Path.rglob` fails."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def contents(path: Path) -> bytes:
    """Return the content of a file; nothing if it is gone, or if it is a folder."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
