"""After COMPLETE: the grace window, in which regular topics are kept, and their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.failures import FailedItems
    from models.lifecycle.input import SourceCleanup
    from models.lifecycle.status import Outcome
    from models.scalable_topic.input import TopicOptions
    from models.scalable_topic.results import CleanedUp
    from models.scalable_topic.state import CleanupFigures
    from workflows.lifecycle.failures import cause_of
    from workflows.lifecycle.migration import Migration

Step = Callable[[], Awaitable[CleanedUp]]


class GraceWindow:
    """The time between COMPLETE and the end of a migration.

    Args:
        migration: whose state and parts it uses.
        clean_up: deletes regular topics.
        forget: leaves them as they are.
    """

    def __init__(self, migration: Migration[Any, Any], *, clean_up: Step, forget: Step) -> None:
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
            return await self._quietly(self._forget, outcome)
        phases, verbs = self._migration.phases, self._migration.verbs
        await phases.run(grace, self._watch)
        asked = verbs.cleanup_wanted or (self._input.cleanup_at_window_end and not verbs.proceed_wanted)
        if asked or self._migration.state.running_phase == cleanup or cleanup in self._migration.state.passed:
            return await self._quietly(lambda: phases.run(cleanup, self._delete), outcome)
        self._migration.note("regular topics were left as they are")
        return await self._quietly(self._forget, outcome)

    async def _watch(self) -> None:
        await self._migration.timers.window("grace", self._input.grace_window)

    async def _delete(self) -> None:
        if not await self._migration.timers.unless_told(self._delete_all()):
            self._migration.note("the cleanup was ended by `proceed`; the rest stays")

    async def _delete_all(self) -> None:
        done = await self._clean_up()
        self._figures.deleted_topics = done.deleted
        kept = FailedItems(what="regular topic(s) that stay", items=done.kept, count=done.kept_count)
        self._migration.board.report_failures(kept)

    async def _quietly(self, work: Callable[[], Awaitable[object]], outcome: Outcome) -> Outcome:
        try:
            await work()
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            # Clients use scalable topics for good; what is left of regular ones takes nothing from that.
            self._migration.board.note(f"regular topics were not tidied up to the end: {cause_of(error)}")
            return Outcome.DONE_WITH_FAILURES
        return outcome
