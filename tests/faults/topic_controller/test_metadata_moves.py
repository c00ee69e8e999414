"""The metadata store is moved during splits, which the controllers on the other store complete."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest
from temporalio.client import WorkflowUpdateFailedError

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from models.lifecycle.status import WaitKind
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import SplitRequest
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Operator
from tests.support.metadata_store.stores import kazoo
from tests.support.stacks import MakeStack
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic

CLUSTER = "moved-controllers"
GATES = {
    "not-begun": Gate("prepare-1", Edge.BEFORE),
    "not-noted": Gate("prepare-1", Edge.AFTER),
    "not-ended": Gate("seal-1", Edge.BEFORE),
    "not-done": Gate("commit-1", Edge.BEFORE),
    "done-late": Gate("commit-1", Edge.AFTER),
}
"""Where the split of each topic is held, by the topic's name."""
BEGUN = ("not-ended", "not-done", "done-late")
# The migration follows what was written late, where it comes within the window: the change is begun then.
EPOCHS = {"not-begun": {0}, "not-noted": {0, 1}, **{name: {1} for name in BEGUN}}
CURE = "metadata_url of the other store"

_BROKERS = "/loadbalance/brokers"
_LIMIT = 200.0
_SOME = 5


class Topic:
    """One topic under traffic, from its first controller to the one on the other store; a context manager."""

    def __init__(self, operator: Operator, stack: Stack, name: str) -> None:
        self._operator, self._stack = operator, stack
        self._topic = f"persistent://public/default/{name}"
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.controller = Controller.of(self._operator, self._stack, self._topic, segments=2)
            opened.callback(self._end)
            self.controller.subscribe(SHARED, SubscriptionKind.QUEUE)
            self.controller.subscribe(ORDERED)
            registrar = opened.enter_context(Registrar(lambda: self.controller))
            self.traffic = opened.enter_context(
                Traffic(self._stack.broker_url, self._topic, registrar.base_url, rate=20)
            )
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _end(self) -> None:
        self.controller.terminate()

    def split(self) -> None:
        """Ask for a split of the first segment, which may fail with the store."""
        self.controller.retry_until_done("split", SplitRequest(segment=0), _LIMIT)

    def lead_again(self) -> None:
        """Start the controller on the other store."""
        self.controller.terminate()
        self.controller = Controller.of(
            self._operator, self._stack, self._topic, metadata_url=self._stack.oxia_url, segments=2
        )


@pytest.fixture
def stack(make_stack: MakeStack) -> Stack:
    """Two brokers on ZooKeeper, and an empty Oxia."""
    return make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=2, cluster=CLUSTER))


@pytest.fixture
def topics(environment: FaultEnvironment, stack: Stack) -> Generator[dict[str, Topic]]:
    """One for each gate."""
    with ExitStack() as opened:
        yield {name: opened.enter_context(Topic(environment.operator, stack, name)) for name in GATES}


@pytest.mark.exhaustive
@pytest.mark.parametrize("registered", [True, False], ids=["brokers-registered", "brokers-gone"])
def test_moved_during_splits(
    environment: FaultEnvironment, stack: Stack, topics: dict[str, Topic], registered: bool
) -> None:
    """A held step that continues after the move changes nothing; the next controllers complete the pending changes.

    Brokers keep their registrations in the store that they have left for as long as their sessions there last.
    """
    environment.gates.clear()
    for topic in topics.values():
        topic.traffic.wait_for_more(_SOME)
    with (
        ThreadPoolExecutor(len(topics)) as executor,
        PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin,
    ):
        asked = {name: _held(environment, name, executor, topic) for name, topic in topics.items()}
        with _moved(environment.operator, stack):
            if not registered:
                _unregister_brokers(stack)
            for gate in GATES.values():
                environment.gates.release(gate)
                environment.gates.wait_ended(gate)
            for name, topic in topics.items():
                if name in BEGUN:
                    topic.controller.until(lambda status: CURE in status.waiting)
                else:
                    with pytest.raises(WorkflowUpdateFailedError) as failed:
                        asked[name].result(_LIMIT)
                    assert CURE in str(failed.value.cause), name
                topic.lead_again()
                topic.controller.until(lambda status: status.epoch >= 0 and not status.doing)
                assert topic.controller.layout().epoch in EPOCHS[name], name
                topic.traffic.wait_for_more(_SOME)
                topic.controller.split(1)
                topic.traffic.wait_for_more(_SOME)
                topic.traffic.stop()
                assert topic.traffic.faults() == [], name
                oracle = Oracle(stack, topic.controller.name, (SHARED, ORDERED), metadata_url=stack.oxia_url)
                assert oracle.faults_at_rest(admin) == [], name


def _held(environment: FaultEnvironment, name: str, executor: ThreadPoolExecutor, topic: Topic) -> Future[None]:
    """Split the topic; return when the split is held at the gate of its topic."""
    gate = GATES[name]
    environment.gates.hold(gate)
    asked = executor.submit(topic.split)
    environment.gates.wait_reached(gate)
    return asked


def _unregister_brokers(stack: Stack) -> None:
    """Delete what the brokers registered in ZooKeeper, as it does when their sessions end."""
    with kazoo(stack.zk_url) as client:
        names = client.get_children(_BROKERS)
        assert names
        for name in names:
            client.delete(f"{_BROKERS}/{name}")


@contextmanager
def _moved(operator: Operator, stack: Stack) -> Generator[None]:
    """Move the metadata to the other store, as far as its window, in which the migration stays for the context."""
    input = MetadataStoreInput.model_validate(
        {"hold_before_cutover": False, "cluster": CLUSTER, "source": stack.zk_url, "target": stack.oxia_url}
    )
    run = operator.start(input)
    try:
        run.wait_until_it_waits_for(WaitKind.WINDOW, _LIMIT, phase=Phase.VALIDATION)
        yield
    finally:
        run.terminate()
