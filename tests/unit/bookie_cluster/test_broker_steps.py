"""Brokers that come, go and write at the wrong moment while a switch stops, directs and starts them; all are doubles.

Real brokers stop and start in tests/integration/bookie_cluster/test_brokers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers, registry
from activities.bookie_cluster.broker_control import BrokerController
from activities.bookie_cluster.brokers import Absence
from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import SeenCluster
from activities.pulsar.registrations import Service
from clients.errors import StoreConflict, Superseded
from clients.pulsar.records.bookie_registry import BookieRegistry
from models.bookie_cluster.input import Direction, Routing
from models.bookie_cluster.results import BrokersOn, BrokersStopped, Directive
from models.bookie_registry import SwitchTarget
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import Blocker, FailureKind
from models.migration_flag import FLAG, Flag, FlagPhase
from models.store_url import parse_store_url
from tests.support.bookie_cluster.in_memory import MemorySwitch, answering

ONE, TWO = (Service(f"broker {name}", number, b"{}") for number, name in enumerate(("one", "two"), 1))
ON_A, ON_B = (SeenCluster(parse_store_url(f"zk:127.0.0.1:2181/{name}"), name, "") for name in ("ledgers", "ledgersB"))
BACK = Direction.BACK


class Scene(MemorySwitch):
    """Brokers, as the steps see them.

    Attributes:
        running: those that are registered.
        mark: changes whenever one comes or goes.
        orders: what brokers were told.
        left: what is left of brokers that are registered no more.
        unheld: what PRECHECK would say of a registration that no session holds.
        misrouted: ledgers that came to the source after the tail.
        on: the cluster that brokers say they use.
        wrote: the ledger to which each one's health check wrote.
        unfit: why PRECHECK would refuse them.
        unhealthy: what their health checks say.
        silent: whether they do not answer.
        asked: who was asked by routing `attribution`.
        surveys: how many orders there were when it was asked what the cluster uses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running: list[Service] = []
        self.mark = 1
        self.orders: list[str] = []
        self.left: list[str] = []
        self.unheld: Blocker | None = None
        self.misrouted = ""
        self.on = ON_B
        self.wrote: int | None = 7
        self.unfit = ""
        self.unhealthy = ""
        self.silent = False
        self.asked: list[str] = []
        self.surveys: list[int] = []

    def bookie_cluster(self, _: Service) -> SeenCluster:
        """Return what a broker says of itself."""
        return self.on

    def health(self, _: Service) -> str:
        """Return what a broker's health check says."""
        return self.unhealthy

    def stop(self, direction: Direction = Direction.FORWARD, control: str = "command") -> BrokersStopped:
        """Have them stopped."""
        return brokers.stop(self.task(broker_control=control), direction)

    def start(self, direction: Direction = Direction.FORWARD) -> BrokersOn:
        """Have them started."""
        return brokers.start(self.task(broker_control="command"), direction)

    def direct(
        self, direction: Direction = Direction.FORWARD, mark: int | None = 1, *, run_id: str | None = None
    ) -> Directive:
        """Direct them."""
        return registry.set_target(self.task(run_id=run_id), direction, mark)

    def direct_by_attribution(self) -> Directive:
        """Direct brokers that run, and read both clusters."""
        return registry.set_target(self.task(routing=Routing.ATTRIBUTION), Direction.FORWARD)

    def directed(self) -> str:
        """Where they are directed to."""
        found = self.newest().switch_target()
        return found[0].target if found else ""


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """No broker runs; an order is carried out at once."""
    made = Scene()

    def ask(_: object, action: str, __: str, require: object) -> None:
        assert callable(require)
        require()
        made.orders.append(action)
        made.happens("ordered")

    def check_brokers(_: object, findings: Findings, *__: object, **___: object) -> None:
        if made.unfit:
            findings.block("AUTO_SKIP", made.unfit, "set it to false")

    def ask_brokers(_: object, asked: Sequence[Service], findings: Findings, *__: object, **___: object) -> None:
        made.asked += [broker.name for broker in asked]
        if made.silent:
            findings.block(BROKERS_UNKNOWN, "it does not answer", "wait")
        check_brokers(_, findings)

    def none_since(_: object, mark: int) -> bool:
        none = not made.running and made.mark == mark
        made.happens("looked")
        return none

    monkeypatch.setattr(BrokerController, "ask", ask)
    monkeypatch.setattr(brokers, "brokers", answering(lambda: list(made.running)))
    monkeypatch.setattr(brokers, "persistent_registration", answering(lambda: made.unheld))
    monkeypatch.setattr(registry, "none_since", none_since)
    monkeypatch.setattr(registry, "brokers", answering(lambda: list(made.running)))
    monkeypatch.setattr(registry, "ask_brokers", ask_brokers)
    monkeypatch.setattr(BookieClusterTask, "survey", answering(lambda: made.surveys.append(len(made.orders))))
    monkeypatch.setattr(brokers.AbsenceKeeper, "lingering", answering(lambda: list(made.left)))
    monkeypatch.setattr(brokers, "_misrouted_ledgers", answering(lambda: made.misrouted))
    monkeypatch.setattr(brokers, "_written_ledger", answering(lambda: made.wrote))
    monkeypatch.setattr(brokers, "check_brokers", check_brokers)
    monkeypatch.setattr(ActivityContext, "pause", answering(lambda: made.happens("waiting")))
    return made


