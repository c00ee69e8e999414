"""What the steps of one metadata store migration share: its stores, its claims, its watch."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime, SourceWatch
from activities.metadata_store.claims import TargetClaim
from activities.metadata_store.flag import FlagKeeper
from activities.metadata_store.replica import Replica
from clients.zookeeper.coordination import Coordination
from clients.zookeeper.watch import ChangeFeed
from models.lifecycle.execution import Execution
from models.metadata_store.flag import FlagPhase
from models.metadata_store.input import MetadataStoreInput, Mode
from spark.engine import SparkEngine
from spark.metadata_store.spec import Pair


class MetadataStoreTask:
    """One step's view of its migration."""

    def __init__(self, runtime: Runtime, execution: Execution[MetadataStoreInput], workflow_id: str) -> None:
        self.runtime = runtime
        self.execution = execution
        self.input = input = execution.input
        self.workflow_id = workflow_id
        self.run_id = execution.run_id
        self.pair = Pair(input.source_url, input.target_url, runtime.access, parts=input.concurrency)

    @property
    def engine(self) -> SparkEngine:
        """The Spark session of this process."""
        return self.runtime.engine

    @property
    def watch(self) -> SourceWatch | None:
        """The watch of this run's source, if this process holds it."""
        return self.runtime.watches.get(self.run_id)

    def new_watch(self) -> SourceWatch:
        """A watch in place of the one of this run, if there is one."""
        self.runtime.forget(self.run_id)
        watch = self.runtime.watches[self.run_id] = SourceWatch()
        return watch

    def new_feed(self) -> ChangeFeed:
        """A feed of the source's changes, not started yet."""
        return ChangeFeed(self.input.source_url, auth=self.runtime.access.zookeeper_auth)

    def tag(self, context: ActivityContext) -> str:
        """A tag for Spark jobs, which are stopped when the step is cancelled."""
        tag = self.engine.new_tag(self.run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        return tag

    def attempt(self, number: int) -> Pair:
        """The stores, to be written by one attempt."""
        return replace(self.pair, attempt=number)

    @contextmanager
    def flag(self) -> Generator[FlagKeeper]:
        """The migration flag in the source."""
        access = self.runtime.access
        with Coordination(self.input.source_url, auth=access.zookeeper_auth, timeout=access.timeout) as zookeeper:
            yield FlagKeeper(zookeeper, self.workflow_id, self.run_id)

    @contextmanager
    def replica(self, *phases: FlagPhase) -> Generator[Replica]:
        """Single paths of the target; writes are fenced by the flag's phase, offline by our record in the target."""
        if self.input.mode is Mode.LIVE:
            with self.flag() as flag, Replica(self.pair, lambda: flag.require(*phases)) as replica:
                yield replica
        else:
            with self.target_claim() as claim, Replica(self.pair, claim.require) as replica:
                yield replica

    def target_claim(self) -> TargetClaim:
        """Our record in the target."""
        return TargetClaim(self.input.target_url, self.runtime.access, self.workflow_id, self.run_id)


def some(paths: Iterable[bytes], most: int = 10) -> str:
    """Name a few paths, and say how many more there are."""
    named = sorted(paths)
    text = ", ".join(path.decode(errors="backslashreplace") for path in named[:most])
    return text + (f" and {len(named) - most} more" if len(named) > most else "")
