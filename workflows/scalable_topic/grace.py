"""Grace window after COMPLETE, in which regular topics are kept, and their cleanup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.failures import FailedItems
from models.lifecycle.input import SourceCleanup
from models.lifecycle.status import Outcome
from models.scalable_topic.input import TopicOptions
from models.scalable_topic.results import CleanedUp
from models.scalable_topic.state import CleanupFigures
from workflows.lifecycle.failures import FAILURES, failure_of
from workflows.lifecycle.migration import Migration

# A workflow that is cancelled must not wait for another migration of the cluster to end.
_CANCELLED_LIMIT = timedelta(minutes=1)


class GraceWindow:
    """Time between COMPLETE and the end of a migration.

    Args:
        migration: the migration.
        clean_up: delete regular topics.
        forget: delete the records and leave the topics as they are; its argument is a time limit.
    """

    def __init__(
        self,
        migration: Migration[Any, Any],
        *,
        clean_up: Callable[[], Awaitable[CleanedUp]],
        forget: Callable[[timedelta | None], Awaitable[CleanedUp]],
    ) -> None:
        self._migration = migration
        self._input: TopicOptions = migration.input
        self._figures: CleanupFigures = migration.state.figures
        self._clean_up = clean_up
        self._forget = forget

    async def run(self, grace: str, cleanup: str, outcome: Outcome) -> Outcome:
        """Run the grace window and the cleanup, and return the outcome of the migration.

        Args:
            grace: name of the phase of the window.
            cleanup: name of the phase of the cleanup.
            outcome: outcome of the migration without cleanup faults.
        """
        if self._input.cleanup is SourceCleanup.LEAVE:
            # Without a cleanup the window has no purpose.
            return await self._end_with(outcome)
        if self._migration.state.cancelled:
            self._migration.board.note("regular topics were left as they are, since the workflow was cancelled")
            return await self._end_with(outcome, _CANCELLED_LIMIT)
        try:
            await self._migration.phases.run(grace, self._watch)
            if self._is_wanted(cleanup):
                await self._migration.phases.run(cleanup, self._delete)
                return outcome
        except FAILURES as error:
            failure = failure_of(error)
            if failure.how == "cancelled":
                await self._end_with(outcome, _CANCELLED_LIMIT)
                raise
            # The scalable topics are complete; a failed cleanup of regular topics does not affect them.
            self._migration.board.note(f"the deletion of regular topics did not complete: {failure.why}")
            return await self._end_with(Outcome.DONE_WITH_FAILURES)
        self._migration.board.note("regular topics were left as they are")
        return await self._end_with(outcome)

    def _is_wanted(self, cleanup: str) -> bool:
        state, verbs = self._migration.state, self._migration.verbs
        asked = verbs.cleanup_wanted or (self._input.cleanup_at_window_end and not verbs.proceed_wanted)
        return asked or state.running_phase == cleanup or cleanup in state.passed

    async def _watch(self) -> None:
        await self._migration.timers.window("grace", self._input.grace_window)

    async def _delete(self) -> None:
        if not await self._migration.timers.until_proceed(self._delete_all()):
            self._migration.board.note("the cleanup was ended by `proceed`; the remaining regular topics stay")
            # A cleanup releases the cluster only at its end.
            await self._forget(None)

    async def _delete_all(self) -> None:
        done = await self._clean_up()
        self._figures.deleted_topics = done.deleted
        remaining = FailedItems(what="regular topic(s) stay", items=done.remaining, count=done.remaining_count)
        self._migration.board.report_failures(remaining)

    async def _end_with(self, outcome: Outcome, limit: timedelta | None = None) -> Outcome:
        """Delete the records, release the cluster if a cleanup holds it, and return the outcome of the migration."""
        try:
            await self._forget(limit)
        except (ActivityError, ApplicationError) as error:
            if failure_of(error).how == "cancelled":
                raise
            self._migration.board.note(f"records of the topics stay in the metadata store: {failure_of(error).why}")
            return Outcome.DONE_WITH_FAILURES
        return outcome
