"""Input of the child workflow that moves one batch of namespaces."""

from __future__ import annotations

from pydantic import Field

from models.blue_green.input import BlueGreenInput
from models.lifecycle.claim import Attempt, ParentRun
from models.lifecycle.execution import Execution


class BatchInput(BlueGreenInput):
    """Input of `BlueGreenBatch`: the input of the migration, and the namespaces to move.

    Attributes:
        parent: run of the migration.
        batch: namespaces, `tenant/namespace`.
    """

    parent: ParentRun
    batch: tuple[str, ...] = Field(min_length=1)

    @property
    def summary(self) -> str:
        """Both clusters and the namespaces."""
        return f"{self.cluster} → {self.green_cluster}: {', '.join(self.batch)}"


def attempt_of(execution: Execution[BatchInput], attempt: int) -> Attempt:
    """Return the attempt of a batch's activity, as claims order it among all attempts of the migration."""
    return execution.input.parent.attempt(execution.epoch, attempt)
