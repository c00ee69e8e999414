"""The validation window after the commit: copies of late writes to the source, and its cleanup."""

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

# Short: if its worker is gone, the watch is gone, too.
_END_WATCH_TIMEOUT = timedelta(seconds=10)

# The source may be gone permanently in the window; a check of it must not delay `proceed`.
_CENSUS_TIMEOUT, _FOLLOW_TIMEOUT, _LAST_CHECK_TIMEOUT = timedelta(minutes=2), timedelta(hours=1), timedelta(minutes=10)

LATE = (
    "after the commit brokers or bookies still wrote to the source: it is copied at each check, and lost if they "
    "continue after the window. Restart those that `still_on_source` names"
)
"""The alarm of writes to the source that came after the commit."""

_STILL_WRITTEN = (
    "the window stays open: services wrote to the source since the last check. That was copied now, and nothing is "
    "copied after the window. Restart those that `still_on_source` names, and end the window again: a `proceed` after "
    "this note ends it even if they still write"
)

_CONTESTED = "contested record(s)"
_KEPT = (
    "records were deleted in the source, and the target keeps them: no service uses the source, or too many were "
    "deleted at once. Do not change the source until the window has ended"
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
        """Remove the source's records if that is requested; return the outcome of the migration."""
        if self._state.running_phase != Phase.CLEANUP:
            await self.forget_watch()
        return await self._window.clean_up(Phase.CLEANUP, self._remove_records)

    async def forget_watch(self) -> None:
        """End the watch of the source, which is no longer needed."""
        if self._input.mode is Mode.LIVE and self._state.pre:
            call = on_watcher(self._state, "End the watch of the source", total=_END_WATCH_TIMEOUT)
            await self._activities.try_run(catch_up.forget_watch, call, "the watch of the source was not ended")

    def report_contested(self, late: Completion | LateWrites) -> None:
        """Add records that were written on both sides to the earlier ones."""
        why = "written in both stores around the commit; the target's state is kept"
        items = tuple(FailedItem(path=path, reason=why) for path in late.contested)
        before = self._state.failed.get(_CONTESTED, FailedItems(what=_CONTESTED))
        joined = before.joined(FailedItems(what=_CONTESTED, items=items, count=len(items)))
        # Each check counts records of earlier checks again, of which not all are named.
        count = max(joined.count, late.contested_count)
        self._board.report_failures(joined.model_copy(update={"count": count}))

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _last_check(self) -> str:
        """Return why the window stays open; empty if it ends.

        Checks are up to 2.4 hours apart, and what a service writes to the source after the last one is lost.
        """
        # mutant: metadata-store/no-check-before-the-watch-ends
        late = await (self._take_census() if self._window.cleanup_is_due else self._follow(_LAST_CHECK_TIMEOUT))
        # `proceed` may have come since.
        if self._window.cleanup_is_due:
            facts = self._state.facts
            if facts.still_on_source:  # mutant: metadata-store/a-source-in-use-is-removed
                return f"cleanup refused, the source is still in use: {'; '.join(facts.still_on_source)}"
            if facts.not_known:  # mutant: metadata-store/removed-while-users-are-unknown
                return f"cleanup refused, it is not known who uses the source: {'; '.join(facts.not_known)}"
        if not late:
            return ""
        confirmed = self._verbs.proceed_wanted and not self._verbs.cleanup_wanted
        # mutant: metadata-store/a-first-proceed-ends-a-window-that-is-still-written
        if confirmed and self._state.refused_cleanup == _STILL_WRITTEN:
            self._board.note(
                "`proceed` ended the window although services wrote to the source since the check before; that was "
                f"copied (records after the commit: {self._state.certificate.late_writes_followed or 0:,}), and "
                "what they write from now on is not"
            )
            return ""
        return _STILL_WRITTEN  # mutant: metadata-store/late-writes-end-the-window

    async def _take_census(self) -> int:
        """Update the users of the source, and copy late writes; return how many writes services made."""
        # The worker that watches the source can exclude its own sessions.
        call = on_watcher(self._state, "Who still uses the source?", total=_CENSUS_TIMEOUT)
        succeeded = True
        try:
            users = await self._activities.ask(census.census, call, self._state.sessions)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            # The migration is committed, also if its source fails: an unknown source counts as in use, and verbs end
            # the window.
            succeeded, users = False, Census(services=(f"not known: {cause_of(error)}",), unknown=())
        self._state.facts.update(still_on_source=list(users.services), not_known=list(users.unknown))
        self._board.publish()
        return await self._follow(_FOLLOW_TIMEOUT) if succeeded else 0

    async def _follow(self, total: timedelta) -> int:
        """Copy late writes of services to the source; return how many writes services made."""
        # A run that was reset to before PRE_COPY has found its commit, and has no result of the copy.
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
        if late.not_deleted:
            self._board.alarm(_KEPT)
        # Writes of tools are copied until the end of the window, and do not keep it open.
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
            step = await self._activities.run(cleanup.clean_source, call, self._state.sessions)
            self._state.figures.removed_from_source = (self._state.figures.removed_from_source or 0) + step.removed
            if step.remaining and not step.removed:  # mutant: metadata-store/a-cleanup-without-end
                why = f"{step.remaining:,} records of the source cannot be removed; does a client write there?"
                raise ApplicationError(why, type=FailureKind.CONTENTION, non_retryable=True)
            remaining = step.remaining
            if remaining:
                await self._migration.continuation.checkpoint()
