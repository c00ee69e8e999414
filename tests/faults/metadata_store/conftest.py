"""The servers of the metadata store migration's rounds: a fresh cluster for each."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from deploy.devstack.provision import Toolchain
from deploy.devstack.stack import StackSpec
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store.environment import CLUSTER
from tests.support.stacks import stack_maker

_SPEC = StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=2, cluster=CLUSTER)


@pytest.fixture(scope="package")
def stacks(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[StackPool]:
    """Fresh clusters: ZooKeeper, Oxia, a bookie and two brokers."""
    wanted = sum("stacks" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with stack_maker(toolchain, tmp_path_factory, request.session) as make:
        pool = StackPool(lambda: make(_SPEC), wanted)
        yield pool
        pool.close()
