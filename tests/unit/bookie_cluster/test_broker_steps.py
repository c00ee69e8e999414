"""Brokers that come, go and write at the wrong moment while a switch stops, directs and starts them; all are doubles.

Real brokers stop and start in tests/integration/bookie_cluster/test_brokers.py.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers, registry
from activities.bookie_cluster.brokers import Absence
from activities.bookie_cluster.ledgers import read_known
from activities.bookie_cluster.progress import SwitchProgress
from activities.lifecycle.context import ActivityContext
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import SeenCluster, bookie_cluster_of
from activities.pulsar.registrations import BROKERS, Service, brokers_mark
from activities.pulsar.releases import SeenBroker
from clients.bookkeeper.copy_result import Begun
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.cas.claims import ClaimKeeper
from clients.errors import StoreConflict, Superseded
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.records.bookie_registry import BookieRegistry
from models.bookie_cluster.input import BookieCluster, Direction, Proof, Routing
from models.bookie_cluster.results import BrokersOn, BrokersStopped, Directive
from models.bookie_registry import REGISTRY, SwitchClaim, SwitchTarget
from models.lifecycle.claim import CLAIM, Attempt
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Undo
from models.migration_flag import FLAG, Flag, FlagPhase
from tests.support.bookie_cluster.in_memory import MemorySwitch, answering, opened

ONE, TWO = (Service(f"broker {name}", number, b"{}") for number, name in enumerate(("one", "two"), 1))
BACK = Direction.BACK
SKIPS = "autoSkipNonRecoverableData"
OPEN = LedgerMetadata(1, 1, 1, LedgerState.OPEN, 0, -1, (Segment(0, ("one",)),), DigestType.CRC32C)
CLOSED = replace(OPEN, state=LedgerState.CLOSED)
BUNDLE = "/namespace/public/default/0x00000000_0xffffffff"


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

    def misroute(self) -> None:
        """Create a ledger in the source after the tail, as a misconfigured broker does."""
        self.ledgers["a"][9] = OPEN
        self.refer(9)

    def mark(self) -> int:
        """Return a mark that changes whenever a broker comes or goes."""
        with self.task().broker_store() as store:
            return brokers_mark(store)

    def stop(self) -> BrokersStopped:
        """Stop the brokers."""
        return brokers.stop(self.task(broker_control="command"), Direction.FORWARD)

    def start(self) -> BrokersOn:
        """Start the brokers."""
        return brokers.start(self.task(broker_control="command"), Direction.FORWARD)

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
        return opened(_Directory(self.ledgers[cluster.name]))

    def _report(self, broker: Service) -> SeenBroker:
        if self.silent:
            return SeenBroker(broker.name, "", None, "it does not answer")
        settings = {"bookkeeperMetadataServiceUri": self.uri, SKIPS: str(self.skips).lower()}
        return SeenBroker(broker.name, "5.0.1", settings)


class _Directory:
    """The ledgers of one cluster."""

    def __init__(self, ledgers: dict[int, LedgerMetadata]) -> None:
        self._ledgers = ledgers
        self.undecodable: dict[int, str] = {}

    def facts(self, *_: object) -> list[LedgerFacts]:
        """Return all of them."""
        return [record.facts for record in self.read([*self._ledgers]) if record]

    def read(self, ids: Sequence[int]) -> list[LedgerRecord | None]:
        """Return the ledgers that exist."""
        listed = [(ledger_id, self._ledgers.get(ledger_id)) for ledger_id in ids]
        return [metadata and LedgerRecord(ledger_id, metadata, 0, 1) for ledger_id, metadata in listed]


class _Registry(BookieRegistry):
    """A registry that lets others act right before a directive is given, at the moment `directing`."""

    def __init__(self, scene: Scene, me: Attempt) -> None:
        super().__init__(scene.store, REGISTRY, ClaimKeeper(scene.store, SwitchClaim, me))
        self._scene = scene

    def set_target(self, target: str, origin: str, *, unless: str = "") -> SwitchTarget:
        """Give the directive."""
        self._scene.happens("directing")
        return super().set_target(target, origin, unless=unless)


@pytest.fixture
def scene() -> Scene:
    """No broker runs; an order is carried out at once."""
    return Scene()


def test_brokers_that_run_are_asked_again_before_the_directive(scene: Scene) -> None:
    """One that was restarted with other settings since PRECHECK is not directed to the target."""
    scene.register(ONE)
    scene.skips = True
    with pytest.raises(ApplicationError, match=r"since PRECHECK brokers have changed: \[AUTO_SKIP\]") as refused:
        scene.direct_by_attribution()
    assert refused.value.type == FailureKind.NOT_READY
    assert scene.directed() == ""


def test_a_broker_that_registers_at_the_directive_is_asked_after_it(scene: Scene) -> None:
    """Each session is asked once; one that cannot follow the directive ends the step, and brokers go back."""
    scene.register(ONE)

    def come() -> None:
        scene.register(ONE, TWO)
        scene.skips = True

    scene.at["directing"] = come
    with pytest.raises(ApplicationError, match="AUTO_SKIP"):
        scene.direct_by_attribution()
    assert scene.asked == ["broker one", "broker two"]
    assert scene.directed() == "b"


def test_a_broker_in_a_restart_is_waited_for(scene: Scene) -> None:
    """One that does not answer at the directive is asked until it does, or its session has expired."""
    scene.register(ONE)
    scene.silent = True

    def answer() -> None:
        scene.silent = False

    scene.at["waiting"] = answer
    scene.direct_by_attribution()
    assert scene.directed() == "b"
    assert scene.asked == ["broker one", "broker one"]


def test_a_broker_that_never_answers_is_not_directed(scene: Scene) -> None:
    """A broker that does not answer within a minute may have other settings, so the directive is not given."""
    scene.register(ONE)
    scene.silent = True
    with pytest.raises(ApplicationError, match=BROKERS_UNKNOWN):
        scene.direct_by_attribution()
    assert 60 <= scene.context.now < 65
    assert scene.directed() == ""


def test_the_census_precedes_the_order(scene: Scene) -> None:
    """The census comes before the order to stop, and not again in a retry, while clients are without a broker."""
    scene.stop()
    scene.stop()
    assert scene.surveys == [0]


@pytest.mark.parametrize("phase", [FlagPhase.COPYING, FlagPhase.COMPLETED])
def test_brokers_are_not_stopped_once_their_metadata_move(scene: Scene, phase: FlagPhase) -> None:
    """While the switch was held, Pulsar's own command may have moved the metadata: what is copied here is not all."""
    scene.register(ONE)
    scene.store.create(FLAG, Flag(phase=phase, targetUrl="oxia://x:1").encode())
    with pytest.raises(StoreConflict, match=phase):
        scene.stop()
    with pytest.raises(StoreConflict, match=phase):
        scene.direct_by_attribution()
    assert scene.orders == []
    assert scene.directed() == ""


