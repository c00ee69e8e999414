"""Input of the child workflow that moves one batch of namespaces."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.blue_green.input import BlueGreenInput
from models.lifecycle.base import Frozen
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution


class ParentRun(Frozen):
    """The migration that a batch belongs to; claims carry its name.

    Attributes:
        workflow_id: of the migration.
        run_id: its first run.
        started: when that began, by Temporal's clock.
    """

    workflow_id: str
    run_id: str
    started: datetime


class BatchInput(BlueGreenInput):
    """Input of `BlueGreenBatch`: the migration's own, and which namespaces to move.

    Attributes:
        parent: the migration.
        batch: `tenant/namespace` of each.
    """

    parent: ParentRun
    batch: tuple[str, ...] = Field(min_length=1)

    @property
    def summary(self) -> str:
        """The namespaces."""
        return f"{self.cluster} → {self.green_cluster}: {', '.join(self.batch)}"


def attempt_of(execution: Execution[BatchInput], attempt: int) -> Attempt:
    """The attempt at an activity of a batch, as claims order it among all of the migration.

    Epochs are times, so activities of the migration and of its batches are ordered by when they were scheduled.
    """
    parent = execution.input.parent
    started_ms = int(parent.started.timestamp() * 1000)
    return Attempt(parent.workflow_id, parent.run_id, started_ms, execution.epoch, attempt)
