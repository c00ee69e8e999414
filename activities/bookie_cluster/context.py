"""Context of the steps of a bookie cluster migration: its clusters, its registry, its claim."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from activities.bookie_cluster.broker_control import BrokerController
from activities.pulsar.brokers import BrokerView
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.stores_task import StoresTask
from clients.bookkeeper.cluster import Cluster, open_cluster
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasReader
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import StoreReader
from clients.stores import open_cas, open_cas_reader, open_reader, revoke_permits
from clients.zookeeper.coordination import Coordination, CoordinationReader
from models.bookie_cluster.input import KIND, BookieCluster, BookieClusterInput, Direction, Ends, Routing
from models.bookie_registry import SwitchClaim
from models.store_url import StoreUrl
from spark.bookie_cluster.spec import LedgerPair


class BookieClusterTask(StoresTask[BookieClusterInput]):
    """One attempt at a step of a switch: entries go from `ends.source` to `ends.target`. Arguments as in `StepTask`.

    Attributes:
        direction: forward by default; `toward` sets it, to back in a rollback.
    """

    kind = KIND
    prefix = "bookie_cluster"
    input_type = BookieClusterInput
    direction = Direction.FORWARD

    def toward(self, direction: Direction) -> Self:
        """Return this attempt in a direction."""
        view = copy.copy(self)
        view.direction = direction
        return view

    @property
    def ends(self) -> Ends:
        """Return the cluster that brokers leave in this direction, and the one that they will use."""
        return self.input.ends(self.direction)

    @property
    def pair(self) -> LedgerPair:
        """Both clusters, as executors get them."""
        return LedgerPair(
            source=self.ends.source.root,
            target=self.ends.target.root,
            access=self.access,
            read_timeout=self.input.old_ledger_read_timeout.total_seconds(),
            store=self.input.store,
            attempt=self.attempt,
            # Ledgers that are not copied then stay attributed to the source, and no step waits for a lost cluster.
            source_may_be_down=self.input.routing is Routing.ATTRIBUTION,
        )

    def renew(self) -> None:
        """Move the claim to this attempt; every earlier one stops.

        Raises:
            StoreConflict: this run has ended, or a newer attempt or run has begun, and this is a late attempt.
        """
        with self.registry() as registry:
            registry.claim.renew()
        self.stop_earlier_deletions()

    def stop_earlier_deletions(self) -> None:
        """Revoke the permits of earlier attempts, so that the server refuses their deletions; renew the claim first.

        It does so where ledgers and claim are on the same servers. Otherwise a request that was frozen between the
        fence and the server may still arrive, as long as its session lives.

        Raises:
            StoreError: the brokers' metadata store cannot be written.
        """
        revoke_permits(self.input.store, self.access)

    def survey(self, census: FeatureCensus) -> None:
        """Add the features of the cluster to a census.

        Raises:
            StoreError: the brokers' metadata store cannot be read.
        """
        store = self.input.store
        # Both clusters may keep their ledgers' metadata next to the brokers', below any name.
        own = [
            "/" + cluster.root.root.removeprefix(store.root).split("/")[1]
            for cluster in (self.input.source, self.input.target)
            if cluster.root.root.startswith(f"{store.root}/") and cluster.root.shares_servers(store)
        ]
        survey(census, store, self.access, self.admin, own=own)

    def zookeeper(self) -> Coordination:
        """Return a session with the brokers' metadata store; opens as a context manager, as all of these do."""
        return self._session(self.input.store)

    def reading(self, url: StoreUrl) -> CoordinationReader:
        """Open a read-only session with a ZooKeeper: of the brokers' metadata store, or of a cluster's ledgers."""
        own = self.access.to(url)
        return CoordinationReader(url, access=own.zookeeper, timeout=own.timeout)

    def id_generator(self, cluster: BookieCluster) -> Coordination:
        """Return a session with the root of a cluster's ledgers."""
        return self._session(cluster.root)

    @contextmanager
    def registry(self) -> Generator[BookieRegistry]:
        """Open the registry of bookie clusters, with the claim on the brokers' metadata store."""
        with open_cas(self.input.store, self.access) as store:
            yield BookieRegistry(store, self.input.registry_path, ClaimKeeper(store, SwitchClaim, self.attempt))

    def reading_store(self) -> CasReader:
        """Return single records of the brokers' metadata store; cannot write."""
        return open_cas_reader(self.input.store, self.access)

    def broker_store(self) -> StoreReader:
        """Return the brokers' metadata store, for bulk reading."""
        return open_reader(self.input.store, self.access)

    def ledgers(self, cluster: BookieCluster) -> LedgerDirectory:
        """Return a cluster's ledgers; cannot write."""
        return LedgerDirectory(cluster.root, self.access)

    def ledgers_to_change(self, cluster: BookieCluster) -> LedgerDirectoryWriter:
        """Return a cluster's ledgers, to create, close and delete."""
        return LedgerDirectoryWriter(cluster.root, self.access, self.input.store)

    def bookkeeper(self, cluster: BookieCluster) -> AbstractContextManager[Cluster]:
        """Return a cluster's ledgers, and connections to its bookies."""
        return open_cluster(cluster.root, self.access, self.pair.read_timeout)

    def broker_view(self) -> BrokerView:
        """Return a view of the brokers' answers."""
        return BrokerView(self.admin)

    def broker_controller(self) -> BrokerController:
        """Return the controller that stops and starts brokers in this direction."""
        return BrokerController(self, self.direction)

    def _session(self, url: StoreUrl) -> Coordination:
        own = self.access.to(url)
        return Coordination(url, access=own.zookeeper, timeout=own.timeout)
