"""Input of the child workflow that moves one batch of namespaces."""

from __future__ import annotations

from pydantic import Field

from models.blue_green.input import BlueGreenInput
from models.lifecycle.claim import Attempt, ParentRun
from models.lifecycle.execution import Execution


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
    """The attempt at an activity of a batch, as claims order it among all of the migration."""
    return execution.input.parent.attempt(execution.epoch, attempt)
