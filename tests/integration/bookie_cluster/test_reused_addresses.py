"""A bookie of the target that came back empty at an address of the source (bookkeeper #4812), on real servers."""

from __future__ import annotations

import pytest

from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.environment import SwitchEnvironment
from tests.support.stacks import MakeStack

OLD, NEW = "bookie-2", "second-bookie-1"


def name_by_address(stack: Stack) -> None:
    """Give one bookie of the source an id that is its address, as bookies without `bookieId` have."""
    stack.reconfigure(OLD, bookieId=f"127.0.0.1:{stack[OLD].ports['client']}")


@pytest.fixture(scope="module")
def environment(make_stack: MakeStack, engine: SparkEngine) -> SwitchEnvironment:
    """Two bookies in the source, one of which has an address as its id, and one in the target."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=2, second_bookies=1), name_by_address)
    return SwitchEnvironment(stack, Steps(engine))


def reused(environment: SwitchEnvironment) -> list[str]:
    """Return the causes of the blocker that names addresses of both clusters."""
    precheck = environment.precheck(allow_no_brokers=True)
    return [blocker.cause for blocker in precheck.blockers if blocker.code == "ADDRESS_REUSED"]


def test_an_address_of_the_source_is_not_used_again(environment: SwitchEnvironment) -> None:
    """A bookie of the target is refused where one of the source listened, however its host is spelled.

    An id that is not an address is not checked once its bookie is down.
    """
    stack = environment.stack
    old = stack[OLD].ports["client"]
    assert reused(environment) == []

    stack[OLD].stop()
    stack.reconfigure(NEW, bookiePort=str(old), advertisedAddress="localhost")
    (cause,) = reused(environment)
    assert cause == f"a and b have bookies at the same addresses: 127.0.0.1:{old} (as localhost:{old})"

    stack.reconfigure(NEW, advertisedAddress="127.0.0.1")
    (cause,) = reused(environment)
    assert cause == f"a and b have bookies at the same addresses: 127.0.0.1:{old}"

    port = stack["bookie-1"].ports["client"]
    stack["bookie-1"].stop()
    stack.reconfigure(NEW, bookiePort=str(port))
    assert reused(environment) == []
