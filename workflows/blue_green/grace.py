"""The grace window, in which blue is kept after COMPLETE, and the cleanup of blue's topics."""

from __future__ import annotations

from datetime import timedelta

from activities.blue_green import cluster, grace
from models.blue_green.input import BlueGreenInput
from models.blue_green.phases import Phase
from models.blue_green.results import Census
from models.blue_green.state import BlueGreenState
from models.lifecycle.failures import FailedItems
from models.lifecycle.status import Outcome
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.retention_window import RetentionWindow

# Blue may be switched off in the window, and a check must not keep `proceed` from ending the window.
_CHECK_TIMEOUT = timedelta(minutes=2)


class GraceWindow:
    """The time between COMPLETE and the end of the migration.

    Args:
        migration: migration with its state and helpers.
    """

    def __init__(self, migration: Migration[BlueGreenInput, BlueGreenState]) -> None:
        self._migration = migration
        self._input = migration.input
        self._state = migration.state
        self._board = migration.board
        self._activities = migration.activities
        self._window = RetentionWindow(migration, migration.input, migration.input.cluster)

    async def watch(self) -> None:
        """Wait until the window ends. A cleanup waits while clients still open connections to blue."""
        length = self._input.grace_window
        await self._window.keep("grace", length, check=self._check, open_because=self._why_no_cleanup)

    async def clean_up(self) -> Outcome:
        """Delete blue's topics if the input says so, release the claims, and return the outcome."""
        outcome = await self._window.clean_up(Phase.CLEANUP, self._delete_topics)
        call = Call("Release both claims", total=_CHECK_TIMEOUT)
        finished = await self._activities.try_run(cluster.finish, call, "the claims were not released")
        for note in finished.notes if finished else ():
            self._board.note(note)
        return outcome

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _check(self) -> Census | None:
        call, otherwise = (
            Call("Check which clients still use blue", total=_CHECK_TIMEOUT),
            f"could not check which clients still use {self._input.cluster}",
        )
        census = await self._activities.try_run(grace.census, call, otherwise)
        if census is None:
            return None
        for drift in census.drift:
            self._board.alarm(f"{drift}: clients may write to {self._input.cluster} again")
        for undrainable in census.undrainable:
            self._board.alarm(
                f"{undrainable}. End this migration with proceed, and start it again: it loads them again"
            )
        for topic in census.more_partitions:
            self._board.alarm(
                f"{topic}: clients with the address of {self._input.cluster} do not find the new ones; give them the "
                f"address of {self._input.green_cluster}"
            )
        for topic in census.fewer_partitions:
            self._board.alarm(
                f"{topic}: clients that start with the address of {self._input.cluster} fail; give it as many "
                f"partitions on {self._input.green_cluster}"
            )
        self._state.facts.census = census
        self._board.publish()
        return census

    async def _why_no_cleanup(self) -> str:
        """Return why a due cleanup must wait; empty if none is due, or no client opens connections to blue."""
        if not self._window.cleanup_is_due:
            return ""
        before = self._state.facts.census
        now = await self._check()
        # `proceed` may have arrived during the check.
        if not self._window.cleanup_is_due:
            return ""
        if now is None:
            return f"cleanup refused: could not check which clients still use {self._input.cluster}"
        if before is None:
            return "cleanup refused: this was the first check of connections; wait for the next one"
        more = now.opened_since(before)
        if not more:
            return ""
        return (
            f"cleanup refused: {more} connections were opened to {self._input.cluster} since the last check. These "
            f"clients reach {self._input.green_cluster} only through it; give them the address of "
            f"{self._input.green_cluster}"
        )

    async def _delete_topics(self) -> None:
        remaining = 1
        while remaining:
            call = Call("Delete a limited number of blue's topics")
            result = await self._activities.run(grace.clean_up, call)
            self._state.figures.deleted_topics = (self._state.figures.deleted_topics or 0) + result.deleted
            remaining = result.remaining
            refused = FailedItems(what="topic(s) kept on blue", items=result.refused, count=result.refused_count)
            self._board.report_failures(refused)
            if remaining and not result.deleted:
                self._board.note(f"{remaining} topics of {self._input.cluster} cannot be deleted")
                return
            if remaining:
                await self._migration.continuation.checkpoint()
