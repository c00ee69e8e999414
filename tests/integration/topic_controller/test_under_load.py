"""Splits and merges under load, with all that must hold of messages, cursors and layouts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import pairwise

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.namespaces import Retention
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.keyed_traffic import Receiving
from tests.integration.topic_controller.conftest import Control
from tests.support.releases import with_sample
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.parametrize("stack", with_sample("4.0"), indirect=True, scope="module"),
]

NAMESPACE = "public/loaded"
OPERATIONS = 100
RATE = 500
MAX_SEGMENTS = 8
CONVERGES_WITHIN = 300.0


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Their admin interface."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


def make_namespace(admin: PulsarAdmin, *, deduplication: bool) -> str:
    """Create a namespace that keeps all messages, so that duplicates can be seen."""
    name = f"{NAMESPACE}-{deduplication}"
    try:
        admin.namespaces.create(name, {"bundles": {"numBundles": 4}})
    except AdminConflict:
        return name
    admin.namespaces.set_retention(name, Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1))
    if deduplication:
        admin.namespaces.set_deduplication(name, enabled=True)
    return name


def change(controller: Controller, layout: SegmentLayout, dice: random.Random) -> SegmentLayout:
    """Split or merge at random."""
    active = layout.active
    if len(active) > 1 and (len(active) >= MAX_SEGMENTS or dice.random() < 0.5):
        first, second = dice.choice(list(pairwise(active)))
        return controller.merge(first.segment_id, second.segment_id)
    return controller.split(dice.choice(active).segment_id)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("deduplication", [False, True])
def test_random_changes(
    control: Control,
    stack: Stack,
    admin: PulsarAdmin,
    record_property: Callable[[str, object], None],
    *,
    deduplication: bool,
) -> None:
    """Nothing is lost, stored twice or out of order, no cursor is missing, and no epoch goes back."""
    dice = random.Random(12)
    controller = control(f"persistent://{make_namespace(admin, deduplication=deduplication)}/orders", segments=2)
    controller.subscribe(SHARED, SubscriptionKind.QUEUE)
    controller.subscribe(ORDERED)
    layout, took = controller.layout(), list[float]()
    with (
        Registrar(lambda: controller) as registrar,
        Oracle(stack, controller.name, (SHARED, ORDERED)) as oracle,
        Traffic(stack.broker_url, controller.input.topic, registrar.base_url, rate=RATE, consumers=3) as traffic,
    ):
        stored = Receiving(traffic.client.create_checkpoint_consumer(controller.input.topic))
        begun = time.monotonic()
        for _ in range(OPERATIONS):
            before = time.monotonic()
            layout = change(controller, layout, dice)
            took.append(time.monotonic() - before)
            time.sleep(dice.random())
        lasted = time.monotonic() - begun
        sent = traffic.count
        traffic.stop(CONVERGES_WITHIN)
        # What has not come then is one of the faults.
        with suppress(AssertionError):
            wait_for("all to be read", lambda: not traffic.missing(stored.received), CONVERGES_WITHIN)
        stored.stop()
    figures = {
        "operations": OPERATIONS,
        "messages": traffic.count,
        "rate": round(sent / lasted),
        "operation_seconds": {"median": sorted(took)[OPERATIONS // 2], "longest": max(took)},
        "stored_twice": stored.received.repeated,
        "received_again": {SHARED: traffic.shared.repeated, ORDERED: traffic.ordered.repeated},
        "samples": oracle.samples,
        "faults": (faults := traffic.faults() + traffic.missing(stored.received)),
    }
    record_property("figures", figures)
    print(figures)
    assert faults == []
    assert (stored.received.repetitions, stored.received.reordered()) == ({}, [])
    assert oracle.faults_at_rest(admin) == []
    controller.delete(force=True)
