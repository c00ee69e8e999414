"""After COMPLETE: the grace window, in which blue is kept, and the end of blue's topics."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.blue_green import cluster, grace
from models.blue_green.input import BlueGreenInput
from models.blue_green.phases import Phase
from models.blue_green.results import Census
from models.blue_green.state import BlueGreenState
from models.lifecycle.failures import FailedItems
from models.lifecycle.input import SourceCleanup
from models.lifecycle.status import Outcome
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.migration import Migration

# Blue may be turned off in the window, and what asks it must not keep `proceed` from ending that.
_LOOKING = timedelta(minutes=2)

# How often a cleanup that was refused is tried again.
_CHECK_EVERY = timedelta(minutes=10)


class GraceWindow:
    """The time between COMPLETE and the end of the migration.

    Args:
        migration: whose state and parts it uses.
    """

    def __init__(self, migration: Migration[BlueGreenInput, BlueGreenState]) -> None:
        self._migration = migration
        self._input = migration.input
        self._state = migration.state
        self._verbs = migration.verbs
        self._board = migration.board
        self._timers = migration.timers
        self._activities = migration.activities

    async def watch(self) -> None:
        """Wait for the end of the window; a cleanup waits as long as clients still begin by asking blue."""
        opened, length = self._state.history[-1].started, self._input.grace_window
        while True:
            end = await self._timers.window("grace", length, check=self._look)
            if not self._removal_is_due or not (asking := await self._clients_that_ask()):
                return
            refusal = f"cleanup refused: {asking}"
            # Whoever never leaves must not fill the history: tell each state once, and look ever more seldom.
            if self._verbs.cleanup_wanted or refusal != self._state.refused_cleanup:
                self._board.note(refusal)
            self._state.refused_cleanup, self._verbs.cleanup_wanted = refusal, False
            now = workflow.now()
            length = max(end - now, _CHECK_EVERY, (now - opened) / 10)

    async def clean_up(self) -> Outcome:
        """Delete blue's topics, where that is asked for, and give the claims up; how the migration ends."""
        outcome = Outcome.DONE
        if self._removal_is_due or self._state.running_phase == Phase.CLEANUP:
            try:
                await self._migration.phases.run(Phase.CLEANUP, self._clean_blue)
            except (ActivityError, ApplicationError) as error:
                if is_cancelled_exception(error):
                    raise
                # Clients use green for good; what is left on blue takes nothing from that.
                self._board.note(f"blue was not cleaned up to its end: {cause_of(error)}")
                outcome = Outcome.DONE_WITH_FAILURES
        else:
            self._migration.board.note(f"{self._input.cluster} was left as it is")
        call = Call("Give both claims up", total=_LOOKING)
        finished = await self._activities.try_run(cluster.finish, call, "the claims were not given up")
        for kept in finished.kept if finished else ():
            self._migration.board.note(kept)
        return outcome

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _removal_is_due(self) -> bool:
        """Whether the end of the window asks to delete blue's topics."""
        asked = self._verbs.cleanup_wanted or (self._input.cleanup_at_window_end and not self._verbs.proceed_wanted)
        return asked and self._input.cleanup is SourceCleanup.REMOVE

    async def _look(self) -> Census | None:
        call = Call("Who still asks blue?", total=_LOOKING)
        try:
            census = await self._activities.ask(grace.census, call)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            self._board.note(f"who still asks {self._input.cluster} is not known: {cause_of(error)}")
            return None
        for drift in census.drift:
            self._board.alarm(f"{drift}: clients may write to {self._input.cluster} again")
        for stranded in census.stranded:
            self._board.alarm(f"{stranded}. End this migration with proceed, and start it again: it loads them again")
        self._state.facts.census = census
        self._board.publish()
        return census

    async def _clients_that_ask(self) -> str:
        """Why blue's topics must stay for now; empty where nobody asks for them."""
        before = self._state.facts.census
        now = await self._look()
        if now is None:
            return f"who still asks {self._input.cluster} is not known"
        if before is None:
            return "nobody has looked who asks before; the next look tells who came since this one"
        more = now.opened_since(before)
        if not more:
            return ""
        return (
            f"{more} connections were opened to {self._input.cluster} since the last look. Clients that begin there "
            f"find {self._input.green_cluster} only through it; give them its address"
        )

    async def _clean_blue(self) -> None:
        if not await self._timers.until_proceed(self._delete_topics()):
            self._migration.board.note(f"the cleanup was ended by `proceed`; the rest of {self._input.cluster} stays")

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
                self._migration.board.note(f"{remaining} topics of {self._input.cluster} cannot be deleted")
                return
            if remaining:
                await self._migration.continuation.checkpoint()
