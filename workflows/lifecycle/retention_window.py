"""The window after a commit, in which the old side is kept, and the cleanup after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from models.lifecycle.input import CleanupInput
from models.lifecycle.status import Outcome
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.tasks import growing_pause

# How often a refused cleanup is tried again.
_CHECK_EVERY = timedelta(minutes=10)


class RetentionWindow:
    """Keeps the old side for a while, and cleans it up on request once no service uses it.

    Args:
        migration: whose state and parts are used. Its state has `refused_cleanup`, so that each reason is noted once.
        input: of the migration.
        old: name of the old side in notes.
    """

    def __init__(self, migration: Migration[Any, Any], input: CleanupInput, old: str) -> None:
        self._migration = migration
        self._input = input
        self._old = old

    @property
    def cleanup_is_due(self) -> bool:
        """True if the old side must be cleaned up at the end of the window."""
        verbs = self._migration.verbs
        asked = verbs.cleanup_wanted or (self._input.cleanup_at_window_end and not verbs.proceed_wanted)
        return asked and self._input.deletes_source

    async def keep(
        self,
        name: str,
        length: timedelta,
        *,
        check: Callable[[], Awaitable[object]],
        open_because: Callable[[], Awaitable[str]],
    ) -> None:
        """Wait for the end of the window, which stays open while there is a reason.

        Args:
            name: of the window.
            length: how long the old side is kept.
            check: updates the status during the window.
            open_because: called at each end of the window; returns why it stays open, or an empty text. A verb that
                came during the call counts, or is answered by the reason.
        """
        state, verbs, board = self._migration.state, self._migration.verbs, self._migration.board
        opened = state.history[-1].started
        while True:
            end = await self._migration.timers.window(name, length, check=check)
            if not (reason := await open_because()):
                return
            # A client that never leaves must not fill the history: note each reason once, and check less and less
            # often.
            if verbs.cleanup_wanted or verbs.proceed_wanted or reason != state.refused_cleanup:
                board.note(reason)
            state.refused_cleanup = reason
            verbs.cleanup_wanted = verbs.proceed_wanted = False
            now = workflow.now()
            length = max(end - now, growing_pause(_CHECK_EVERY, opened))

    async def clean_up(self, phase: str, delete: Callable[[], Awaitable[object]]) -> Outcome:
        """Clean up if that is due, and return the outcome of the migration.

        Args:
            phase: of the cleanup.
            delete: deletes in steps; `proceed` ends it.
        """
        board = self._migration.board
        if not (self.cleanup_is_due or self._migration.state.running_phase == phase):
            board.note(f"{self._old} was left as it is")
            return Outcome.DONE

        async def until_proceed() -> None:
            if not await self._migration.timers.until_proceed(delete()):
                board.note(f"the cleanup was ended by `proceed`; the rest of {self._old} stays")

        try:
            await self._migration.phases.run(phase, until_proceed)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            # The cluster uses the new side permanently; leftovers on the old one do not matter for that.
            board.note(f"{self._old} was not cleaned up completely: {cause_of(error)}")
            return Outcome.DONE_WITH_FAILURES
        return Outcome.DONE
