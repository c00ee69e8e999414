"""Context of the steps of a metadata store migration: its stores, its claims, its watch."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.metadata_store.background_tasks import BackgroundTasks
from activities.metadata_store.claims import TargetKeeper
from activities.metadata_store.flag import FlagKeeper, read_state
from activities.metadata_store.source_watch import SourceWatch, Watches
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.stores_task import StoresTask
from clients.cas.claims import ClaimKeeper
from clients.stores import late_writes_last, open_cas, revoke_permits
from clients.zookeeper.watch import ChangeFeed
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.lifecycle.status import WaitKind
from models.metadata_store.claims import SourceClaim
from models.metadata_store.input import KIND, MetadataStoreInput, Mode
from models.migration_flag import FlagPhase
from spark.metadata_store.replica import Replica
from spark.metadata_store.spec import Pair

_log = logging.getLogger(__name__)

# Added to the deadline, so that the workflow's own rollback, which also cleans up, comes first.
_GRACE = 10.0
# Seconds between attempts to unblock writes, in the first minute and later. A source that is down for longer does not
# block services until it is back, and many of them must not keep the process busy.
_FIRST_RETRY_SECONDS, _LATER_RETRY_SECONDS = 1.0, 10.0
# Pauses between repetitions of the flag: for twice the default session timeout, then for a bookie's pause between two
# garbage collections. A service that lost its session does not read the flag when it is back (5.0.1), and a bookie that
# still reads the source deletes ledgers that the source does not have.
_REPEAT_FLAG = (5.0,) * 12 + (30.0,) * 28


class MetadataStoreTask(StoresTask[MetadataStoreInput]):
    """One attempt at a step of the migration, with its stores, claims and watch. Arguments as in `StepTask`."""

    kind = KIND
    input_type = MetadataStoreInput

    def __init__(
        self,
        runtime: Runtime,
        execution: Execution[MetadataStoreInput],
        attempt: Attempt,
        context: ActivityContext,
    ) -> None:
        super().__init__(runtime, execution, attempt, context)
        self._background = runtime.shared(BackgroundTasks)
        self._watches = runtime.shared(Watches)
        #: Metadata writes are blocked until this step is done.
        self.urgent = False
        self._flag: FlagKeeper | None = None

    @property
    def pair(self) -> Pair:
        """Both stores, for reading only."""
        input = self.input
        return Pair(input.source_url, input.target_url, self.access, parts=input.concurrency, urgent=self.urgent)

    @property
    def source_has_flag(self) -> bool:
        """True if Pulsar keeps a migration flag in the source: it is a ZooKeeper."""
        return self.input.source_url.scheme == "zk"

    @property
    def watch(self) -> SourceWatch:
        """The watch of this run's source; a new one with a gap if this process has none."""
        return self._watches.of(self.attempt)

    def new_watch(self) -> SourceWatch:
        """Return a new watch with a gap, in place of this run's watch.

        Raises:
            Superseded: a newer attempt created that one.
        """
        return self._watches.renew(self.attempt)

    def forget_watch(self) -> None:
        """End the watch of this run; safe without one."""
        self._watches.forget(self.run_id)

    def survey(self, census: FeatureCensus) -> None:
        """Add the features that the source's cluster uses to a census.

        Raises:
            StoreError: the source cannot be read.
        """
        survey(census, self.input.source_url, self.access, self.admin)

    def watch_deadline(self, flag: FlagKeeper) -> None:
        """Schedule this process to unblock writes after the deadline, in case Temporal is not available then.

        The deadline counts from when writes were blocked, by whichever process. The workflow's own deadline comes
        first; a late attempt finds that the flag or the claim was moved.
        """
        due = max(self.input.blocked_deadline.total_seconds() + _GRACE - flag.blocked_seconds(), 0.0)

        def expire() -> bool:
            with open_cas(self.input.source_url, self.access) as store:
                before = read_state(store)
                FlagKeeper(store, self.attempt).expire()
            if before.blocked_by(self.workflow_id):
                _log.warning("%s: the deadline passed with metadata writes blocked; unblocked them", self.workflow_id)
            return True

        self._background.schedule(
            f"deadline of {self.run_id}",
            chain([due], repeat(_FIRST_RETRY_SECONDS, 60), repeat(_LATER_RETRY_SECONDS)),
            expire,
        )

    def repeat_flag(self) -> None:
        """Schedule this process to repeat the flag for a while, for services that were disconnected when it was set."""

        def again() -> bool:
            with open_cas(self.input.source_url, self.access) as store:
                return not FlagKeeper(store, self.attempt).rebroadcast()

        self._background.schedule(f"flag of {self.run_id}", _REPEAT_FLAG, again)

    def new_feed(self) -> ChangeFeed:
        """Return a feed of the source's changes, not started yet."""
        return ChangeFeed(self.input.source_url, access=self.access.to(self.input.source_url).zookeeper)

    @property
    def fenced_pair(self) -> Pair:
        """Both stores, for tasks that write while this attempt holds the claim of the store."""
        return replace(self.pair, attempt=self.attempt)

    @contextmanager
    def source_claim(self) -> Generator[ClaimKeeper[SourceClaim]]:
        """Open the claim in the source, which excludes other migrations of its cluster."""
        with open_cas(self.input.source_url, self.access) as store:
            yield ClaimKeeper(store, SourceClaim, self.attempt)

    @contextmanager
    def target_claim(self) -> Generator[TargetKeeper]:
        """Open the claim in the target."""
        with open_cas(self.input.target_url, self.access) as store:
            yield TargetKeeper(store, self.attempt, str(self.input.source_url))

    @contextmanager
    def flag(self) -> Generator[FlagKeeper]:
        """Open the migration flag in the source, with the claim there; nested `with` blocks share a session."""
        # A session costs round trips, and most of these are opened while writes are blocked.
        if self._flag is not None:
            yield self._flag
            return
        with open_cas(self.input.source_url, self.access) as store:
            self._flag = FlagKeeper(store, self.attempt)
            try:
                yield self._flag
            finally:
                self._flag = None

    @contextmanager
    def replica(self, *phases: FlagPhase) -> Generator[Replica]:
        """Open the target for writes of single paths, while this attempt is the newest.

        In live mode the fence is the claim in the source, with the flag in one of these phases; offline, the claim in
        the target.
        """
        if self.input.mode is Mode.LIVE:
            with self.flag() as flag:
                # Moves the claim: an earlier attempt that still runs fails at its next check.
                flag.renew()
                self.stop_earlier_writers()
                # mutant: metadata-store/copies-of-late-writes-are-forgotten
                late_writes = self.watch.late_writes if FlagPhase.COMPLETED in phases else None
                with Replica(self.pair, lambda: flag.require(*phases), late_writes) as replica:
                    yield replica
        else:
            with self.target_claim() as claim:
                claim.renew()
                self.stop_earlier_writers()
                with Replica(self.pair, claim.require) as replica:
                    yield replica

    @contextmanager
    def only_copies(self) -> Generator[None]:
        """Copy while no late copies of lost attempts can arrive; to be entered before both stores are compared.

        Bulk tasks of lost attempts must have lost the target's claim before. The source's claim, which is also held
        after the commit, says that copies may be on their way until this ends without an error.
        """
        with self.flag() as flag:
            # Moved before it is read: no earlier attempt can start to copy after that.
            lost = flag.renew().copying
            flag.renew(copying=True)
        if lost:
            self._stop_lost_copies()
        yield
        with self.flag() as flag:
            flag.renew(copying=False)

    def _stop_lost_copies(self) -> None:
        """Stop copies of lost attempts, and wait until what they have sent can no longer arrive."""
        # Before the commit, an attempt that copies one record asks for the target's claim.
        with self.target_claim() as claim:
            if claim.is_held():
                claim.renew()
        self.stop_earlier_writers()  # mutant: metadata-store/lost-copies-keep-their-permits
        self.await_late_writers(time.monotonic())  # mutant: metadata-store/lost-tasks-are-not-waited-for

    def stop_earlier_tasks(self) -> None:
        """Move the target's claim to this attempt; bulk tasks of earlier attempts stop."""
        with self.target_claim() as claim:
            claim.renew()

    def await_late_writers(self, since: float) -> None:
        """Wait until no late writes of attempts that lost their claim can arrive any more.

        Late writes of a frozen task or network would restore records that were deleted in the source since, or that
        services delete after the commit. ZooKeeper refuses them by itself.

        Args:
            since: when the claim was moved, by this process' monotonic clock.
        """
        remaining = since + late_writes_last(self.input.target_url) - time.monotonic()
        if remaining > 0:
            with self.context.waiting(
                WaitKind.STORE, "late writes of lost tasks, which may still arrive in the target"
            ):
                self.context.pause(remaining)

    def stop_earlier_writers(self) -> None:
        """Make a ZooKeeper target refuse writes of earlier attempts, which must have lost their claim."""
        # Only bulk deletions of Oxia use sessions; late writes of single paths are waited for, see `only_copies`.
        if self.input.target_url.scheme == "zk":
            revoke_permits(self.input.target_url, self.access)


def name_paths(paths: Iterable[bytes], most: int = 10) -> str:
    """Name a few paths, and say how many more there are."""
    named = sorted(paths)
    text = ", ".join(path.decode(errors="backslashreplace") for path in named[:most])
    return text + (f" and {len(named) - most} more" if len(named) > most else "")