def test_brokers_that_run_are_asked_again_before_the_directive(scene: Scene) -> None:
    """One that was restarted with other settings since PRECHECK is not directed to the target."""
    scene.running, scene.unfit = [ONE], "broker one has autoSkipNonRecoverableData=true"
    with pytest.raises(ApplicationError, match=r"since PRECHECK brokers have changed: \[AUTO_SKIP\]") as refused:
        scene.direct_by_attribution()
    assert refused.value.type == FailureKind.NOT_READY
    assert scene.directed() == ""


def test_a_broker_that_comes_with_the_directive_is_asked_after_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session is asked once; one that cannot follow the directive ends the step, and brokers go back."""
    scene.running = [ONE]
    set_target = BookieRegistry.set_target

    def start_a_broker(*arguments: Any, **more: Any) -> SwitchTarget:
        scene.running, scene.unfit = [ONE, TWO], "broker two has autoSkipNonRecoverableData=true"
        return set_target(*arguments, **more)

    monkeypatch.setattr(BookieRegistry, "set_target", start_a_broker)
    with pytest.raises(ApplicationError, match="AUTO_SKIP"):
        scene.direct_by_attribution()
    assert scene.asked == ["broker one", "broker two"]
    assert scene.directed() == "b"


def test_a_broker_in_a_restart_is_waited_for(scene: Scene) -> None:
    """One that does not answer at the directive is asked until it does, or its session has expired."""
    scene.running, scene.silent = [ONE], True
    scene.at["waiting"] = lambda: setattr(scene, "silent", False)
    scene.direct_by_attribution()
    assert scene.directed() == "b"
    assert scene.asked == ["broker one", "broker one"]


def test_a_broker_that_never_answers_is_not_directed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not answer in time may have other settings, so that the directive is not given."""
    monkeypatch.setattr(registry, "_ANSWER_SECONDS", 0.0)
    scene.running, scene.silent = [ONE], True
    with pytest.raises(ApplicationError, match=BROKERS_UNKNOWN):
        scene.direct_by_attribution()
    assert scene.directed() == ""


def test_what_the_cluster_uses_is_asked_before_the_order(scene: Scene) -> None:
    """The census comes before the order to stop, and not again in a retry, while clients are without a broker."""
    scene.stop()
    scene.stop()
    assert scene.surveys == [0]


@pytest.mark.parametrize("phase", [FlagPhase.COPYING, FlagPhase.COMPLETED])
def test_brokers_are_not_stopped_once_their_metadata_move(scene: Scene, phase: FlagPhase) -> None:
    """While the switch was held, Pulsar's own command may have moved the metadata: what is copied here is not all."""
    scene.running = [ONE]
    scene.store.create(FLAG, Flag(phase=phase, targetUrl="oxia://x:1").encode())
    with pytest.raises(StoreConflict, match=phase):
        scene.stop()
    with pytest.raises(StoreConflict, match=phase):
        scene.direct_by_attribution()
    assert scene.orders == []
    assert scene.directed() == ""


def test_the_stop_is_ordered_whoever_is_registered(scene: Scene) -> None:
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
        scene.running = [ONE] if act == scene.start else []
        early = scene.registry(scene.attempt())
        early.claim.renew()
        act()
        with pytest.raises(Superseded):
            early.claim.require()


def test_stopped_means_that_nothing_is_left(scene: Scene) -> None:
    """Not registered is not stopped: topics are unloaded behind that."""
    scene.running = [ONE]
    waits: list[int] = []

    def unregister() -> None:
        waits.append(1)
        scene.running, scene.left = [], ["broker one still answers"]
        scene.at["waiting"] = end

    def end() -> None:
        waits.append(2)
        scene.left = []

    scene.at["waiting"] = unregister
    assert scene.stop().brokers == ("broker one",)
    assert waits == [1, 2]


def test_a_registration_without_a_session_is_not_stopped(scene: Scene) -> None:
    """A broker whose registration became persistent since PRECHECK may run, though it does not count as registered."""
    scene.unheld = Blocker(code="PERSISTENT_REGISTRATION", cause="no session holds it", cure="delete the node")
    waits: list[int] = []

    def delete() -> None:
        waits.append(1)
        scene.unheld = None

    scene.at["waiting"] = delete
    scene.stop()
    assert waits == [1]


