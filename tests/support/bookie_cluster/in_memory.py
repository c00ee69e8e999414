"""A switch whose registry and claim are in memory, and whose clusters are what a test says."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from activities.lifecycle.context import ActivityContext, Deadline
from activities.pulsar.registrations import BROKERS, Service
from clients.cas.claims import ClaimKeeper
from clients.pulsar.formats_pb2 import SchemaLocator
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import Partition, Record
from models.bookie_cluster.input import Direction
from models.bookie_registry import REGISTRY, ClusterStatus, RegisteredCluster, SwitchClaim
from models.lifecycle.claim import Attempt
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.records import input
from tests.support.clients.memory_store import MemoryStore

_FOREVER = 3_600.0


class MemorySwitch:
    """The switch from `a`, which is ACTIVE, to `b`; its first attempt holds the claim.

    Args:
        engine: runs the Spark jobs of steps that have some.
        settings: lines of the worker's settings that win over the tests' own.

    Attributes:
        store: holds registry and claim.
        at: what others do at a moment, which a test names; a pause of a step is the moment `waiting`.
        owners: sessions that hold ephemeral nodes of the store, by path.
        context: of all steps.
    """

    def __init__(self, engine: SparkEngine | None = None, **settings: Any) -> None:
        self.store = MemoryStore()
        self.store.create(BROKERS.decode(), b"")
        self.owners: dict[str, int] = {}
        self.at: dict[str, Callable[[], object]] = {}
        self.context = MemoryContext(lambda: self.happens("waiting"))
        self._steps = Steps(cast("SparkEngine", engine), **settings)
        first = self.registry(self.attempt())
        first.claim.take()
        for name, status in (("a", ClusterStatus.ACTIVE), ("b", ClusterStatus.STANDBY)):
            uri = f"zk+hierarchical://127.0.0.1:2181/ledgers-{name}"
            first.register(RegisteredCluster(name=name, metadataServiceUri=uri, status=status))

    def attempt(self) -> Attempt:
        """Return the number of the next step's attempt."""
        return self._steps.task(input()).attempt

    def registry(self, me: Attempt) -> BookieRegistry:
        """Return the registry on behalf of an attempt."""
        return BookieRegistry(self.store, REGISTRY, ClaimKeeper(self.store, SwitchClaim, me))

    def newest(self) -> BookieRegistry:
        """Return the registry on behalf of an attempt that takes the claim now."""
        registry = self.registry(self.attempt())
        registry.claim.renew()
        return registry

    def task(
        self,
        direction: Direction = Direction.FORWARD,
        *,
        run_id: str | None = None,
        epoch: int | None = None,
        attempt: int = 1,
        **more: Any,
    ) -> Any:
        """Return a step's view of the switch; its clusters and brokers are this object."""
        task: Any = self._steps.task(
            input(exclusive=True, **more), direction, run_id=run_id, epoch=epoch, attempt=attempt
        )
        task.context = self.context
        task.registry = lambda: opened(self.registry(task.attempt))
        # Clusters are distinguished by their names.
        task.ledgers = opened
        task.stop_earlier_deletions = lambda: self.happens("permits")
        task.broker_store = lambda: opened(MemoryReader(self.store, self.owners))
        task.ledgers_to_change = task.broker_view = answering(lambda: opened(self))
        return task

    def register(self, *brokers: Service) -> None:
        """Register exactly these brokers."""
        nodes = {f"{BROKERS.decode()}/{broker.name.removeprefix('broker ')}": broker for broker in brokers}
        for path in [path for path in self.owners if path.startswith(f"{BROKERS.decode()}/")]:
            if path not in nodes:
                self.store.delete(path, -1)
                del self.owners[path]
        for path, broker in nodes.items():
            if path not in self.owners:
                self.store.create(path, broker.data)
                self.owners[path] = broker.owner

    def refer(self, ledger_id: int) -> None:
        """Make a schema refer to a ledger."""
        self.store.create(f"/schemas/public/default/{ledger_id}", schema_node(ledger_id))

    def happens(self, moment: str) -> None:
        """Run the scheduled concurrent changes, once."""
        self.at.pop(moment, lambda: None)()


class MemoryContext(ActivityContext):
    """An activity whose pauses take no time, except by its own clock; a wait of an hour fails.

    Args:
        during_pause: lets others act.

    Attributes:
        now: seconds that its pauses took.
    """

    def __init__(self, during_pause: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.now = 0.0
        self._during_pause = during_pause

    def pause(self, seconds: float) -> None:
        """Run concurrent changes instead of waiting."""
        self.now += seconds
        assert self.now < _FOREVER, self.report().summary
        self._during_pause()
        self.check()

    def deadline(self, seconds: float) -> Deadline:
        """Return the end of a wait by this clock."""
        return _MemoryDeadline(self, seconds)


class _MemoryDeadline(Deadline):
    def __init__(self, context: MemoryContext, seconds: float) -> None:
        super().__init__(seconds)
        self._context = context
        self._passes_at = context.now + seconds

    @property
    def passed(self) -> bool:
        return self._context.now > self._passes_at


class MemoryReader:
    """Reads a `MemoryStore` as bulk work does.

    Args:
        store: all records.
        owners: sessions of the records that are ephemeral, by path.
    """

    def __init__(self, store: MemoryStore, owners: Mapping[str, int]) -> None:
        self._store = store
        self._owners = owners
        self.url = store.url

    def children(self, path: bytes) -> list[bytes]:
        """Return full paths of the direct children."""
        return [path + b"/" + name.encode() for name in self._store.children(path.decode())]

    def read(self, paths: Sequence[bytes]) -> list[Record | None]:
        """Return the records of these paths."""
        return [self._record(path.decode()) for path in paths]

    def scan(self, partition: Partition) -> Iterator[list[Record | None]]:
        """Return the records of some subtrees."""
        tops = tuple(subtree.decode() + "/" for subtree in partition.subtrees)
        yield [self._record(path) for path in sorted(self._store.nodes) if f"{path}/".startswith(tops)]

    def _record(self, path: str) -> Record | None:
        node = self._store.get(path)
        if node is None:
            return None
        owner, children_changed = self._owners.get(path, 0), self._store.children_changed.get(path, 0)
        return Record(path.encode(), node.value, node.version, 0, owner, 0, children_changed)


def schema_node(ledger_id: int) -> bytes:
    """Return a schema's node that refers to a ledger, without an attribution."""
    locator = SchemaLocator()
    entry = locator.index.add(version=0, hash=b"hash")
    entry.position.ledgerId, entry.position.entryId = ledger_id, 0
    locator.info.CopyFrom(entry)
    return locator.SerializeToString()


@contextmanager
def opened(what: Any) -> Generator[Any]:
    """Yield a store that is open as long as the context lasts."""
    yield what


def answering(answer: Callable[[], object]) -> Callable[..., Any]:
    """Return a function that accepts any arguments."""

    def call(*_: object, **__: object) -> object:
        return answer()

    return call