def test_the_stop_is_ordered_even_if_no_broker_is_registered(scene: Scene) -> None:
    """A broker that keeps crashing is not registered at the moment, and must not come back either."""
    assert scene.stop().brokers == ()
    assert scene.orders == ["stop"]


def test_a_late_attempt_orders_nothing(scene: Scene) -> None:
    """An attempt that was superseded, or another run, neither stops nor starts brokers, nor directs them."""
    late = scene.task(broker_control="command")
    early_back = scene.task(BACK, broker_control="command")
    scene.newest()
    for act in (
        lambda: brokers.stop(late, Direction.FORWARD),
        lambda: brokers.start(early_back, BACK),
        lambda: registry.set_target(late, Direction.FORWARD, 1),
    ):
        with pytest.raises(Superseded):
            act()
    assert scene.orders == []
    assert scene.directed() == ""


def test_an_earlier_attempt_is_stopped_before_the_order(scene: Scene) -> None:
    """Each step moves the claim before it orders anything: one that was given up finds that."""
    for act in (scene.stop, scene.start):
        scene.register(*([ONE] if act == scene.start else []))
        early = scene.registry(scene.attempt())
        early.claim.renew()
        act()
        with pytest.raises(Superseded):
            early.claim.require()


def test_stopped_means_that_nothing_is_left(scene: Scene) -> None:
    """Not registered is not stopped: topics are unloaded after that."""
    waits: list[str] = []

    def note() -> None:
        waiting = scene.context.report().waiting
        waits.append(waiting.why.removeprefix("brokers to stop: ") if waiting else "")

    with socket.create_server(("127.0.0.1", 0)) as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
        scene.register(ONE._replace(data=json.dumps({"brokerServiceUrl": f"pulsar://{address}"}).encode()))
        scene.store.create(BUNDLE, b"{}")
        scene.owners[BUNDLE] = ONE.owner

        def unregister() -> None:
            note()
            scene.register()
            scene.at["waiting"] = unload

        def unload() -> None:
            note()
            scene.store.delete(BUNDLE, -1)
            scene.at["waiting"] = end

        def end() -> None:
            note()
            port.close()

        scene.at["waiting"] = unregister
        assert scene.stop().brokers == ("broker one",)
    assert waits == [
        "broker one is registered",
        f"broker one still holds {BUNDLE}; broker one still answers at {address}",
        f"broker one still answers at {address}",
    ]


