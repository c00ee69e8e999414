"""A controller where brokers keep their metadata in Oxia, which has no transactions over several records."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

from activities.topic_controller.names import segment_topic
from activities.topic_controller.records import record_path
from clients.cas.store import CasStore, Node
from clients.pulsar.admin.client import PulsarAdmin
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from models.topic_controller.record import ROOT
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.integration.topic_controller.conftest import Control
from tests.integration.topic_controller.test_pruning import exists
from tests.support.stacks import MakeStack
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.flowing import SOME
from tests.support.topic_controller.listed_topics import wait_until_none_is_listed
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic
from tests.support.waiting import wait_until_equal

TOPIC = "persistent://public/default/on-oxia"
RATE = 100
LIMIT = 120.0


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two brokers on one Oxia."""
    return make_stack(StackSpec(oxias=1, bookies=1, brokers=2, metadata="oxia"))


class Lives:
    """The newest of the controllers of one topic."""

    def __init__(self, first: Controller) -> None:
        self.newest = first


@contextmanager
def under_traffic(lives: Lives, stack: Stack, admin: PulsarAdmin) -> Generator[Traffic]:
    """Send messages during the context; check at its end that nothing is wrong."""
    with ExitStack() as opened:
        registrar = opened.enter_context(Registrar(lambda: lives.newest))
        oracle = opened.enter_context(Oracle(stack, lives.newest.name, (SHARED, ORDERED)))
        traffic = opened.enter_context(Traffic(stack.broker_url, TOPIC, registrar.base_url, rate=RATE))
        traffic.wait_for_more(SOME)
        yield traffic
        traffic.wait_for_more(SOME)
        traffic.stop()
        assert traffic.faults() == []
        assert oracle.faults_at_rest(admin) == []


def notes_of(store: CasStore, controller: Controller) -> dict[str, Node]:
    """Return the notes of all sessions in the metadata store."""
    base = f"{record_path(controller.name)}/subscriptions/{ORDERED}/consumers"
    notes = {name: store.get(f"{base}/{name}") for name in store.children(base)}
    return {name: node for name, node in notes.items() if node is not None}


def at_rest(controller: Controller, store: CasStore, expected: dict[str, tuple[int, ...]]) -> None:
    """Wait until consumers read these segments, for the controller and in the metadata store."""
    wait_until_equal(f"{expected}", lambda: controller.assignments(ORDERED), expected, LIMIT)
    noted = {name: tuple(json.loads(node.value)["segments"]) for name, node in notes_of(store, controller).items()}
    assert noted == expected


@pytest.mark.exhaustive
def test_on_oxia(control: Control, stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A life under traffic: changes, sessions that outlive consumers and runs, pruning, and nothing left at the end."""
    first = control(TOPIC, segments=2, pruning=None)
    lives = Lives(first)
    first.subscribe(SHARED, SubscriptionKind.QUEUE)
    first.subscribe(ORDERED)
    with under_traffic(lives, stack, admin) as traffic:
        at_rest(first, store, {"c0": (0,), "c1": (1,)})
        split = first.split(0)
        assert ([segment.segment_id for segment in split.active], layout_faults(split)) == ([2, 3, 1], [])
        at_rest(first, store, {"c0": (2, 1), "c1": (3,)})

        before = notes_of(store, first)
        traffic.die("c0")
        first.until(lambda status: f"{ORDERED}/c0" in status.away)
        traffic.join("c0")
        first.until(lambda status: not status.away)
        # Also their versions: no note was written again.
        assert notes_of(store, first) == before
        at_rest(first, store, {"c0": (2, 1), "c1": (3,)})

        merged = first.merge(3, 1)
        assert ([segment.segment_id for segment in merged.active], layout_faults(merged)) == ([2, 4], [])
        at_rest(first, store, {"c0": (2,), "c1": (4,)})
        traffic.wait_for_more(SOME)

        first.terminate()
        second = lives.newest = control(TOPIC)
        assert second.until(lambda status: status.epoch == 2).consumers == {ORDERED: 2}
        at_rest(second, store, {"c0": (2,), "c1": (4,)})
        second.split(4)
        at_rest(second, store, {"c0": (2, 6), "c1": (5,)})

        gone = [
            segment_topic(second.name, segment.descriptor)
            for segment in second.layout().segments.values()
            if segment.sealed
        ]
        assert len(gone) == 4
        second.set_pruning(after="0s", delete_after="0s")
        second.until(lambda status: (status.sealed, status.retired) == (0, 0), LIMIT)
        assert [exists(admin, topic) for topic in gone] == [False] * len(gone)
        at_rest(second, store, {"c0": (2, 6), "c1": (5,)})

        traffic.leave("c1")
        at_rest(second, store, {"c0": (2, 5, 6)})
    assert second.delete() == "public/default/on-oxia is deleted"
    wait_until_none_is_listed(admin, second.name)
    assert (store.get(record_path(second.name)), store.children(record_path(second.name))) == (None, [])
    assert store.children(ROOT) == []
