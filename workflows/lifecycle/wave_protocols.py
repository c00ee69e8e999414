"""What waves ask of the workflow that holds them: items, child workflows, an operator, a next run."""

from __future__ import annotations

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
    """What a migration says of its child workflows."""

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """The child workflow that migrates these items.

        It must find what an earlier one did for them: an item may get a second child, by retries or after its parent
        was terminated and started again.
        """
        ...

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """What became of the items; `result` is what their child workflow returned, as plain JSON.

        Raises:
            ValueError: it cannot be read; all the items count as failed.
        """
        ...

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Clear up behind a child workflow that was terminated or timed out, and so could not do it itself.

        Runs an activity, and must not continue as new before it. What it cannot do it tells, and does not raise.
        """
        ...


class WaveSource(Children, Protocol):
    """Where a migration's items come from, and where the failed ones are listed.

    Each of these runs an activity, and must not continue as new before it: children may run (`ActivityRunner.ask`).
    """

    async def next_items(self, cursor: str, limit: int) -> Page:
        """The items behind a cursor, in an order that stays; the empty cursor is before the first one."""
        ...

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """Append to the list of failed items, which holds `offset` already, and say where it stands.

        A second attempt with the same offset replaces what the first one wrote.
        """
        ...


class WaveSteering(Protocol):
    """How the operator and the waves talk. What waits here is called while no child runs, and may continue as new."""

    @property
    def paused(self) -> bool:
        """Whether the operator paused."""
        ...

    async def wait_if_paused(self) -> None:
        """Wait for the end of a pause."""
        ...

    async def decide(self, hold: Hold) -> bool:
        """Wait for the operator's decision: True to continue, False to begin no more items."""
        ...

    def show(self, status: WaveStatus) -> None:
        """Bring what the operator sees up to date."""
        ...


class RunLimit(Protocol):
    """When a run of the workflow ends for a new one; `Continuation` is one."""

    @property
    def due(self) -> bool:
        """Whether the history has grown enough."""
        ...

    async def checkpoint(self) -> None:
        """Leave this run by an exception if it is due; called while no child runs and the state is complete."""
        ...
