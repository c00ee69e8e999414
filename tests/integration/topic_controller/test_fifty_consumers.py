"""Fifty ordered consumers that come, go, die and return in any order, while segments are split and merged."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from tests.integration.topic_controller.conftest import Control
from tests.support.topic_controller.consumer_fleet import MAX_CONSUMERS, Act, ConsumerFleet, Step
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic

STEPS = 24
RATE = 60
CONVERGES_WITHIN = 240.0
# Each example takes a minute or two: it is not made smaller, and one without any kind of step is not worth them.
EXAMPLES = int(os.environ.get("EXAMPLES", "3"))

steps = st.builds(Step, act=st.sampled_from(Act), many=st.integers(4, 25), seed=st.integers(0, 1 << 16))
walks = st.lists(steps, min_size=STEPS, max_size=STEPS).filter(lambda walk: {step.act for step in walk} == {*Act})
_numbers = count(1)


@pytest.mark.exhaustive
@pytest.mark.timeout(600 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
    print_blob=True,
)
@given(walk=walks)
def test_fifty_consumers(
    control: Control,
    stack: Stack,
    admin: PulsarAdmin,
    store: CasStore,
    *,
    record_property: Callable[[str, object], None],
    walk: list[Step],
) -> None:
    """Each segment has one consumer at a time; one that returns disturbs no other; nothing is lost or out of order."""
    controller = control(f"persistent://public/default/crowd-{next(_numbers)}", segments=4)
    controller.subscribe(SHARED, SubscriptionKind.QUEUE)
    controller.subscribe(ORDERED)
    with ExitStack() as opened:
        opened.callback(controller.terminate)
        registrar = opened.enter_context(Registrar(lambda: controller))
        oracle = opened.enter_context(Oracle(stack, controller.name, (SHARED, ORDERED)))
        traffic = opened.enter_context(
            Traffic(stack.broker_url, controller.input.topic, registrar.base_url, rate=RATE, consumers=1)
        )
        crowd = opened.enter_context(ConsumerFleet(controller, traffic, stack, admin=admin, store=store))
        crowd.take(Step(Act.JOIN, MAX_CONSUMERS, 0))
        for step in walk:
            crowd.take(step)
        crowd.gather()
        traffic.stop(CONVERGES_WITHIN)
        figures = {
            "messages": traffic.count,
            "received again": traffic.ordered.repeated,
            "consumers": crowd.most,
            "connections dropped": crowd.dropped,
            "changes": controller.status().changes,
            "looks": crowd.looks,
            "undisturbed": dict(crowd.undisturbed),
        }
        record_property("figures", figures)
        print(figures, flush=True)
        assert traffic.faults() == []
        assert oracle.faults_at_rest(admin) == []
