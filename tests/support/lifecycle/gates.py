"""Points at which a test holds a step of a running worker, so that something can be killed at exactly that instant.

Test and workers share a folder: a hold is a file there, which changes its name as the step goes through the gate.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import wait_for

FOLDER_VARIABLE = "FAULTY_WORKER_GATES"
"""Names the folder to the worker."""


class Edge(StrEnum):
    """Point at which a step is held: before its work, or between its effect and the report of its result."""

    BEFORE = "before"
    AFTER = "after"


class Gate(NamedTuple):
    """One edge of one step; the step's name is its activity's without the migration's."""

    step: str
    edge: Edge

    def __str__(self) -> str:
        return f"{self.step}.{self.edge}"


class Gates:
    """Gates of a folder; each hold stops one attempt of its step.

    Args:
        folder: shared with the workers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, gate: Gate, *, heartbeats: bool = True) -> None:
        """Stop the next attempt that comes to the gate; without heartbeats Temporal counts it as lost soon."""
        fresh = self.folder / f"{gate}.new"
        fresh.write_text("heartbeats" if heartbeats else "silent")
        fresh.replace(self._file(gate, "wanted"))

    def wait_reached(self, gate: Gate, limit: float = 120) -> None:
        """Wait until an attempt is held at the gate.

        Raises:
            AssertionError: none came in time.
        """
        wait_for(f"a step at {gate}", self._file(gate, "reached").exists, limit)

    def release(self, gate: Gate) -> None:
        """Release the attempt; one that has not arrived yet is not held any more."""
        self._file(gate, "wanted").unlink(missing_ok=True)
        self._file(gate, "released").touch()

    def wait_ended(self, gate: Gate, limit: float = 90) -> None:
        """Wait until the attempt that was held has ended, with a result, a failure or a cancellation.

        Raises:
            AssertionError: it did not in time.
        """
        wait_for(f"the end of the step that was held at {gate}", self._file(gate, "ended").exists, limit)

    def forget(self, gate: Gate) -> None:
        """Forget what happened at a gate, so that it can be used again."""
        for file in self.folder.glob(f"{gate}.*"):
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget all holds."""
        # A late attempt may take one of them at the same moment.
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)

    # The worker's side

    def take(self, gate: Gate) -> str | None:
        """Return how this attempt behaves while it is held, or None if it is not held. Of two attempts one is held."""
        wanted, reached = self._file(gate, "wanted"), self._file(gate, "reached")
        try:
            wanted.rename(reached)
        except FileNotFoundError:
            return None
        return reached.read_text()

    def released(self, gate: Gate) -> bool:
        """Return whether the held attempt may continue."""
        return self._file(gate, "released").exists()

    def end(self, gate: Gate) -> None:
        """Record that the held attempt has ended."""
        self._file(gate, "ended").touch()

    def _file(self, gate: Gate, state: str) -> Path:
        return self.folder / f"{gate}.{state}"
