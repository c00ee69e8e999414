"""Fixtures of the tests of the migration to scalable topics: one broker."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from clients.cas.store import CasStore
from models.lifecycle.claim import CLAIM
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language
from tests.support.clusters import admin, store
from tests.support.stacks import SharedStack

__all__ = ["admin", "store"]


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """One broker."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1))


@pytest.fixture(autouse=True)
def release_cluster(request: pytest.FixtureRequest) -> Generator[None]:
    """After a test that failed during a migration others do not wait for its end, each for minutes."""
    # The end of a fixture may not ask for another one.
    of_cluster: CasStore | None = request.getfixturevalue("store") if "store" in request.fixturenames else None
    yield
    if of_cluster and (claim := of_cluster.get(CLAIM)):
        of_cluster.delete(CLAIM, claim.version)


@pytest.fixture
def clients(stack: Stack, toolchain: Toolchain, tmp_path: Path) -> Generator[ClientProgram]:
    """V5 clients."""
    tools = with_scalable_clients(toolchain)
    with closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as clients:
        yield clients
