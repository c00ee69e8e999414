"""After the commit: the validation window, what is still written to the source meanwhile, and the source's end."""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.metadata_store import catch_up, census, cleanup, cutover
from models.lifecycle.failures import FailedItem, FailedItems, FailureKind
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput, Mode
from models.metadata_store.phases import Phase
from models.metadata_store.results import Census, Completion, LateWrites
from models.metadata_store.state import MetadataStoreState
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.retention_window import RetentionWindow
from workflows.metadata_store.watcher import on_watcher

# The watch of a worker that is gone needs no end.
_FORGETTING = timedelta(seconds=10)

# A source may be gone for good in the window, and what asks it must not keep `proceed` from ending that.
_LOOKING, _FOLLOWING, _LAST_CHECK = timedelta(minutes=2), timedelta(hours=1), timedelta(minutes=10)

LATE = (
    "after the commit brokers or bookies still wrote to the source: it is copied at each look, and lost if they go on "
    "after the window. Restart those that `still_on_source` names"
)
"""The alarm of writes to the source that came after the commit."""

_STILL_WRITTEN = (
    "the window stays open: services wrote to the source since the last check. That was copied now, and nothing is "
    "copied after the window. Restart those that `still_on_source` names, and end the window again: a `proceed` after "
    "this note ends it even if they still write"
)

_CONTESTED = "contested record(s)"
_KEPT = (
    "records were deleted in the source, and the target keeps them: no service is left there, or it was too much for "
    "one. Leave the source alone until the window has ended"
)


class ValidationWindow:
    """The time between the commit and the end of the migration (PIP-454, "COMPLETED").

    Args:
        migration: whose state and parts it uses.
    """

    def __init__(self, migration: Migration[MetadataStoreInput, MetadataStoreState]) -> None:
        self._migration = migration
        self._input = migration.input
        self._state = migration.state
        self._verbs = migration.verbs
        self._board = migration.board
        self._activities = migration.activities
        self._window = RetentionWindow(migration, migration.input, f"the source {migration.input.source}")

    async def watch(self) -> None:
        """Wait for the end of the window.

        It stays open for a cleanup that would hit a service, and where services still write to the source, until
        `proceed` follows that note.
        """
        length = self._input.validation_window
        await self._window.keep("validation", length, check=self._take_census, open_because=self._last_check)

    async def clean_up(self) -> Outcome:
        """Remove the source's records, where that is asked for; how the migration ends."""
        if self._state.running_phase != Phase.CLEANUP:
            await self.forget_watch()
        return await self._window.clean_up(Phase.CLEANUP, self._remove_records)

    async def forget_watch(self) -> None:
        """End the watch of the source, which nobody asks any more."""
        if self._input.mode is Mode.LIVE and self._state.pre:
            call = on_watcher(self._state, "End the watch of the source", total=_FORGETTING)
            await self._activities.try_run(catch_up.forget_watch, call, "the watch of the source was not ended")

    def report_contested(self, late: Completion | LateWrites) -> None:
        """Add records that both sides have written to those of before."""
        why = "written in both stores around the commit; the target's state stands"
        items = tuple(FailedItem(path=path, reason=why) for path in late.contested)
        count = max(late.contested_count, len(items))
        before = self._state.failed.get(_CONTESTED, FailedItems(what=_CONTESTED))
        self._board.report_failures(before.joined(FailedItems(what=_CONTESTED, items=items, count=count)))

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _last_check(self) -> str:
        """Return why the window stays open; empty if it ends.

        Checks are up to 2.4 hours apart, and what a service writes to the source after the last one is lost.
        """
        # mutant: metadata-store/no-check-before-the-watch-ends
        late = await (self._take_census() if self._window.cleanup_is_due else self._follow(_LAST_CHECK))
        # `proceed` may have come since.
        if self._window.cleanup_is_due:
            facts = self._state.facts
            if facts.still_on_source:  # mutant: metadata-store/a-source-in-use-is-removed
                return f"cleanup refused, the source is still in use: {'; '.join(facts.still_on_source)}"
            if facts.not_known:  # mutant: metadata-store/removed-while-users-are-unknown
                return f"cleanup refused, it is not known who uses the source: {'; '.join(facts.not_known)}"
        if not late:
            return ""
        vouched = self._verbs.proceed_wanted and not self._verbs.cleanup_wanted
        # mutant: metadata-store/a-first-proceed-ends-a-window-that-is-still-written
        if vouched and self._state.refused_cleanup == _STILL_WRITTEN:
            self._board.note(
                "`proceed` ended the window although services wrote to the source since the check before; that was "
                f"copied (records after the commit: {self._state.certificate.late_writes_followed or 0:,}), and "
                "what they write from now on is not"
            )
            return ""
        return _STILL_WRITTEN  # mutant: metadata-store/late-writes-end-the-window

    async def _take_census(self) -> int:
        """Ask who uses the source, and follow what is written there; returns how many writes services made."""
        # Who watches the source knows its own sessions there.
        call = on_watcher(self._state, "Who still uses the source?", total=_LOOKING)
        known = True
        try:
            users = await self._activities.ask(census.census, call, self._state.sessions)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            # The migration is committed, whatever becomes of its source: where nobody knows, it counts as in use, and
            # the window is ended by its verbs.
            known, users = False, Census(services=(f"not known: {cause_of(error)}",), unknown=())
        self._state.facts.update(still_on_source=list(users.services), not_known=list(users.unknown))
        self._board.publish()
        return await self._follow(_FOLLOWING) if known else 0

    async def _follow(self, total: timedelta) -> int:
        """Copy what services that have not followed the commit write to the source; returns how many writes."""
        # A run that was reset to before PRE_COPY has found its commit, and knows nothing of the copy.
        if self._input.mode is Mode.OFFLINE or not self._state.pre:
            return 0
        try:
            call = on_watcher(self._state, "Copy what is still written to the source", total=total)
            late = await self._activities.ask(cutover.follow, call, self._state.pre)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            self._board.alarm(f"what is still written to the source is not copied: {cause_of(error)}")
            return 0
        if late.kept:
            self._board.alarm(_KEPT)
        # What a tool writes all the time is followed until the end of the window, and does not move that.
        services = late.copied - late.foreign
        if services:
            self._board.alarm(LATE)  # mutant: metadata-store/late-writes-are-not-reported
        if late.copied:
            certificate = self._state.certificate
            certificate.late_writes_followed = (certificate.late_writes_followed or 0) + late.copied
        self.report_contested(late)
        return services

    async def _remove_records(self) -> None:
        if self._state.figures.removed_from_source is None:
            count = await self._activities.run(cleanup.count_source, Call("Dry run: count what will be removed"))
            self._board.note(f"cleanup removes {count:,} records from {self._input.source}")
        remaining = 1
        while remaining:
            call = Call("Remove a bounded part of the source")
            # mutant: metadata-store/a-cleanup-that-knows-no-sessions
            part = await self._activities.run(cleanup.clean_source, call, self._state.sessions)
            self._state.figures.removed_from_source = (self._state.figures.removed_from_source or 0) + part.removed
            if part.remaining and not part.removed:  # mutant: metadata-store/a-cleanup-without-end
                why = f"{part.remaining:,} records of the source cannot be removed; does somebody write there?"
                raise ApplicationError(why, type=FailureKind.CONTENTION, non_retryable=True)
            remaining = part.remaining
            if remaining:
                await self._migration.continuation.checkpoint()
