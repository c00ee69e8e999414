"""What the steps of one bookie cluster switch share: its clusters, its registry, its claim."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter
from clients.errors import StoreConflict
from clients.pulsar.bookie_registry import BookieRegistry
from clients.store import StoreReader
from clients.stores import Access, open_reader
from clients.zookeeper.coordination import Coordination, CoordinationReader
from models.bookie_cluster.input import BookieCluster, BookieClusterInput, Direction, Routing
from models.bookie_registry import SwitchClaim, claim_node
from models.lifecycle.execution import Execution
from models.store_url import StoreUrl
from spark.bookie_cluster.spec import LedgerPair
from spark.engine import SparkEngine


class BookieClusterTask:
    """One step's view of its switch: entries go from `ends.source` to `ends.target`.

    Args:
        runtime: what the process shares.
        execution: the switch's input, and its run.
        direction: forward, or back in a rollback.
        workflow_id: the migration.
        step_id: the same in each attempt at one step, and in no other step of the run; empty where there is no other.
    """

    def __init__(
        self,
        runtime: Runtime,
        execution: Execution[BookieClusterInput],
        direction: Direction,
        workflow_id: str,
        *,
        step_id: str = "",
    ) -> None:
        self.runtime = runtime
        self.execution = execution
        self.input = execution.input
        self.direction = direction
        self.ends = self.input.ends(direction)
        self.workflow_id = workflow_id
        self.run_id = execution.run_id
        self.step_id = step_id

    @property
    def engine(self) -> SparkEngine:
        """The Spark session of this process."""
        return self.runtime.engine

    @property
    def access(self) -> Access:
        """Credentials and timeout for ZooKeeper."""
        return self.runtime.access

    @property
    def pair(self) -> LedgerPair:
        """Both clusters, as executors get them."""
        return LedgerPair(
            source=self.ends.source.root,
            target=self.ends.target.root,
            access=self.access,
            tls=self.runtime.bookie_tls,
            read_timeout=self.input.old_ledger_read_timeout.total_seconds(),
            store=self.input.store,
            claim=claim_node(self.input.registry_path, self.ends.switch_id),
            # What is not copied stays attributed to the source then, and nothing waits for a cluster that is gone.
            source_may_be_down=self.input.routing is Routing.ATTRIBUTION,
        )

    def claimed(self) -> tuple[LedgerPair, SwitchClaim]:
        """Claim this direction for a new attempt; tasks of every earlier attempt stop.

        Raises:
            StoreConflict: another migration holds the switch; or this run of it has ended, or a newer one has begun,
                and this is a late attempt.
        """
        with self.registry() as registry:
            self.require_run(registry)
            claim = self.claim(registry)
        return replace(self.pair, attempt=claim.attempt), claim

    def claim(self, registry: BookieRegistry) -> SwitchClaim:
        """Claim this direction for a new attempt of this run, whoever held it before in this migration's name.

        Raises:
            StoreConflict: another migration holds the switch.
        """
        return registry.take_claim(
            self.ends.switch_id,
            SwitchClaim(
                workflow_id=self.workflow_id,
                run_id=self.run_id,
                throttle=self.input.throttle,
                concurrency=self.input.migration_concurrency,
            ),
        )

    def require_run(self, registry: BookieRegistry) -> None:
        """The claim of the way there stands from REGISTER to the end of a run: without it an attempt comes too late.

        Raises:
            StoreConflict: this run has ended, or a newer one has begun.
        """
        found = registry.claim(self.input.ends(Direction.FORWARD).switch_id)
        if found is None or (found[0].workflow_id, found[0].run_id) != (self.workflow_id, self.run_id):
            raise StoreConflict("this run of the switch has ended, or a newer one has begun; a late attempt stops")

    def tag(self, context: ActivityContext) -> str:
        """A tag for Spark jobs, which are stopped when the step is cancelled."""
        tag = self.engine.new_tag(self.run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        return tag

    def zookeeper(self) -> Coordination:
        """A session with the brokers' metadata store; opens as a context manager, as all of these do."""
        return self._session(self.input.store)

    def reading(self, url: StoreUrl) -> CoordinationReader:
        """A session with a ZooKeeper that cannot write: of the brokers' metadata store, or of a cluster's ledgers."""
        return CoordinationReader(url, auth=self.access.zookeeper_auth, timeout=self.access.timeout)

    def id_generator(self, cluster: BookieCluster) -> Coordination:
        """A session with the root of a cluster's ledgers."""
        return self._session(cluster.root)

    @contextmanager
    def registry(self) -> Generator[BookieRegistry]:
        """The registry of bookie clusters."""
        with self.zookeeper() as zookeeper:
            yield BookieRegistry(zookeeper, self.input.registry_path)

    def broker_store(self) -> StoreReader:
        """The brokers' metadata store, for bulk reading."""
        return open_reader(self.input.store, self.access)

    def ledgers(self, cluster: BookieCluster) -> LedgerDirectory:
        """A cluster's ledgers; cannot write."""
        return LedgerDirectory(cluster.root, self.access)

    def ledgers_to_change(self, cluster: BookieCluster) -> LedgerDirectoryWriter:
        """A cluster's ledgers, to create, close and delete."""
        return LedgerDirectoryWriter(cluster.root, self.access)

    def _session(self, url: StoreUrl) -> Coordination:
        return Coordination(url, auth=self.access.zookeeper_auth, timeout=self.access.timeout)
