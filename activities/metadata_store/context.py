"""What the steps of one metadata store migration share: its stores, its claims, its watch."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
from activities.metadata_store.background_tasks import BackgroundTasks
from activities.metadata_store.claims import TargetKeeper
from activities.metadata_store.flag import FlagKeeper, read_state
from activities.metadata_store.source_watch import SourceWatch, Watches
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
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

# Beyond the deadline, so that the workflow's own way back, which also clears up, comes first.
_GRACE = 10.0
# Seconds between tries to give writes back, in the first minute and later: a source that is gone for longer blocks
# nobody until it is back, and many such must not keep the process busy.
_OFTEN, _SELDOM = 1.0, 10.0
# Pauses between repetitions of the flag: twice the default session timeout, then as long as a bookie's pause between
# two collections. A service that has lost its session does not read the flag when it is back (5.0.1), and a bookie that
# still reads the source deletes ledgers that the source does not know.
_REPEAT_FLAG = (5.0,) * 12 + (30.0,) * 28


class MetadataStoreTask(StepTask[MetadataStoreInput]):
    """One attempt's view of its migration: its stores, its claims, its watch. Arguments as in `StepTask`."""

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
        input = self.input
        self._pair = Pair(input.source_url, input.target_url, runtime.access, parts=input.concurrency)
        #: Whether metadata writes are blocked until this step is done.
        self.urgent = False
        self._flag: FlagKeeper | None = None

    @property
    def pair(self) -> Pair:
        """Both stores, for whoever only reads."""
        return replace(self._pair, urgent=self.urgent)

    @property
    def source_has_flag(self) -> bool:
        """Whether the source is one in which Pulsar keeps a migration flag."""
        return self.input.source_url.scheme == "zk"

    @property
    def watch(self) -> SourceWatch:
        """The watch of this run's source; a new one, with a gap, if this process has none."""
        return self._watches.of(self.attempt)

    def new_watch(self) -> SourceWatch:
        """A watch, with a gap, in place of the one of this run, if there is one.

        Raises:
            Superseded: a newer attempt made that one.
        """
        return self._watches.renew(self.attempt)

    def forget_watch(self) -> None:
        """End the watch of this run; harmless where there is none."""
        self._watches.forget(self.run_id)

    def survey(self, census: FeatureCensus) -> None:
        """Have a census take what the cluster of the source uses.

        Raises:
            StoreError: the source cannot be read.
        """
        survey(census, self.input.source_url, self.runtime.access, self.runtime.admin)

    def watch_deadline(self) -> None:
        """Have this process give writes back where nobody else does: when the deadline has passed, without Temporal.

        The workflow's own deadline comes first, and everything else finds the flag, or the claim, moved.
        """
        due = self.input.blocked_deadline.total_seconds() + _GRACE

        def expire() -> bool:
            with open_cas(self.input.source_url, self.runtime.access) as store:
                before = read_state(store)
                FlagKeeper(store, self.attempt).expire()
            if before.blocked_by(self.workflow_id):
                _log.warning("%s: the deadline passed with metadata writes blocked; gave them back", self.workflow_id)
            return True

        self._background.schedule(
            f"deadline of {self.run_id}", chain([due], repeat(_OFTEN, 60), repeat(_SELDOM)), expire
        )

    def repeat_flag(self) -> None:
        """Have this process set the flag again for a while, for services that were cut off when it was moved."""

        def again() -> bool:
            with open_cas(self.input.source_url, self.runtime.access) as store:
                return not FlagKeeper(store, self.attempt).rebroadcast()

        self._background.schedule(f"flag of {self.run_id}", _REPEAT_FLAG, again)

    def new_feed(self) -> ChangeFeed:
        """A feed of the source's changes, not started yet."""
        return ChangeFeed(self.input.source_url, auth=self.runtime.access.zookeeper_auth)

    @property
    def fenced_pair(self) -> Pair:
        """The stores, whose tasks write as long as this attempt holds the claim of the store that they write to."""
        return replace(self.pair, attempt=self.attempt)

    @contextmanager
    def source_claim(self) -> Generator[ClaimKeeper[SourceClaim]]:
        """The claim in the source, which excludes other migrations of its cluster."""
        with open_cas(self.input.source_url, self.runtime.access) as store:
            yield ClaimKeeper(store, SourceClaim, self.attempt)

    @contextmanager
    def target_claim(self) -> Generator[TargetKeeper]:
        """The claim in the target."""
        with open_cas(self.input.target_url, self.runtime.access) as store:
            yield TargetKeeper(store, self.attempt, str(self.input.source_url))

    @contextmanager
    def flag(self) -> Generator[FlagKeeper]:
        """The migration flag in the source, with the claim there; a `with` inside another shares its session."""
        # A session costs round trips, and most of these are opened while writes are blocked.
        if self._flag is not None:
            yield self._flag
            return
        with open_cas(self.input.source_url, self.runtime.access) as store:
            self._flag = FlagKeeper(store, self.attempt)
            try:
                yield self._flag
            finally:
                self._flag = None

    @contextmanager
    def replica(self, *phases: FlagPhase) -> Generator[Replica]:
        """Single paths of the target, which this attempt may write while it is the newest.

        Live, the claim in the source is the fence, and the flag next to it, which must stand in one of these phases;
        offline, the claim in the target.
        """
        if self.input.mode is Mode.LIVE:
            with self.flag() as flag:
                # Moves the claim: an earlier attempt that still runs fails at its next look.
                flag.renew()
                self._stop_earlier_writers()
                with Replica(self.pair, lambda: flag.require(*phases)) as replica:
                    yield replica
        else:
            with self.target_claim() as claim:
                claim.renew()
                self._stop_earlier_writers()
                with Replica(self.pair, claim.require) as replica:
                    yield replica

    def await_late_writers(self, since: float) -> None:
        """Wait until the target applies nothing any more that bulk tasks sent before they lost its claim.

        Such a task may be frozen, or its network may be: what it sent would bring back what services delete after the
        commit. ZooKeeper refuses it by itself.

        Args:
            since: when the claim was moved, by this process' monotonic clock.
        """
        left = since + late_writes_last(self.input.target_url) - time.monotonic()
        if left > 0:
            with self.context.waiting(
                WaitKind.STORE, "the end of what lost tasks may still have on its way to the target"
            ):
                self.context.pause(left)

    def _stop_earlier_writers(self) -> None:
        # To Oxia single paths are written by version; the sessions that its bulk deletions use are no matter here.
        if self.input.target_url.scheme == "zk":
            revoke_permits(self.input.target_url, self.runtime.access)


def some(paths: Iterable[bytes], most: int = 10) -> str:
    """Name a few paths, and say how many more there are."""
    named = sorted(paths)
    text = ", ".join(path.decode(errors="backslashreplace") for path in named[:most])
    return text + (f" and {len(named) - most} more" if len(named) > most else "")
