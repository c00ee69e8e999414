"""The operator's interface to the waves of a migration: verbs, decisions and status."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from models.lifecycle.status import Progress, ProgressTask, ProgressUnit
from models.lifecycle.waves import Hold, WaveStatus
from workflows.lifecycle.migration import Migration


class MigrationSteering:
    """Connects waves inside a phase with their migration.

    A rollback or a deadline interrupts the phase: the waves cancel their children and wait for them. The migration's
    rollback starts after that.

    Args:
        migration: with the waves.
        unit: of the items.
    """

    def __init__(self, migration: Migration[Any, Any], unit: ProgressUnit) -> None:
        self._migration = migration
        self._unit = unit

    @property
    def paused(self) -> bool:
        """True while the operator has paused."""
        return self._migration.verbs.paused

    async def wait_if_paused(self) -> None:
        """Wait for `resume`."""
        await self._migration.timers.wait_if_paused()

    async def decide(self, hold: Hold) -> bool:
        """Wait for `proceed`."""
        await self._migration.decisions.wait(hold.why, hold.effect, kind=hold.kind)
        return True

    def show(self, status: WaveStatus) -> None:
        """Show counts as progress, failed items, and why no item starts."""
        board, state = self._migration.board, self._migration.state
        state.progress = Progress(
            task=ProgressTask.MIGRATE,
            unit=self._unit,
            done=status.counts.ended,
            total=status.total,
            detail=_detail(status),
            as_of=workflow.now(),
        )
        if hold := status.hold:
            board.wait_for(hold.kind, hold.why, action=hold.action, until=hold.until)
        else:
            board.stop_waiting()
        board.report_failures(status.failed_items)


def _detail(status: WaveStatus) -> str:
    wave = "canary" if status.canary else f"wave {status.wave}"
    counts = status.counts
    others = [(counts.failed, "failed"), (counts.skipped, "skipped"), (status.running, "running")]
    return ", ".join([wave, *(f"{count:,} {name}" for count, name in others if count)])
