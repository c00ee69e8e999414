"""A broker that was cut off from ZooKeeper at the instant at which the migration flag changed."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from deploy.devstack import configs
from deploy.devstack.stack import Stack
from models.lifecycle.verbs import Verb
from models.metadata_store.flag import FlagPhase
from tests.faults.conftest import StackPool
from tests.faults.lifecycle.environment import FaultySite
from tests.faults.metadata_store.environment import plan
from tests.faults.metadata_store.fault_round import Trial
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.waiting import wait_for

_BLOCKED = Gate("copy_changes", Edge.BEFORE)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def stack(stacks: StackPool) -> Stack:
    """A fresh cluster."""
    return stacks.take()


@pytest.fixture
def link(stack: Stack) -> Generator[Proxy]:
    """What lies between the second broker and ZooKeeper."""
    with Proxy(stack["zookeeper-1"].address) as link:
        stack.reconfigure("broker-2", **configs.broker_metadata(f"zk:{link.address}"))
        yield link


@pytest.mark.parametrize(
    ("gate", "phase"),
    [
        (Gate("prepare", Edge.BEFORE), FlagPhase.PREPARATION),
        (Gate("complete", Edge.BEFORE), FlagPhase.COMPLETED),
        (Gate("give_back", Edge.BEFORE), FlagPhase.FAILED),
    ],
    ids=lambda value: str(value) if isinstance(value, FlagPhase) else "",
)
def test_a_broker_that_missed_the_flag_hears_of_it(
    stack: Stack, link: Proxy, site: FaultySite, gate: Gate, phase: FlagPhase
) -> None:
    """ZooKeeper tells nobody what changed while he was away; the flag is set again, so that he follows all the same."""
    with Trial(site, stack) as trial:
        rollback = phase is FlagPhase.FAILED
        site.gates.hold(gate)
        if rollback:
            site.gates.hold(_BLOCKED)
        run = site.operator.start(plan(stack))
        if rollback:
            site.gates.wait_reached(_BLOCKED)
            run.signal(Verb.ROLLBACK)
        site.gates.wait_reached(gate)
        link.cut()
        site.gates.release(gate)
        wait_for(f"the flag {phase}", lambda: trial.watch.phase is phase, 30)
        link.heal()
        trial.wait_end(run)
        assert trial.completed is not rollback, trial.end
        trial.check()
        if rollback:
            trial.migrate_again()
        trial.settle()
