"""The migration that a child workflow belongs to, on whose behalf it writes."""

from __future__ import annotations

from datetime import datetime

from models.lifecycle.base import Frozen
from models.lifecycle.claim import Attempt


class ParentRun(Frozen):
    """A migration whose children write under its claims.

    Attributes:
        workflow_id: of the migration.
        run_id: its first run.
        started: when that began, by Temporal's clock.
    """

    workflow_id: str
    run_id: str
    started: datetime

    def attempt(self, epoch: int, attempt: int) -> Attempt:
        """The attempt at an activity of a child, as claims order it among all of the migration.

        Epochs are times, so activities of the migration and of its children are ordered by when they were scheduled.

        Args:
            epoch: of the activity.
            attempt: its number.
        """
        started_ms = int(self.started.timestamp() * 1000)
        return Attempt(self.workflow_id, self.run_id, started_ms, epoch, attempt)
