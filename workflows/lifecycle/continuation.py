"""When a migration continues as a new run, so that no history grows without bound."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from models.lifecycle.state import MigrationState

HISTORY_LIMIT = "history_limit"
"""Memo: the number of events after which a run continues as new; without it Temporal says when."""


class ContinuationDue(Exception):
    """Leaves everything that runs, so that the workflow continues as a new run.

    Attributes:
        state: as it was when the run was left; what is tidied up on the way out does not change it.
    """

    def __init__(self, state: MigrationState[Any, Any, Any]) -> None:
        super().__init__("the workflow continues as a new run")
        self.state = state


class HistoryLimit:
    """When a run has grown enough."""

    def __init__(self) -> None:
        self._limit = workflow.memo_value(HISTORY_LIMIT, default=0, type_hint=int)
        self._begin: int | None = None

    @property
    def due(self) -> bool:
        """Whether the history has grown enough."""
        info = workflow.info()
        if info.is_continue_as_new_suggested():
            return True
        if not self._limit:
            return False
        if self._begin is None:
            # Counted from the first look: a run gets somewhere, however small the limit is.
            self._begin = info.get_current_history_length()
        return info.get_current_history_length() - self._begin >= self._limit


class Continuation(HistoryLimit):
    """Asks for a new run where no activity runs and the state is complete.

    That is between phases, and inside of those that can begin again: in a window, in a hold, when a wave has
    drained, before another try of a rollback, and between parts of a cleanup. The next run does not enter phases that
    are done, and runs the work of the phase that was left from its start.
    """

    def __init__(self, state: MigrationState[Any, Any, Any]) -> None:
        super().__init__()
        self._state = state

    async def checkpoint(self) -> None:
        """Leave this run if it has grown enough; never call this from a handler.

        Raises:
            ContinuationDue: it has.
        """
        if self.due:
            # A handler that runs would be lost; none can begin between this moment and the end of the run.
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise ContinuationDue(self._state.model_copy(deep=True))
