"""The servers of the metadata store migration's rounds: a fresh cluster for each."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import StackSpec
from tests.faults.lifecycle.stack_pool import StackPool, make_cluster
from tests.faults.metadata_store.environment import CLUSTER
from tests.faults.metadata_store.rounds import MetadataRound
from tests.support.stacks import stack_maker

_SPEC = StackSpec(
    zookeepers=1,
    oxias=1,
    bookies=1,
    brokers=2,
    cluster=CLUSTER,
    # A round lasts longer than brokers keep unused topics, and deletes some of those itself.
    broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
)


@pytest.fixture(scope="package")
def stacks(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[StackPool]:
    """Fresh clusters: ZooKeeper, alone or an ensemble, Oxia, a bookie and two brokers."""
    wanted = [_on_ensemble(item) for item in request.session.items if "stacks" in getattr(item, "fixturenames", ())]
    with stack_maker(toolchain, tmp_path_factory, request.session) as make:
        pool = StackPool(lambda ensemble: make_cluster(make, _SPEC, ensemble=ensemble), wanted)
        yield pool
        pool.close()


def _on_ensemble(item: pytest.Item) -> bool:
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return any(value.ensemble for value in values if isinstance(value, MetadataRound))
