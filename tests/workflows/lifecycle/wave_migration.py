"""A migration that holds waves in one of its phases, as the coming ones do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field
from temporalio import workflow

from models.base import Figures
from models.lifecycle.failures import FailedItem
from models.lifecycle.input import Continued
from models.lifecycle.policy import PhasePolicy, VerbState
from models.lifecycle.report import Report
from models.lifecycle.state import MigrationState
from models.lifecycle.status import Outcome, ProgressUnit, Undo
from models.lifecycle.waves import BatchResult, Page, WaveState, WaveStatus
from tests.workflows.lifecycle.wave_catalog import (
    SHOWN,
    ManyTopicsInput,
    append_failed_topics,
    clean_topics,
    list_topics,
)
from tests.workflows.lifecycle.wave_workflows import BatchInput
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.start import read_start
from workflows.lifecycle.wave_children import read_batch_result
from workflows.lifecycle.wave_protocols import ChildSpec
from workflows.lifecycle.wave_steering import MigrationSteering
from workflows.lifecycle.waves import Waves


class Phase(StrEnum):
    """The phase of the work, and that of its rollback."""

    MIGRATE = "MIGRATE"
    FAILED = "FAILED"


_POLICIES = {phase: PhasePolicy(undo=Undo.METADATA, undo_cost="what was migrated goes back") for phase in Phase}


class ManyTopicsState(MigrationState[Figures, Figures, Figures]):
    """The state of the migration, that of its waves included."""

    facts: Figures = Field(default_factory=Figures)
    figures: Figures = Field(default_factory=Figures)
    certificate: Figures = Field(default_factory=Figures)
    waves: WaveState


class TopicSource:
    """The topics of a cluster.

    Args:
        migration: whose activities list them.
    """

    def __init__(self, migration: Migration[ManyTopicsInput, ManyTopicsState]) -> None:
        self._migration = migration

    async def next_items(self, cursor: str, limit: int) -> Page:
        """List topics."""
        return await self._migration.activities.ask(list_topics, Call("list topics"), cursor, limit)

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """List failed topics."""
        call = Call("list failed topics")
        return await self._migration.activities.ask(append_failed_topics, call, list(failures), offset)

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """Migrate some topics."""
        return ChildSpec("Batch", BatchInput(catalog=self._migration.input.cluster, items=items), ", ".join(items))

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Clean up after a child that could not do so itself."""
        await self._migration.activities.ask(clean_topics, Call("clean up"), list(items))
        self._migration.board.note(f"cleaned up after {', '.join(items)}: {why}")

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """Return what a child returned, as a result of its batch."""
        return read_batch_result(items, result)


class ShownSteering(MigrationSteering):
    """Steering whose status the test can read."""

    def show(self, status: WaveStatus) -> None:
        """Show it to the test as well."""
        super().show(status)
        SHOWN[workflow.info().workflow_id] = status.model_copy(deep=True)


@workflow.defn
class ManyTopics(Migration[ManyTopicsInput, ManyTopicsState]):
    """Migrates a cluster's topics in waves."""

    @workflow.init
    def __init__(self, input: ManyTopicsInput | Continued) -> None:
        input, state = read_start(ManyTopicsInput, ManyTopicsState, input)
        fresh = WaveState.begin(input.policy)
        super().__init__(
            input,
            state or ManyTopicsState(verbs=VerbState(policy=_POLICIES[Phase.MIGRATE]), waves=fresh),
            kind="many-topics",
            target="target",
            first=Phase.MIGRATE,
            policies=_POLICIES,
            after_cutover=Undo.NONE,
        )
        self._waves = Waves(
            TopicSource(self),
            ShownSteering(self, ProgressUnit.TOPICS),
            self.continuation,
            self.state.waves,
            self.calendar,
        )

    @workflow.run
    async def run(self, input: ManyTopicsInput | Continued) -> Report[Any, Any]:
        """Run the migration."""
        del input
        return await self.execute(self._migrate)

    async def _migrate(self) -> Report[Any, Any]:
        await self.phases.rollback_on_failure(self._move, undo=self._undo)
        failed = self.state.waves.counts.failed
        return self.report(Outcome.DONE_WITH_FAILURES if failed else Outcome.DONE, self.state.waves.outcome)

    async def _move(self) -> None:
        await self.phases.run(Phase.MIGRATE, self._waves.run)

    async def _undo(self, why: str) -> str:
        async def note() -> None:
            await self._waves.drain_all()
            self.board.note(f"{self._waves.status().running} children run during the rollback: {why}")

        await self.phases.undo(Phase.FAILED, note)
        return ""
