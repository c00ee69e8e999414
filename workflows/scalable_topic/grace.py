"""After COMPLETE: the grace window, in which regular topics are kept, and their end."""

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
    """The time between COMPLETE and the end of a migration.

    Args:
        migration: whose state and parts it uses.
        clean_up: deletes regular topics.
        forget: leaves them as they are; gets the longest time that this may take.
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
        """Keep the window, clean up where that is asked for, and say how the migration ends.

        Args:
            grace: name of the phase of the window.
            cleanup: name of the phase of the cleanup.
            outcome: how the migration ends otherwise.
        """
        if self._input.cleanup is SourceCleanup.LEAVE:
            # Nothing is kept for anybody: the window would only keep the workflow open.
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
            # Clients use scalable topics for good; what is left of regular ones takes nothing from that.
            self._migration.board.note(f"regular topics were not deleted to the end: {failure.why}")
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
            self._migration.board.note("the cleanup was ended by `proceed`; the rest stays")
            # A cleanup holds the cluster, and gives it back at its end only.
            await self._forget(None)

    async def _delete_all(self) -> None:
        done = await self._clean_up()
        self._figures.deleted_topics = done.deleted
        kept = FailedItems(what="regular topic(s) that stay", items=done.kept, count=done.kept_count)
        self._migration.board.report_failures(kept)

    async def _end_with(self, outcome: Outcome, limit: timedelta | None = None) -> Outcome:
        """Leave what is left as it is, and give the cluster back if a cleanup holds it; says how the migration ends."""
        try:
            await self._forget(limit)
        except (ActivityError, ApplicationError) as error:
            if failure_of(error).how == "cancelled":
                raise
            self._migration.board.note(
                f"what was noted of the topics stays in the metadata store: {failure_of(error).why}"
            )
            return Outcome.DONE_WITH_FAILURES
        return outcome
