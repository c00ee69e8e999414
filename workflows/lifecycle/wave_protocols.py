"""Protocols between waves and their workflow: items, child workflows, the operator, and continue-as-new."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.lifecycle.failures import FailedItem
from models.lifecycle.waves import BatchResult, Hold, Page, WaveStatus


@dataclass(frozen=True)
class ChildSpec:
    """The child workflow that migrates some items.

    Attributes:
        workflow: its type.
        input: its argument.
        summary: one line for the Web UI.
    """

    workflow: str
    input: Any
    summary: str = ""


class Children(Protocol):
    """Child workflows of a migration."""

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """Return the child workflow that migrates these items.

        It must continue the work of an earlier one: an item may get a second child by a retry, or after its parent was
        terminated and started again.
        """
        ...

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """Return the outcome of the items; `result` is the result of their child workflow, as plain JSON.

        Raises:
            ValueError: the result is invalid; all the items count as failed.
        """
        ...

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Clean up after a child workflow that was terminated or timed out, and could not clean up itself.

        Runs an activity, and must not continue as new before it. Reports failures, and does not raise.
        """
        ...


class WaveSource(Children, Protocol):
    """Source of a migration's items, and list of the failed ones.

    Each method runs an activity, and must not continue as new before it: children may run (`ActivityRunner.ask`).
    """

    async def next_items(self, cursor: str, limit: int) -> Page:
        """Return the items after a cursor, in a stable order; the empty cursor is before the first item."""
        ...

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """Append to the list of failed items, which already has `offset` items, and return where it is stored.

        A second attempt with the same offset replaces what the first one wrote.
        """
        ...


class WaveSteering(Protocol):
    """The operator's interface to waves. Methods that wait are called while no child runs, and may continue as new."""

    @property
    def paused(self) -> bool:
        """True while the operator has paused."""
        ...

    async def wait_if_paused(self) -> None:
        """Wait for the end of a pause."""
        ...

    async def decide(self, hold: Hold) -> bool:
        """Wait for the operator's decision: True to continue, False to start no more items."""
        ...

    async def until_allowed(self, wave: int) -> bool:
        """Wait until hooks allow a wave after the first one; return False if an operator overrides their vetoes."""
        ...

    def show(self, status: WaveStatus) -> None:
        """Update the operator's status."""
        ...

    def note(self, text: str) -> None:
        """Add a note for the operator."""
        ...


class RunLimit(Protocol):
    """Limit after which a workflow continues as new; implemented by `Continuation`."""

    @property
    def due(self) -> bool:
        """True once the history has grown to the limit."""
        ...

    def wait_for(self, work: asyncio.Task[None]) -> None:
        """Keep the run open until some work has ended, which the next run does not know."""
        ...

    async def checkpoint(self) -> None:
        """Raise to end this run if that is due; called while no child runs and the state is complete."""
        ...
