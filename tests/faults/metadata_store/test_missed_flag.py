"""A broker that was cut off from ZooKeeper at the instant at which the migration flag changed."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from models.lifecycle.verbs import Verb
from models.migration_flag import FlagPhase
from pulsar_devstack.servers import configs
from pulsar_devstack.servers.stack import Stack
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store.environment import input
from tests.faults.metadata_store.fault_round import FaultRound
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.waiting import wait_for

_BLOCKED = Gate("copy_changes", Edge.BEFORE)

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def stack(stacks: StackPool) -> Stack:
    """A fresh cluster."""
    return stacks.take()


@pytest.fixture
def link(stack: Stack) -> Generator[Proxy]:
    """Yield the link between the second broker and ZooKeeper."""
    with Proxy(stack["zookeeper-1"].address) as link:
        stack.reconfigure("broker-2", **configs.broker_metadata(f"zk:{link.address}"))
        yield link


@pytest.mark.parametrize(
    ("gate", "phase"),
    [
        (Gate("prepare", Edge.BEFORE), FlagPhase.PREPARATION),
        (Gate("complete", Edge.BEFORE), FlagPhase.COMPLETED),
        (Gate("unblock_writes", Edge.BEFORE), FlagPhase.FAILED),
    ],
    ids=lambda value: str(value) if isinstance(value, FlagPhase) else "",
)
def test_a_broker_that_missed_the_flag_is_notified(
    stacks: StackPool, link: Proxy, environment: FaultEnvironment, gate: Gate, phase: FlagPhase
) -> None:
    """A broker that was disconnected when the flag was set follows too, since the flag is set again."""
    with FaultRound(environment, stacks) as fault_round:
        rollback = phase is FlagPhase.FAILED
        environment.gates.hold(gate)
        if rollback:
            environment.gates.hold(_BLOCKED)
        run = environment.operator.start(input(stacks.current.stack))
        if rollback:
            environment.gates.wait_reached(_BLOCKED)
            run.signal(Verb.ROLLBACK)
        environment.gates.wait_reached(gate)
        link.cut()
        environment.gates.release(gate)
        wait_for(f"the flag {phase}", lambda: fault_round.watch.phase is phase, 30)
        link.heal()
        fault_round.wait_end(run)
        assert fault_round.completed is not rollback, fault_round.end
        fault_round.check()
        if rollback:
            fault_round.migrate_again()
        fault_round.converge()