def test_a_registration_without_a_session_is_not_stopped(scene: Scene) -> None:
    """A broker whose registration became persistent since PRECHECK may run, though it does not count as registered."""
    node = "/loadbalance/brokers/one"
    scene.store.create(node, b"{}")
    waits: list[int] = []

    def delete() -> None:
        waits.append(1)
        scene.store.delete(node, -1)

    scene.at["waiting"] = delete
    scene.stop()
    assert waits == [1]


def test_a_broker_that_cannot_write_is_to_be_restarted(scene: Scene) -> None:
    """Status asks for a restart of a broker whose health check keeps failing, since no one else can free it."""
    scene.register(ONE)
    actions: list[str] = []

    def write() -> None:
        waiting = scene.context.report().waiting
        actions.append(waiting.action if waiting else "")
        scene.unhealthy = ""

    scene.unhealthy = "its health check failed"
    scene.at["waiting"] = write
    assert scene.start().brokers
    assert actions == ["if that lasts for a minute although the bookies run, restart broker one"]


def test_the_pause_counts_from_the_first_attempts_order(scene: Scene) -> None:
    """An attempt that starts after a crash uses the time at which brokers were first asked to stop."""
    scene.register(ONE)
    scene.at["ordered"] = lambda: pytest.fail("ordered")
    task = scene.task(broker_control="command")
    with pytest.raises(pytest.fail.Exception):
        brokers.stop(task, Direction.FORWARD)
    absence = brokers.read_absences(task, scene.newest())[Direction.FORWARD]
    assert absence.since is not None
    scene.register()
    assert scene.stop().since == absence.since


