"""The data path needs neither Temporal nor any worker, and lives through the loss of brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from models.lifecycle.failures import FailureKind
from models.topic_controller.input import SplitRequest
from pulsar_devstack.servers.stack import Stack, StackSpec
from temporal.converter import DATA_CONVERTER
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.rounds import TEMPORAL
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.stacks import SharedStack
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.flowing import SOME, flowing

_UPDATE_LIMIT = 120.0
_OTHER = "other"
_A_DAY = Duration(seconds=86_400)


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seconds", [20, pytest.param(600, marks=pytest.mark.exhaustive)])
def test_without_temporal_and_workers(
    environment: FaultEnvironment, stack: Stack, tell: Callable[[str], None], seconds: int
) -> None:
    """Messages flow without Temporal and workers; a change waits, and is done when they are back."""
    operator = environment.operator
    with flowing(operator, stack, f"alone-{seconds}") as (controller, traffic), ThreadPoolExecutor(1) as executor:
        controller.split(0)
        # What came of it is given to ordered consumers by the controller alone.
        traffic.wait_for_readers(segment.segment_id for segment in controller.layout().active)
        with _away(environment):
            before = traffic.count
            asked = executor.submit(
                controller.retry_until_done, "split", SplitRequest(segment=1), seconds + _UPDATE_LIMIT
            )
            # That nothing happens for so long is what is shown: there is nothing to wait for.
            threading.Event().wait(seconds)
            traffic.wait_for_more(SOME)
            during = traffic.count - before
            assert not asked.done()
        asked.result(_UPDATE_LIMIT)
        assert [segment.descriptor for segment in controller.layout().active][-1] == "c000-ffff-5"
    tell(f"without Temporal and workers for {seconds} s: {during} messages, none lost")


@contextmanager
def _away(environment: FaultEnvironment) -> Generator[None]:
    """Stop Temporal and workers for the duration of the context."""
    temporal = environment.stack[TEMPORAL]
    environment.worker.kill()
    temporal.kill()
    try:
        yield
    finally:
        temporal.start()
        environment.worker.restart()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_brokers_that_fail_during_changes(environment: FaultEnvironment, stack: Stack, how: str) -> None:
    """Consumers resume when a segment's broker is killed, or all are restarted in turn, during changes."""
    with (
        flowing(environment.operator, stack, f"brokers-{how}") as (controller, traffic),
        ThreadPoolExecutor(1) as executor,
    ):
        for number, broker in enumerate(("broker-1", "broker-2")):
            asked = executor.submit(controller.retry_until_done, "split", SplitRequest(segment=number), _UPDATE_LIMIT)
            if how == "kill":
                stack[broker].kill()
                stack[broker].start()
            else:
                stack[broker].restart()
            asked.result(_UPDATE_LIMIT)
            traffic.wait_for_more(SOME)


@pytest.fixture
def rival(environment: FaultEnvironment, tmp_path: Path) -> Generator[Operator]:
    """An operator of another Temporal namespace, which has a worker of its own."""
    address = environment.stack.temporal_address
    with Operator(address) as operator:
        request = RegisterNamespaceRequest(namespace=_OTHER, workflow_execution_retention_period=_A_DAY)
        operator.wait(operator.client.workflow_service.register_namespace(request), 30)
        connecting = Client.connect(address, namespace=_OTHER, data_converter=DATA_CONVERTER)
        operator.client = operator.wait(connecting, 30)
        with WorkerProcess(address, tmp_path, TEMPORAL_NAMESPACE=_OTHER):
            yield operator


@pytest.mark.exhaustive
def test_controllers_of_two_namespaces(environment: FaultEnvironment, stack: Stack, rival: Operator) -> None:
    """The one that was started last leads, with the sessions of the other, which fails with what it does next."""
    with flowing(environment.operator, stack, "rivals") as (first, traffic):
        first.split(0)
        second = Controller.of(rival, stack, first.input.topic)
        second.split(1)
        traffic.wait_for_more(SOME)
        # It has ended already if it had something to send to consumers.
        with pytest.raises((WorkflowUpdateFailedError, RPCError)):
            first.split(2)
        assert first.failure().type == FailureKind.NOT_LEADER
        assert second.merge(4, 5).epoch == 3
    second.terminate()
