"""Continue-as-new of migrations, so that no history grows without bound."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow

from models.lifecycle.state import MigrationState
from workflows.lifecycle.status import StatusBoard

HISTORY_LIMIT = "history_limit"
"""Memo with the number of events after which a run continues as new; by default Temporal suggests it."""


class ContinuationDue(Exception):
    """Unwinds the run, so that the workflow continues as a new run.

    Attributes:
        state: a copy from the moment of the exception, which `finally` blocks do not change.
    """

    def __init__(self, state: MigrationState[Any, Any, Any]) -> None:
        super().__init__("the workflow continues as a new run")
        self.state = state


class HistoryLimit:
    """Limit of a run's history."""

    def __init__(self) -> None:
        self._limit = workflow.memo_value(HISTORY_LIMIT, default=0, type_hint=int)
        self._start: int | None = None

    @property
    def due(self) -> bool:
        """True once the history has grown to the limit."""
        info = workflow.info()
        if info.is_continue_as_new_suggested():
            return True
        if not self._limit:
            return False
        if self._start is None:
            # Count from the first check, so that a run always makes progress, even with a tiny limit.
            self._start = info.get_current_history_length()
        return info.get_current_history_length() - self._start >= self._limit


class Continuation(HistoryLimit):
    """Continues as a new run where no activity runs and the state is complete.

    That is between phases, and inside of phases that can be restarted: in a window, in a hold, after a wave has
    drained, before a retry of a rollback, and between parts of a cleanup. The next run skips phases that are done, and
    starts the work of the interrupted phase again.
    """

    def __init__(self, state: MigrationState[Any, Any, Any], board: StatusBoard) -> None:
        super().__init__()
        self._state = state
        self._board = board
        self._ended_at = 0
        self._work: list[asyncio.Task[None]] = []

    @property
    def ended(self) -> bool:
        """True while the run ends: what happens to the state is lost. An interruption in that moment continues it."""
        return self._ended_at == workflow.info().get_current_history_length()

    @property
    def has_unfinished_work(self) -> bool:
        """True while work runs that the end of this run would lose: reports to the parent, and what `wait_for` got."""
        # mutant: shared/run-that-ends-during-a-clean-up
        return self._board.reporting or not all(work.done() for work in self._work)

    def wait_for(self, work: asyncio.Task[None]) -> None:
        """Keep the run open until some work has ended, which the next run does not know."""
        self._work = [task for task in (*self._work, work) if not task.done()]

    async def checkpoint(self) -> None:
        """End this run if its history has grown to the limit; never call this from a handler.

        Raises:
            ContinuationDue: the run ends.
        """
        if self.due:
            # A running handler or work would be lost; none can start between this moment and the end of the run.
            await workflow.wait_condition(lambda: workflow.all_handlers_finished() and not self.has_unfinished_work)
            self._ended_at = workflow.info().get_current_history_length()
            raise ContinuationDue(self._state.model_copy(deep=True))
