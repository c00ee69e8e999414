"""Brokers that come, go and write at the wrong moment while a switch stops, directs and starts them; all are doubles.

Real brokers stop and start in tests/integration/bookie_cluster/test_brokers.py.
"""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers, registry
from activities.bookie_cluster.brokers import Absence
from activities.bookie_cluster.ledgers import read_known
from activities.bookie_cluster.progress import SwitchProgress
from activities.lifecycle.context import ActivityContext
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.registrations import BROKERS
from clients.bookkeeper.copy_result import Begun
from clients.errors import StoreConflict, Superseded
from models.bookie_cluster.input import Direction
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailureKind
from models.migration_flag import FLAG, Flag, FlagPhase
from tests.support.bookie_cluster.broker_scene import CLOSED, ONE, OPEN, TWO, Scene

BACK = Direction.BACK
BUNDLE = "/namespace/public/default/0x00000000_0xffffffff"


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
