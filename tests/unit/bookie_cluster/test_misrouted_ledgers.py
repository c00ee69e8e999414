"""Ledgers that brokers create in the cluster that they left, after everything in it was copied; all are doubles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers
from activities.bookie_cluster.ledgers import all_references, read_known
from activities.bookie_cluster.progress import Begun, IdNumbers, SwitchProgress, read_verified
from clients.store import StoreReader
from models.bookie_cluster.input import Direction, Proof
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Undo
from tests.support.bookie_cluster.broker_scene import CLOSED, ONE, OPEN, Scene

BACK = Direction.BACK


@pytest.fixture
def scene() -> Scene:
    """No broker runs; an order is carried out at once."""
    return Scene()


@pytest.fixture
def copied_back(scene: Scene) -> Scene:
    """A broker runs, and in a rollback everything was copied back to the source."""
    scene.register(ONE)
    scene.ledgers["a"] = {7: OPEN, 8: OPEN}
    SwitchProgress(scene.task(BACK), scene.newest()).set_cutover_ledger_id(8)
    return scene


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


@pytest.mark.parametrize("silent", [False, True])
def test_a_misrouted_ledger_is_found_before_its_broker_stops(scene: Scene, silent: bool) -> None:
    """Once the broker on the source has stopped, those on the target do not find its ledger, and remove the reference.

    A broker that does not say which cluster it uses may be on the source, too.
    """
    _run_elsewhere(scene, scene.misroute, scene.forget, silent=silent)
    with pytest.raises(ApplicationError, match=r"created ledger\(s\) 9"):
        scene.start()


def test_a_ledger_that_nothing_refers_to_is_not_misrouted(scene: Scene) -> None:
    """Other clients create ledgers in the source too: the switch continues once the misplaced broker has moved."""
    _run_elsewhere(scene, lambda: scene.ledgers["a"].update({9: OPEN}), lambda: None)
    assert len(scene.start().brokers) == 1


def test_a_rollback_that_was_given_up_starts_brokers_although_a_ledger_is_misrouted(scene: Scene) -> None:
    """Brokers that cannot go back start on the target; the source, which may be lost, is not asked."""
    scene.register(ONE)
    scene.misroute()
    scene.unreadable.add("a")
    started = scene.start(undo=Undo.NONE)
    assert (len(started.brokers), scene.orders) == (1, ["start"])


@pytest.mark.parametrize("moment", ["before", "ordered"])
def test_a_ledger_that_the_rollback_misses_is_named(copied_back: Scene, moment: str) -> None:
    """The source lacks a ledger that was created in the target after the copy back, which must follow again."""
    scene = copied_back
    if moment == "before":
        scene.misroute("b")
    else:
        scene.at[moment] = lambda: scene.misroute("b")
    assert scene.start(BACK).misrouted == "ledger(s) 9"
    assert scene.orders == ([] if moment == "before" else ["start"])


def test_a_ledger_from_before_the_directive_is_named(scene: Scene) -> None:
    """A broker that started on the target before the switch directed it there wrote what the source lacks."""
    scene.register(ONE)
    scene.ledgers = {"a": {5: CLOSED, 7: OPEN, 8: OPEN}, "b": {3: CLOSED, 5: CLOSED, 6: OPEN}}
    SwitchProgress(scene.task(), scene.newest()).add_verified({3: 1, 5: 1})
    for number in (3, 5):
        scene.refer(number)
    assert scene.start(BACK).misrouted == ""
    scene.misroute("b")
    assert scene.start(BACK).misrouted == "ledger(s) 9"


def test_a_broker_that_starts_on_the_target_during_the_copy_ends_the_switch(scene: Scene) -> None:
    """Its ledger is above all of the source; copies, and ledgers of other clients, are none of a broker."""
    scene.ledgers = {"a": {3: CLOSED, 5: CLOSED}, "b": {3: CLOSED, 5: OPEN, 6: OPEN}}
    for number in (3, 5):
        scene.refer(number)
    _require_none_early(scene)
    assert brokers.find_early_ledgers(scene.task()) == ""
    scene.misroute("b")
    with pytest.raises(ApplicationError, match=r"too early: it created ledger\(s\) 9 there") as failed:
        _require_none_early(scene)
    assert failed.value.type == FailureKind.CONFLICT
    assert brokers.find_early_ledgers(scene.task()) == "ledger(s) 9"


@pytest.mark.parametrize("is_open", [False, True])
def test_a_copy_that_autorecovery_has_moved_does_not_end_the_switch(scene: Scene, *, is_open: bool) -> None:
    """Brokers delete a topic's ledgers before the references to them: its newest copy is not a ledger of a broker.

    The newest ledger is often an open one, whose copy has not been compared.
    """
    scene.ledgers = {"a": {3: CLOSED}, "b": {3: CLOSED, 5: CLOSED}}
    scene.refer(5)
    progress = SwitchProgress(scene.task(), scene.newest())
    if is_open:
        progress.set_begun({5: Begun(0, 1, 1)})
    else:
        progress.add_verified({3: 1, 5: 1})
    _require_none_early(scene)
    assert brokers.find_early_ledgers(scene.task()) == ""


def test_a_target_that_brokers_never_used_is_waited_for_once_they_run(scene: Scene) -> None:
    """If the target fails before the switch directs brokers there, they go back at once, and it is read for a while."""
    _never_used(scene)
    started = scene.start(BACK)
    assert (len(started.brokers), scene.orders) == (1, ["start"])
    assert 14 * 60 < scene.context.now < 16 * 60
    assert started.unread == "ledgers of b with ids above 5 (b does not answer)"


def test_a_target_that_brokers_never_used_is_read_again(scene: Scene) -> None:
    """A ledger that a broker created there by mistake is found when the target answers again."""
    _never_used(scene)
    scene.misroute("b")
    scene.at["waiting"] = scene.unreadable.clear
    started = scene.start(BACK)
    assert (started.misrouted, started.unread) == ("ledger(s) 9", "")


def test_a_wait_for_a_target_that_brokers_never_used_is_ended(scene: Scene) -> None:
    """The operator need not wait, and reads which ledgers were not looked for."""
    _never_used(scene)
    assert scene.start(BACK, Proof.WAIVED).unread == "ledgers of b with ids above 5 (b does not answer)"
    assert scene.context.now == 0


def test_the_list_of_copies_is_read_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long, and brokers are asked every second."""
    _never_used(scene)
    paths: list[str] = []

    def read(store: StoreReader, path: str) -> IdNumbers:
        paths.append(path)
        return read_verified(store, path)

    monkeypatch.setattr(brokers, "read_verified", read)
    scene.start(BACK)
    assert len(paths) == 1