def test_a_broker_that_cannot_write_is_to_be_restarted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status asks for a restart of a broker whose health check keeps failing, since no one else can free it."""
    scene.running = [ONE]
    told: list[str] = []

    def waiting_for(_: object, __: object, ___: str, *, action: str = "") -> None:
        told.append(action)

    def write() -> None:
        scene.unhealthy = ""

    scene.unhealthy = "its health check failed"
    monkeypatch.setattr(ActivityContext, "waiting_for", waiting_for)
    scene.at["waiting"] = write
    assert scene.start().brokers
    assert told == ["if that lasts for a minute although the bookies run, restart broker one"]


def test_the_pause_counts_from_the_first_attempts_order(scene: Scene) -> None:
    """An attempt that comes after a crash continues with the moment at which brokers were told to stop."""
    scene.running = [ONE]
    scene.at["ordered"] = lambda: pytest.fail("told")
    task = scene.task(broker_control="command")
    with pytest.raises(pytest.fail.Exception):
        brokers.stop(task, Direction.FORWARD)
    known = brokers.read_absences(task, scene.newest())[Direction.FORWARD]
    assert known.since is not None
    scene.running = []
    assert scene.stop().since == known.since


def test_a_stop_that_takes_too_long_turns_back(scene: Scene) -> None:
    """Clients were without a broker for the longest pause before the order of a later attempt: it is not given."""
    keeper = brokers.AbsenceKeeper(scene.task(), scene.newest())
    longer = scene.task().input.pause_deadline + timedelta(seconds=1)
    keeper._keep(  # pyright: ignore[reportPrivateUsage] - as an attempt noted it long ago
        Absence(run=scene.task().run_id, since=datetime.now(UTC) - longer, looked=datetime.now(UTC) - longer)
    )
    with pytest.raises(ApplicationError, match="longest pause") as failed:
        scene.stop()
    assert failed.value.type == FailureKind.DEADLINE
    assert scene.orders == []


def test_no_directive_where_a_broker_came(scene: Scene) -> None:
    """A broker that came since the copy has left a ledger that was not copied: the directive is not given."""
    scene.mark = 2
    assert not scene.direct().alone
    scene.mark, scene.running = 1, [ONE]
    assert not scene.direct().alone
    assert scene.directed() == ""
    scene.running = []
    assert scene.direct().alone
    assert scene.directed() == "b"


def test_a_broker_that_comes_with_the_directive_is_told(scene: Scene) -> None:
    """It read its configuration before: the copy follows again, though the directive stands."""

    def come() -> None:
        scene.mark = 2

    scene.at["looked"] = come
    given = scene.direct()
    assert (given.alone, given.epoch) == (False, 1)


def test_a_late_directive_forward_is_refused(scene: Scene) -> None:
    """Once this run has turned back, an attempt of it gives no directive forward; a later run may."""
    scene.direct()
    scene.direct(BACK)
    with pytest.raises(StoreConflict, match="turned back already"):
        scene.direct()
    assert scene.directed() == "a"


def test_started_means_that_all_write_to_the_target(scene: Scene) -> None:
    """As many as before, each on the target by its own word, writing to a ledger there, and fit by PRECHECK's rules."""
    scene.running = [ONE, TWO]
    keeper = brokers.AbsenceKeeper(scene.task(), scene.newest())
    keeper.look(scene.running, ordered=True)
    seen: list[str] = []
    scene.running = [ONE]

    # At each look one thing is wrong, and no other.
    def two() -> None:
        seen.append("one")
        scene.running, scene.on = [ONE, TWO], ON_A
        scene.at["waiting"] = there

    def there() -> None:
        seen.append("misplaced")
        scene.on, scene.wrote = ON_B, None
        scene.at["waiting"] = write

    def write() -> None:
        seen.append("does not write")
        scene.wrote, scene.unfit = 7, "it would skip messages"
        scene.at["waiting"] = change

    def change() -> None:
        seen.append("unfit")
        scene.unfit = ""

    scene.at["waiting"] = two
    assert len(scene.start().brokers) == 2
    assert seen == ["one", "misplaced", "does not write", "unfit"]


@pytest.mark.parametrize("moment", ["before", "ordered"])
def test_a_stray_ledger_turns_the_switch_back(scene: Scene, moment: str) -> None:
    """What came to the source behind the tail is lacking in the target, whenever it is seen."""
    scene.running = [ONE]

    def write() -> None:
        scene.misrouted = "ledger(s) 9"

    if moment == "before":
        write()
    else:
        scene.at[moment] = write
    with pytest.raises(ApplicationError, match=r"created ledger\(s\) 9") as failed:
        scene.start()
    assert failed.value.type == FailureKind.CONFLICT
    assert scene.orders == ([] if moment == "before" else ["start"])


def test_a_run_that_has_ended_releases_nothing(scene: Scene) -> None:
    """The claim of a later run, its progress and its registrations stay."""
    later = scene.task(run_id="run-2")
    scene.registry(later.attempt).claim.take()
    before = dict(scene.store.nodes)
    registry.release(scene.task())
    assert scene.store.nodes == before
    registry.release(scene.task(run_id="run-2"))
    assert scene.store.get(CLAIM) is None
