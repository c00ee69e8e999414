"""A switch whose brokers come, go and write as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from activities.bookie_cluster import brokers, registry
from activities.bookie_cluster.progress import SwitchProgress
from activities.pulsar.brokers import SeenCluster, bookie_cluster_of
from activities.pulsar.registrations import Service, brokers_mark
from activities.pulsar.releases import SeenBroker
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.cas.claims import ClaimKeeper
from clients.errors import StoreUnreachable
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.records.bookie_registry import BookieRegistry
from models.bookie_cluster.input import BookieCluster, Direction, Proof, Routing
from models.bookie_cluster.results import BrokersOn, BrokersStopped, Directive
from models.bookie_registry import REGISTRY, SwitchClaim, SwitchTarget
from models.lifecycle.claim import Attempt
from models.lifecycle.status import Undo
from tests.support.bookie_cluster.in_memory import MemorySwitch, answering, opened

ONE, TWO = (Service(f"broker {name}", number, b"{}") for number, name in enumerate(("one", "two"), 1))
OPEN = LedgerMetadata(1, 1, 1, LedgerState.OPEN, 0, -1, (Segment(0, ("one",)),), DigestType.CRC32C)
CLOSED = replace(OPEN, state=LedgerState.CLOSED)

_SKIPS = "autoSkipNonRecoverableData"


class Scene(MemorySwitch):
    """Brokers, as the steps see them in the store and at their admin interfaces; an order is carried out at once.

    Attributes:
        orders: the actions that brokers were asked for.
        ledgers: of both clusters; the health checks of `one` and `two` write to 7 and 8.
        uri: metadata service URI of the ledgers that running brokers report.
        skips: whether they would skip messages, for which PRECHECK would refuse them.
        unhealthy: the answer of their health checks.
        silent: whether they do not answer.
        asked: the brokers that were asked for their settings.
        unreadable: names of clusters whose ledgers cannot be read.
        surveys: the number of orders at each question of what the cluster uses.
        by_hand: whether people stop and start brokers.
    """

    by_hand = False

    def __init__(self) -> None:
        super().__init__(broker_stop_command=["stop"], broker_start_command=["start"])
        self.orders: list[str] = []
        self.ledgers: dict[str, dict[int, LedgerMetadata]] = {"a": {}, "b": {7: OPEN, 8: OPEN}}
        self.uri = self.task().input.source.metadataServiceUri
        self.skips = False
        self.unhealthy = ""
        self.silent = False
        self.asked: list[str] = []
        self.unreadable: set[str] = set()
        self.surveys: list[int] = []
        for name, ledger_id in (("one", 7), ("two", 8)):
            topic = ManagedLedgerInfo(ledgerInfo=[{"ledgerId": ledger_id}])
            self.store.create(f"/managed-ledgers/pulsar/{name}/persistent/healthcheck", topic.SerializeToString())
        SwitchProgress(self.task(), self.newest()).set_cutover_ledger_id(8)

    def task(self, *arguments: Any, **more: Any) -> Any:
        """Return a step's view of the switch."""
        task = super().task(*arguments, **more)
        task.ledgers = self._open_ledgers
        task.broker_controller = lambda: self
        task.survey = answering(lambda: self.surveys.append(len(self.orders)))
        return task

    def registry(self, me: Attempt) -> BookieRegistry:
        """Return the registry on behalf of an attempt."""
        return _Registry(self, me)

    def ask(self, action: str, bookkeeper_uri: str, require: Callable[[], object]) -> None:
        """Perform an order at once."""
        require()
        self.orders.append(action)
        if action == "start":
            self.uri = bookkeeper_uri
        self.happens("ordered")

    def bookie_cluster(self, broker: Service) -> SeenCluster:
        """Return the cluster that a broker reports."""
        return bookie_cluster_of(self._report(broker))

    def read(self, broker: Service) -> SeenBroker:
        """Return the report of a broker about itself."""
        self.asked.append(broker.name)
        return self._report(broker)

    def lacks_plugin(self, _: Service) -> str:
        """Return nothing: brokers have it."""
        return ""

    def health(self, _: Service) -> str:
        """Return the answer of a broker's health check."""
        return self.unhealthy

    def misroute(self, cluster: str = "a") -> None:
        """Create a ledger in the cluster that was left, after the tail, as a misconfigured broker does."""
        self.ledgers[cluster][9] = OPEN
        self.refer(9)

    def forget(self) -> None:
        """Remove the reference to that ledger, as a broker does that does not find it."""
        self.store.delete("/schemas/public/default/9", -1)

    def mark(self) -> int:
        """Return a mark that changes whenever a broker comes or goes."""
        with self.task().broker_store() as store:
            return brokers_mark(store)

    def stop(self) -> BrokersStopped:
        """Stop the brokers."""
        return brokers.stop(self.task(broker_control="command"), Direction.FORWARD)

    def start(
        self, direction: Direction = Direction.FORWARD, asked: Proof = Proof.FULL, undo: Undo = Undo.COPY_BACK
    ) -> BrokersOn:
        """Start the brokers."""
        return brokers.start(self.task(broker_control="command"), direction, asked, undo)

    def direct(self, direction: Direction = Direction.FORWARD, *, since: int | None = None) -> Directive:
        """Direct the brokers if none has come since a mark, by default the current one."""
        return registry.set_target(self.task(), direction, self.mark() if since is None else since)

    def direct_by_attribution(self) -> Directive:
        """Direct brokers that run, and read both clusters."""
        return registry.set_target(self.task(routing=Routing.ATTRIBUTION), Direction.FORWARD)

    def directed(self) -> str:
        """Return the cluster that brokers are directed to."""
        target = self.newest().switch_target()
        return target[0].target if target else ""

    def _open_ledgers(self, cluster: BookieCluster) -> AbstractContextManager[_Directory]:
        if cluster.name in self.unreadable:
            raise StoreUnreachable(f"{cluster.name} does not answer")
        return opened(_Directory(self.ledgers[cluster.name]))

    def _report(self, broker: Service) -> SeenBroker:
        if self.silent:
            return SeenBroker(broker.name, "", None, "it does not answer")
        settings = {"bookkeeperMetadataServiceUri": self.uri, _SKIPS: str(self.skips).lower()}
        return SeenBroker(broker.name, "5.0.1", settings)


class _Directory:
    """The ledgers of one cluster."""

    def __init__(self, ledgers: dict[int, LedgerMetadata]) -> None:
        self._ledgers = ledgers
        self.undecodable: dict[int, str] = {}

    def facts(self, *_: object) -> list[LedgerFacts]:
        """Return all of them."""
        return [record.facts for record in self.read([*self._ledgers]) if record]

    def highest(self) -> int:
        """Return the highest id."""
        return max(self._ledgers, default=-1)

    def read(self, ids: Sequence[int]) -> list[LedgerRecord | None]:
        """Return the ledgers that exist."""
        listed = [(ledger_id, self._ledgers.get(ledger_id)) for ledger_id in ids]
        return [metadata and LedgerRecord(ledger_id, metadata, 0, 1, 1) for ledger_id, metadata in listed]


class _Registry(BookieRegistry):
    """A registry that lets others act right before a directive is given, at the moment `directing`."""

    def __init__(self, scene: Scene, me: Attempt) -> None:
        super().__init__(scene.store, REGISTRY, ClaimKeeper(scene.store, SwitchClaim, me))
        self._scene = scene

    def set_target(self, target: str, origin: str, *, unless: str = "") -> SwitchTarget:
        """Give the directive."""
        self._scene.happens("directing")
        return super().set_target(target, origin, unless=unless)
