"""After COMPLETE: the grace window, in which blue is kept, and the end of blue's topics."""

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

# Blue may be turned off in the window, and what asks it must not keep `proceed` from ending that.
_LOOKING = timedelta(minutes=2)


class GraceWindow:
    """The time between COMPLETE and the end of the migration.

    Args:
        migration: whose state and parts it uses.
    """

    def __init__(self, migration: Migration[BlueGreenInput, BlueGreenState]) -> None:
        self._migration = migration
        self._input = migration.input
        self._state = migration.state
        self._board = migration.board
        self._activities = migration.activities
        self._window = RetentionWindow(migration, migration.input, migration.input.cluster)

    async def watch(self) -> None:
        """Wait for the end of the window; a cleanup waits as long as clients still begin by asking blue."""
        length = self._input.grace_window
        await self._window.keep("grace", length, check=self._look, open_because=self._clients_that_ask)

    async def clean_up(self) -> Outcome:
        """Delete blue's topics, where that is asked for, and give the claims up; how the migration ends."""
        outcome = await self._window.clean_up(Phase.CLEANUP, self._delete_topics)
        call = Call("Give both claims up", total=_LOOKING)
        finished = await self._activities.try_run(cluster.finish, call, "the claims were not given up")
        for kept in finished.notes if finished else ():
            self._board.note(kept)
        return outcome

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _look(self) -> Census | None:
        call, otherwise = (
            Call("Who still asks blue?", total=_LOOKING),
            f"who still asks {self._input.cluster} is not known",
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
        self._state.facts.census = census
        self._board.publish()
        return census

    async def _clients_that_ask(self) -> str:
        """Return why blue's topics must stay for now; empty where they are not to be deleted, or no client asks."""
        if not self._window.cleanup_is_due:
            return ""
        before = self._state.facts.census
        now = await self._look()
        # `proceed` may have come since.
        if not self._window.cleanup_is_due:
            return ""
        if now is None:
            return f"cleanup refused: who still asks {self._input.cluster} is not known"
        if before is None:
            return "cleanup refused: there was no check before this one; the next one shows who came since"
        more = now.opened_since(before)
        if not more:
            return ""
        return (
            f"cleanup refused: {more} connections were opened to {self._input.cluster} since the last look. Clients "
            f"that begin there find {self._input.green_cluster} only through it; give them its address"
        )

    async def _delete_topics(self) -> None:
        remaining = 1
        while remaining:
            call = Call("Delete a bounded part of blue's topics")
            part = await self._activities.run(grace.clean_up, call)
            self._state.figures.deleted_topics = (self._state.figures.deleted_topics or 0) + part.deleted
            remaining = part.remaining
            refused = FailedItems(what="topic(s) of blue that stay", items=part.refused, count=part.refused_count)
            self._board.report_failures(refused)
            if remaining and not part.deleted:
                self._board.note(f"{remaining} topics of {self._input.cluster} cannot be deleted")
                return
            if remaining:
                await self._migration.continuation.checkpoint()
