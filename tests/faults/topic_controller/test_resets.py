"""Temporal resets a controller while an attempt of it hangs: what is made again after the reset stays."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_scalable import ScalableClient
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.stacks import SharedStack
from tests.support.topic_controller.controllers import Controller

_LATE = Gate("unsubscribe-3", Edge.AFTER)
"""An attempt may delete a cursor, and has not sent the request."""
_MESSAGES = 20
_LIMIT = 120.0


@pytest.fixture
def controller(
    environment: FaultEnvironment, shared_stack: SharedStack, request: pytest.FixtureRequest
) -> Generator[tuple[Controller, Stack]]:
    """Of a topic with a subscription."""
    stack = shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))
    topic = f"persistent://public/default/{request.node.name.replace('[', '-').strip(']')}"
    controller = Controller.of(environment.operator, stack, topic, segments=2)
    controller.subscribe("late", SubscriptionKind.QUEUE)
    yield controller, stack
    controller.terminate()


@pytest.mark.exhaustive
def test_a_late_deletion_after_a_reset(environment: FaultEnvironment, controller: tuple[Controller, Stack]) -> None:
    """The subscription is created again only when no request of that attempt can arrive, and keeps its messages."""
    leads, stack = controller
    environment.gates.hold(_LATE)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(_unsubscribe, leads)
        environment.gates.wait_reached(_LATE)
        leads.reset("topic_controller_unsubscribe", updates=True)
        leads.until(lambda status: status.epoch == 0 and not status.doing)
        leads.subscribe("late", SubscriptionKind.QUEUE)
        with ScalableClient(stack.broker_url) as client, client.create_producer(leads.input.topic) as producer:
            for number in range(_MESSAGES):
                producer.send(b"", partition_key=str(number))
        environment.gates.release(_LATE)
        environment.gates.wait_ended(_LATE)
    assert leads.stats().subscriptions == {"late": _MESSAGES}


@pytest.mark.parametrize("step", ["prepare", pytest.param("seal", marks=pytest.mark.exhaustive)])
def test_a_reset_into_a_step(environment: FaultEnvironment, controller: tuple[Controller, Stack], step: str) -> None:
    """Such a step finds newer ones of its own run; the controller continues with what the metadata store knows."""
    leads, _ = controller
    gate = Gate(f"{step}-1", Edge.BEFORE)
    # Another test of the session may have used the gate.
    environment.gates.forget(gate)
    environment.gates.hold(gate)
    with ThreadPoolExecutor(1) as executor:
        asked = executor.submit(leads.split, 0)
        environment.gates.wait_reached(gate)
        # A task of the workflow while the step is under way.
        leads.set_grace(timedelta(seconds=70))
        environment.gates.release(gate)
        asked.result(_LIMIT)
    leads.split(1)
    leads.reset(f"topic_controller_{step}", updates=False, incomplete=True)
    assert [segment.segment_id for segment in leads.layout().active] == [2, 3, 4, 5]
    leads.merge(2, 3)


def _unsubscribe(controller: Controller) -> None:
    # Its run ends before it is answered.
    with suppress(WorkflowUpdateFailedError, RPCError, TimeoutError):
        controller.unsubscribe("late")
