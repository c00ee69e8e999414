"""The operator's interface to the waves of a migration: verbs, decisions and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

from models.base import faults
from models.lifecycle.input import MigrationInput
from models.lifecycle.policy import TWO_PERSONS
from models.lifecycle.rates import RecentRates
from models.lifecycle.status import Progress, ProgressTask, ProgressUnit
from models.lifecycle.units import format_value
from models.lifecycle.waves import CHANGE_NOTE, Hold, WavePolicy, WavesOutcome, WaveStatus
from workflows.lifecycle.caller import by
from workflows.lifecycle.migration import Migration, refused
from workflows.lifecycle.waves import Waves

# Seconds in which the rate of items is measured, and between two counts.
_RECENT, _APART = 3600.0, 5.0


def changed_waves(migration: Migration[Any, Any], waves: Waves, change: Mapping[str, Any]) -> WavePolicy:
    """Return the policy of waves with some fields changed.

    Args:
        migration: with the waves.
        waves: with the current policy.
        change: new values by field.

    Raises:
        ApplicationError: the input would refuse the policy, no item starts any more, or the change would avoid a
            decision that needs two persons.
    """
    if too_late := no_more_items(migration, waves):
        raise refused(too_late)
    input: MigrationInput = migration.input
    wanted = {**waves.state.policy.model_dump(), **change}
    try:
        input.changed(waves=wanted)
        policy = WavePolicy.model_validate(wanted)
    except ValidationError as error:
        raise refused(f"the waves are wrong: {faults(error)}") from None
    loosened = policy.loosened_from(waves.state.policy)
    # mutant: shared/gates-open-for-one-person
    if loosened and input.two_persons and migration.hold.after in TWO_PERSONS:
        raise refused(
            f"two persons must agree to what follows a gate or failures, and the new {', '.join(loosened)} would avoid "
            "that; leave it out, and at each gate one sends `proceed`, and another one `approve`"
        )
    return policy


def no_more_items(migration: Migration[Any, Any], waves: Waves) -> str:
    """Return why waves cannot be changed any more; empty while items start."""
    state = migration.state
    if migration.verbs.ended or state.undoing or state.committed or waves.state.outcome is not WavesOutcome.RUNNING:
        return "no item starts any more, so the waves cannot be changed"
    return ""


def change_waves(migration: Migration[Any, Any], waves: Waves, change: Mapping[str, Any]) -> WavePolicy:
    """Change fields of the policy of waves, from the next item on; return the policy."""
    policy = changed_waves(migration, waves, change)
    waves.revise(policy)
    fields = ", ".join(f"{name}: {format_value(getattr(policy, name))}" for name in change)
    migration.board.note(f"{CHANGE_NOTE}{fields}, changed{by()}")
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