def test_a_rollback_finds_a_ledger_before_its_broker_stops(copied_back: Scene) -> None:
    """A broker on the target is not waited for: its topics would move to brokers that do not find its ledger."""
    _run_elsewhere(copied_back, lambda: copied_back.misroute("b"), copied_back.forget, direction=BACK)
    assert copied_back.start(BACK).misrouted == "ledger(s) 9"


def test_ledgers_that_were_copied_back_are_not_misrouted(copied_back: Scene) -> None:
    """A ledger that both clusters have, or that was in the target at the copy back, does not stop brokers again."""
    for number in (6, 9):
        copied_back.ledgers["b"][number] = CLOSED
        copied_back.refer(number)
    copied_back.ledgers["a"][9] = CLOSED
    assert copied_back.start(BACK).misrouted == ""


def test_brokers_start_on_the_source_although_the_target_has_died(copied_back: Scene) -> None:
    """A target that cannot be read delays no start; whether a ledger is only there is doubted until it can be read."""
    scene = copied_back
    scene.unreadable.add("b")
    whys: list[str] = []

    def read() -> None:
        waiting = scene.context.report().waiting
        whys.append(waiting.why if waiting else "")
        scene.unreadable.clear()

    scene.at["waiting"] = read
    assert len(scene.start(BACK).brokers) == 1
    assert scene.orders == ["start"]
    assert whys == ["proof that brokers write to a: the ledgers of b cannot be read: b does not answer"]


@pytest.mark.parametrize(("asked", "undo"), [(Proof.WAIVED, Undo.COPY_BACK), (Proof.FULL, Undo.NONE)])
def test_a_target_that_is_given_up_is_not_waited_for(copied_back: Scene, asked: Proof, undo: Undo) -> None:
    """The operator may waive the proof, or have given the target up before."""
    copied_back.unreadable.add("b")
    assert copied_back.start(BACK, asked, undo).misrouted == ""


def _never_used(scene: Scene) -> None:
    """Give a rollback before the directive whose target does not answer."""
    scene.register(ONE)
    scene.ledgers["a"] = {5: CLOSED, 7: OPEN, 8: OPEN}
    SwitchProgress(scene.task(), scene.newest()).add_verified({3: 1, 5: 1})
    scene.unreadable.add("b")


def _require_none_early(scene: Scene) -> None:
    task = scene.task()
    with task.broker_store() as store:
        newer = brokers.newer_than_source(task)
        brokers.require_no_early_ledgers(task, newer, all_references(store), read_known(task, store))


def _run_elsewhere(
    scene: Scene,
    write: Callable[[], object],
    move: Callable[[], object],
    *,
    direction: Direction = Direction.FORWARD,
    silent: bool = False,
) -> None:
    """Start a broker on the cluster that was left, where it writes; it moves to the other one in the first wait."""
    ends = scene.task().input.ends(direction)

    def come() -> None:
        scene.register(ONE)
        scene.uri, scene.silent = ends.source.metadataServiceUri, silent
        write()
        scene.at["waiting"] = go

    def go() -> None:
        scene.uri, scene.silent = ends.target.metadataServiceUri, False
        move()

    scene.at["ordered"] = come
