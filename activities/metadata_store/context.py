"""What the steps of one metadata store migration share: its stores, its claims, its watch."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.source_watch import SourceWatch
from activities.metadata_store.claims import TargetKeeper
from activities.metadata_store.flag import FlagKeeper
from activities.metadata_store.replica import Replica
from clients.cas.claims import ClaimKeeper
from clients.stores import open_cas
from clients.zookeeper.watch import ChangeFeed
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.metadata_store.claims import SourceClaim
from models.metadata_store.input import MetadataStoreInput, Mode
from models.migration_flag import FlagPhase
from spark.engine import SparkEngine
from spark.metadata_store.spec import Pair


class MetadataStoreTask:
    """One attempt's view of its migration.

    Args:
        runtime: what the process shares.
        execution: the migration's input.
        attempt: which attempt of the migration this is.
    """

    def __init__(self, runtime: Runtime, execution: Execution[MetadataStoreInput], attempt: Attempt) -> None:
        self.runtime = runtime
        self.input = input = execution.input
        self.attempt = attempt
        self.workflow_id = attempt.workflow_id
        self.run_id = attempt.run_id
        self.pair = Pair(input.source_url, input.target_url, runtime.access, parts=input.concurrency)
        self._flag: FlagKeeper | None = None

    @property
    def engine(self) -> SparkEngine:
        """The Spark session of this process."""
        return self.runtime.engine

    @property
    def watch(self) -> SourceWatch:
        """The watch of this run's source; a new one, with a gap, if this process has none."""
        return self.runtime.watches.of(self.attempt)

    def new_watch(self) -> SourceWatch:
        """A watch, with a gap, in place of the one of this run, if there is one.

        Raises:
            Superseded: a newer attempt made that one.
        """
        return self.runtime.watches.renew(self.attempt)

    def forget_watch(self) -> None:
        """End the watch of this run; harmless where there is none."""
        self.runtime.watches.forget(self.run_id)

    def new_feed(self) -> ChangeFeed:
        """A feed of the source's changes, not started yet."""
        return ChangeFeed(self.input.source_url, auth=self.runtime.access.zookeeper_auth)

    def tag(self, context: ActivityContext) -> str:
        """A tag for Spark jobs, which are stopped when the step is cancelled."""
        tag = self.engine.new_tag(self.run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        return tag

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
            yield TargetKeeper(store, self.attempt)

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

        Live, the claim in the source is the fence, and the flag beside it, which must stand in one of these phases;
        offline, the claim in the target.
        """
        if self.input.mode is Mode.LIVE:
            with self.flag() as flag:
                # Moves the claim: an earlier attempt that still runs fails at its next look.
                flag.renew()
                with Replica(self.pair, lambda: flag.require(*phases)) as replica:
                    yield replica
        else:
            with self.target_claim() as claim:
                claim.renew()
                with Replica(self.pair, claim.require) as replica:
                    yield replica


def some(paths: Iterable[bytes], most: int = 10) -> str:
    """Name a few paths, and say how many more there are."""
    named = sorted(paths)
    text = ", ".join(path.decode(errors="backslashreplace") for path in named[:most])
    return text + (f" and {len(named) - most} more" if len(named) > most else "")
