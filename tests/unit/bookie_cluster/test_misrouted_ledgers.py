"""Ledgers that brokers create in the cluster that they left, after everything in it was copied; all are doubles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers
from models.bookie_cluster.input import Direction, Proof
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Undo
from tests.support.bookie_cluster.broker_scene import ONE, OPEN, Scene


@pytest.fixture
def scene() -> Scene:
    """No broker runs; an order is carried out at once."""
    return Scene()


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
    del scene.ledgers["a"]
    task = scene.task(broker_control="command")
    started = brokers.start(task, Direction.FORWARD, Proof.FULL, Undo.NONE)
    assert (len(started.brokers), scene.orders) == (1, ["start"])


def _run_elsewhere(
    scene: Scene, write: Callable[[], object], move: Callable[[], object], *, silent: bool = False
) -> None:
    """Start a broker on the source, where it writes; it moves to the target during the first wait."""

    def come() -> None:
        scene.register(ONE)
        scene.uri, scene.silent = scene.task().input.source.metadataServiceUri, silent
        write()
        scene.at["waiting"] = go

    def go() -> None:
        scene.uri, scene.silent = scene.task().input.target.metadataServiceUri, False
        move()

    scene.at["ordered"] = come
