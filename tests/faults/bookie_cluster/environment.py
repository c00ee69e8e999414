"""The cluster of a bookie cluster migration: its sides, its light dataset, its registry and ledgers from outside."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from activities.bookie_cluster.progress import COPIES, REPORTED
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerRecord
from clients.errors import StoreError
from clients.stores import Access
from models.bookie_cluster.input import BookieCluster, BookieClusterInput
from models.bookie_registry import (
    ORCHESTRATOR,
    REGISTRY,
    RESERVED,
    SWITCH_TARGET,
    ClusterStatus,
    RegisteredCluster,
    SwitchTarget,
)
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.claim import CLAIM
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from tests.faults.lifecycle.stack_pool import Cluster
from tests.support.bookie_cluster.dataset import DATASET_SETTINGS, Dataset
from tests.support.bookie_cluster.dataset_kinds import Plain, Typed
from tests.support.metadata_store import stores

CLUSTER = "switch-faults"
SPEC = StackSpec(
    zookeepers=1,
    bookies=2,
    second_bookies=2,
    brokers=1,
    cluster=CLUSTER,
    broker_settings=DATASET_SETTINGS,
    # A round uses ids again that the round before it has deleted. Bookies that have collected them need a restart
    # (`test_deleted_ids`), which would happen during the fault. This is the highest value that the interval of
    # compaction allows.
    bookie_settings={"gcWaitTime": "3500000"},
)

_READ_EVERY = 0.05
_SCAN_EVERY = 10
"""The number of readings of the registry for each scan of the ledgers."""

Ledgers = dict[int, LedgerRecord]


@dataclass(frozen=True)
class Side:
    """One bookie cluster.

    Attributes:
        cluster: name and address, as a plan has them.
        bookies: names of its servers.
    """

    cluster: BookieCluster
    bookies: tuple[str, str]

    def ledgers(self) -> Ledgers:
        """Return all of its ledgers by id."""
        with LedgerDirectory(self.cluster.root, Access()) as directory:
            return {record.ledger_id: record for batch in directory.scan() for record in batch}


class SwitchedCluster:
    """A cluster that is switched there and back, round after round; a context manager.

    Args:
        cluster: two bookie clusters, a broker.
        tools: what the dataset's Java client runs on.
        folder: for that client's log.

    Attributes:
        source: the side that brokers use; `target` is the other one.
        identities: what distinguishes each ledger that was ever seen from another one with its id.
        rounds: how many rounds it has had.
    """

    def __init__(self, cluster: Cluster, tools: Toolchain, folder: Path) -> None:
        self.stack, self.ensemble = cluster
        stack = self.stack
        self.source = Side(_cluster("a", stack.bookkeeper_uri), ("bookie-1", "bookie-2"))
        self.target = Side(_cluster("b", stack.second_bookkeeper_uri), ("second-bookie-1", "second-bookie-2"))
        self.identities: dict[int, _Identity] = {}
        self.rounds = 0
        self._dataset = Dataset(tools, folder, kinds=[Plain(), Typed("JSON")])

    def __enter__(self) -> Self:
        self._dataset.fill(*self._addresses)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dataset.__exit__(kind, error, trace)
        self.stack.down(graceful=False)
        if self.ensemble:
            self.ensemble.__exit__()

    def input(self, **more: object) -> BookieClusterInput:
        """Return a plan from the side that brokers use to the other one; it deletes the old ledgers at the end."""
        input = {
            "cluster": CLUSTER,
            "metadata_url": self.stack.zk_url,
            "source": self.source.cluster,
            "target": self.target.cluster,
            "routing": "restart",
            "advance_ids": True,
            "cleanup": "remove",
            "cleanup_at_window_end": True,
            "rollback_window": "PT0S",
            "pause_deadline": "PT5M",
        }
        return BookieClusterInput.model_validate({"hold_before_cutover": False, **input, **more})

    def verify(self) -> None:
        """Prove that every message, position and schema is there."""
        self._dataset.verify(*self._addresses)

    def add_more(self) -> None:
        """Write and acknowledge more of everything."""
        self._dataset.add_more(*self._addresses)

    def brokers_use(self, side: Side) -> bool:
        """Return whether the broker reports that it uses this side."""
        with StackAdmin(self.stack.admin_urls[0]) as admin:
            own = admin.brokers.runtime_configuration().get("bookkeeperMetadataServiceUri")
        default = f"metadata-store:{self.stack.zk_url}"
        return parse_ledger_store_uri(own or default).url.overlaps(side.cluster.root)

    def swap(self) -> None:
        """Switch the sides: brokers use the other one now."""
        self.source, self.target = self.target, self.source

    @property
    def _addresses(self) -> tuple[str, str]:
        return self.stack.broker_url, self.stack.admin_urls[0]


class _Identity(NamedTuple):
    """Properties of a ledger that never change and are equal on both sides."""

    made: int | None
    custom: frozenset[tuple[str, bytes]]


class Watch(BackgroundThread):
    """Reads registry and ledgers continuously; a context manager.

    Attributes:
        broken: the states that were seen and must never occur.
    """

    def __init__(self, cluster: SwitchedCluster) -> None:
        super().__init__("registry", _READ_EVERY)
        self.broken: list[str] = []
        self._cluster = cluster

    def ledgers(self) -> tuple[Ledgers, Ledgers]:
        """Return the ledgers of source and target now; note an id that belongs to another ledger than before."""
        sides = self._cluster.source.ledgers(), self._cluster.target.ledgers()
        for records in sides:
            for number, record in records.items():
                identity = _Identity(record.metadata.ctime, frozenset(record.metadata.custom))
                first_seen = self._cluster.identities.setdefault(number, identity)
                if first_seen != identity:
                    self.broken.append(f"ledger id {number} was used twice: {first_seen}, {identity}")
        return sides

    def work(self) -> None:
        """Read the registry, and every few readings the ledgers."""
        with stores.kazoo(self._cluster.stack.zk_url) as client:
            for reading, _ in enumerate(self.ticks()):
                # A server that is down says nothing; only its answers after it is back count.
                with suppress(KazooException, KazooTimeoutError, StoreError):
                    self._check_registry(client)
                    if reading % _SCAN_EVERY == 0:
                        self.ledgers()

    def _check_registry(self, client: Any) -> None:
        first, second = read_registry(client), read_registry(client)
        # Nodes are read one by one: only what is equal in two readings existed at one moment.
        if first == second and first.statuses and list(first.statuses.values()).count(ClusterStatus.ACTIVE) != 1:
            self.broken.append(f"not exactly one cluster was ACTIVE: {first.statuses}")


class Registry(NamedTuple):
    """The registry at one moment.

    Attributes:
        statuses: of each cluster.
        directed: the cluster of the last directive; None before the first.
        claimed: whether a migration holds the brokers' metadata store.
        unfinished: progress that only a switch under way has; lists that outlive it are left out.
        versions: of the clusters' nodes.
    """

    statuses: dict[str, ClusterStatus]
    directed: str | None
    claimed: bool
    unfinished: list[str]
    versions: list[int]


def read_registry(client: Any) -> Registry:
    """Read it with a ZooKeeper client."""
    names = [name for name in _children(client, REGISTRY) if name not in RESERVED]
    nodes = [client.get_async(f"{REGISTRY}/{name}").get(timeout=2) for name in names]
    clusters = [RegisteredCluster.model_validate_json(value) for value, _ in nodes]
    try:
        directive, _ = client.get_async(f"{REGISTRY}/{SWITCH_TARGET}").get(timeout=2)
        directed = SwitchTarget.model_validate_json(directive).target
    except NoNodeError:
        directed = None
    return Registry(
        {cluster.name: cluster.status for cluster in clusters},
        directed,
        client.exists_async(CLAIM).get(timeout=2) is not None,
        _unfinished(client, f"{REGISTRY}/{ORCHESTRATOR}"),
        [stat.version for _, stat in nodes],
    )


def _unfinished(client: Any, top: str) -> list[str]:
    lists = [f"{switch}/{name}" for switch in _children(client, top) for name in _children(client, f"{top}/{switch}")]
    # What was deleted is kept by cluster, each list under a number.
    lasting = (*REPORTED, *COPIES)
    return [path for path in lists if not (path.rpartition("/")[2] in lasting or path.startswith("deleted-from-"))]


def _children(client: Any, path: str) -> list[str]:
    try:
        return sorted(client.get_children_async(path).get(timeout=2))
    except NoNodeError:
        return []


def _cluster(name: str, uri: str) -> BookieCluster:
    return BookieCluster(name=name, metadataServiceUri=uri)
