"""The operator's interface to the waves of a migration: verbs, decisions and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

from models.base import faults
from models.lifecycle.policy import TWO_PERSONS
from models.lifecycle.rates import RecentRates
from models.lifecycle.state import StateT
from models.lifecycle.status import Progress, ProgressTask, ProgressUnit
from models.lifecycle.units import format_value
from models.lifecycle.waves import CHANGE_NOTE, Hold, WavePolicy, WavesOutcome, WaveStatus
from workflows.lifecycle.caller import by
from workflows.lifecycle.migration import InputT, Migration, refused
from workflows.lifecycle.waves import Waves

# Seconds in which the rate of items is measured, and between two counts.
_RECENT, _APART = 3600.0, 5.0


class MigrationInWaves(Migration[InputT, StateT]):
    """Base of migrations that take items in waves. Arguments as in `Migration`.

    Attributes:
        waves: of the items; set by the subclass.
    """

    waves: Waves

    @workflow.update(name="change_waves", description="Change fields of the waves, from the next item on.")
    def set_waves(self, change: dict[str, Any]) -> WavePolicy:
        """Change fields of the waves, and return all."""
        policy = self._changed(change)
        self.waves.revise(policy)
        fields = ", ".join(f"{name}: {format_value(getattr(policy, name))}" for name in change)
        self.board.note(f"{CHANGE_NOTE}{fields}, changed{by()}")
        return policy

    @set_waves.validator
    def check_set_waves(self, change: dict[str, Any]) -> None:
        """Refuse values that the input would refuse, and changes when no item starts any more.

        Where two persons must agree, refuse a change that would avoid their decision.
        """
        self._changed(change)

    @property
    def windows_too_late(self) -> str:
        """Reason why neither waves nor change windows have an effect any more; empty while items start."""
        outcome = self.waves.state.outcome
        if self.verbs.ended or self.state.undoing or self.state.committed or outcome is not WavesOutcome.RUNNING:
            return "no item starts any more, so the waves cannot be changed"
        return ""

    def _changed(self, change: Mapping[str, Any]) -> WavePolicy:
        if too_late := self.windows_too_late:
            raise refused(too_late)
        current = self.waves.state.policy
        wanted = {**current.model_dump(), **change}
        try:
            self.input.changed(waves=wanted)
            policy = WavePolicy.model_validate(wanted)
        except ValidationError as error:
            raise refused(f"the waves are wrong: {faults(error)}") from None
        loosened = policy.loosened_from(current)
        # mutant: shared/gates-open-for-one-person
        if loosened and self.input.two_persons and self.hold.after in TWO_PERSONS:
            raise refused(
                f"two persons must agree to what follows a gate or failures, and the new {', '.join(loosened)} would "
                "avoid that; leave it out, and at each gate one sends `proceed`, and another one `approve`"
            )
        return policy


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
        self._rates = RecentRates(recent=_RECENT, apart=_APART)

    @property
    def paused(self) -> bool:
        """True while the operator has paused."""
        return self._migration.verbs.paused

    async def wait_if_paused(self) -> None:
        """Wait for `resume`."""
        await self._migration.timers.wait_if_paused()

    async def decide(self, hold: Hold) -> bool:
        """Wait for `proceed`."""
        after = self._migration.hold.after
        await self._migration.decisions.wait(hold.why, hold.effect, kind=hold.kind, after=after)
        return True

    async def until_allowed(self, wave: int) -> bool:
        """Ask the hooks of the migration; return False if an operator overrides their vetoes."""
        return await self._migration.hooks.until_allowed(f"wave {wave}", after=self._migration.hold.after)

    def show(self, status: WaveStatus) -> None:
        """Show counts as progress, failed items, and why no item starts."""
        board, state = self._migration.board, self._migration.state
        if status.hold:
            # What follows a hold is measured on its own.
            self._rates.restart()
        self._rates.add(workflow.now().timestamp(), status.counts.ended)
        recent = self._rates.range()
        state.progress = Progress(
            task=ProgressTask.MIGRATE,
            unit=self._unit,
            done=status.counts.ended,
            total=status.total,
            detail=_detail(status),
            slowest=recent and recent.slowest,
            fastest=recent and recent.fastest,
            as_of=workflow.now(),
        )
        if hold := status.hold:
            board.wait_for(hold.kind, hold.why, action=hold.action, until=hold.until)
        else:
            board.stop_waiting()
        board.report_failures(status.failed_items)

    def note(self, text: str) -> None:
        """Add a note to status and report."""
        self._migration.board.note(text)


def _detail(status: WaveStatus) -> str:
    wave = "canary" if status.canary else f"wave {status.wave}"
    counts = status.counts
    others = [(counts.failed, "failed"), (counts.skipped, "skipped"), (status.running, "running")]
    return ", ".join([wave, *(f"{count:,} {name}" for count, name in others if count)])