def test_a_pause_is_measured_by_the_clock_of_temporal(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow ends a long pause by its own clock: that of a worker may be hours away from it."""
    now = datetime(2020, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(ActivityContext, "server_time", now)
    assert scene.stop().since == now
    assert scene.direct().at == now


def test_a_stop_that_takes_too_long_turns_back(scene: Scene) -> None:
    """Clients were without a broker for the longest pause before the order of a later attempt: it is not given."""
    keeper = brokers.AbsenceKeeper(scene.task(), scene.newest())
    long_ago = scene.context.server_time - scene.task().input.pause_deadline - timedelta(seconds=1)
    keeper._keep(  # pyright: ignore[reportPrivateUsage] - as an attempt noted it long ago
        Absence(run=scene.task().run_id, since=long_ago, looked=long_ago)
    )
    with pytest.raises(ApplicationError, match="longest pause") as failed:
        scene.stop()
    assert failed.value.type == FailureKind.DEADLINE
    assert scene.orders == []


def test_no_directive_if_a_broker_registered(scene: Scene) -> None:
    """A broker that came since the copy has left a ledger that was not copied: the directive is not given."""
    mark = scene.mark()
    scene.register(ONE)
    assert not scene.direct().alone
    scene.register()
    assert not scene.direct(since=mark).alone
    assert scene.directed() == ""
    assert scene.direct().alone
    assert scene.directed() == "b"


def test_no_directive_if_a_broker_registered_below_a_parent_that_is_gone(scene: Scene) -> None:
    """ZooKeeper deletes the parent of registrations whenever it is empty; a broker that came in between is noticed."""
    parent = BROKERS.decode()
    scene.store.create(parent.rpartition("/")[0], b"")
    scene.store.delete(parent, -1)
    mark = scene.mark()
    scene.store.create(parent, b"")
    scene.register(ONE)
    scene.register()
    scene.store.delete(parent, -1)
    assert not scene.direct(since=mark).alone
    assert scene.directed() == ""
    assert scene.direct().alone


def test_a_broker_that_registers_at_the_directive_is_reported(scene: Scene) -> None:
    """A broker that read its configuration before the directive makes the copy repeat, although that was given."""

    def come_and_go() -> None:
        scene.register(ONE)
        scene.register()

    scene.at["directing"] = come_and_go
    directive = scene.direct()
    assert (directive.alone, directive.epoch) == (False, 1)


def test_a_late_directive_forward_is_refused(scene: Scene) -> None:
    """Once this run has turned back, an attempt of it gives no directive forward; a later run may."""
    scene.direct()
    scene.direct(BACK)
    with pytest.raises(StoreConflict, match="turned back already"):
        scene.direct()
    assert scene.directed() == "a"


def test_started_means_that_all_write_to_the_target(scene: Scene) -> None:
    """As many as before, each on the target by its own word, writing to a ledger there, and fit by PRECHECK's rules."""
    scene.register(ONE, TWO)
    keeper = brokers.AbsenceKeeper(scene.task(), scene.newest())
    keeper.observe([ONE, TWO], ordered=True)
    seen: list[str] = []
    scene.register(ONE)
    plan = scene.task().input

    # At each look one thing is wrong, and no other.
    def two() -> None:
        seen.append("one")
        scene.register(ONE, TWO)
        scene.uri = plan.source.metadataServiceUri
        scene.at["waiting"] = there

    def there() -> None:
        seen.append("misplaced")
        scene.uri = plan.target.metadataServiceUri
        scene.ledgers["b"][8] = CLOSED
        scene.at["waiting"] = write

    def write() -> None:
        seen.append("does not write")
        scene.ledgers["b"][8] = OPEN
        scene.skips = True
        scene.at["waiting"] = change

    def change() -> None:
        seen.append("unfit")
        scene.skips = False

    scene.at["waiting"] = two
    assert len(scene.start().brokers) == 2
    assert seen == ["one", "misplaced", "does not write", "unfit"]


@pytest.mark.parametrize("moment", ["before", "ordered"])
def test_a_misrouted_ledger_rolls_the_switch_back(scene: Scene, moment: str) -> None:
    """The target lacks a ledger that was created in the source after the tail, so the switch is rolled back."""
    scene.register(ONE)
    if moment == "before":
        scene.misroute()
    else:
        scene.at[moment] = scene.misroute
    with pytest.raises(ApplicationError, match=r"created ledger\(s\) 9") as failed:
        scene.start()
    assert failed.value.type == FailureKind.CONFLICT
    assert scene.orders == ([] if moment == "before" else ["start"])


def test_a_rollback_that_was_given_up_starts_brokers_although_a_ledger_is_misrouted(scene: Scene) -> None:
    """Brokers that cannot go back start on the target; the source, which may be lost, is not asked."""
    scene.register(ONE)
    scene.misroute()
    del scene.ledgers["a"]
    task = scene.task(broker_control="command")
    started = brokers.start(task, Direction.FORWARD, Proof.FULL, Undo.NONE)
    assert (len(started.brokers), scene.orders) == (1, ["start"])


@pytest.mark.parametrize("moved", [False, True])
def test_a_rollback_keeps_the_record_of_open_copies(scene: Scene, moved: bool) -> None:
    """The next start removes open copies whose originals are gone by then; after the switch none is needed."""
    begun = {5: Begun(through=3, length=40, mzxid=77)}
    SwitchProgress(scene.task(), scene.newest()).set_begun(begun)
    if moved:
        scene.newest().flip(new="b", old="a")
    registry.release(scene.task())
    with scene.task().broker_store() as store:
        verified = read_known(scene.task(), store)
    assert verified.begun == ({} if moved else begun)


def test_a_run_that_has_ended_releases_nothing(scene: Scene) -> None:
    """The claim of a later run, its progress and its registrations stay."""
    later = scene.task(run_id="run-2")
    scene.registry(later.attempt).claim.take()
    before = dict(scene.store.nodes)
    registry.release(scene.task())
    assert scene.store.nodes == before
    registry.release(scene.task(run_id="run-2"))
    assert scene.store.get(CLAIM) is None
