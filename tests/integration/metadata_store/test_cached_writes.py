"""Metadata that brokers continue writing while writes are blocked.

PIP-454 has them refuse every write from PREPARATION to COMPLETED. Brokers 4.2 and 5.0 refuse only those that do not go
through a cache: tenants, namespaces and policies are still written to the source.
"""

from __future__ import annotations

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.admin import StackAdmin, refusal
from pulsar_devstack.servers.stack import StackSpec
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

CLUSTER = "cached"
INTERVAL = 0.1


class NewTenants(BackgroundThread):
    """Creates one tenant after the other.

    Attributes:
        names: of those that were acknowledged.
    """

    def __init__(self, url: str) -> None:
        super().__init__("tenants", INTERVAL)
        self.names: list[str] = []
        self._url = url

    def work(self) -> None:
        """Create tenants."""
        with StackAdmin(self._url) as admin:
            for number, _ in enumerate(self.ticks()):
                if not refusal(admin.create_tenant, f"during-{number}", CLUSTER):
                    self.names.append(f"during-{number}")


def test_no_acknowledged_tenant_is_lost(make_stack: MakeStack, environment: Environment) -> None:
    """Every tenant that a broker acknowledged before, while and after writes were blocked is in the target."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, cluster=CLUSTER))
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": stack.oxia_url,
            "validation_window": "PT0S",
        }
    )
    with NewTenants(stack.admin_urls[0]) as tenants:
        report = environment.operator.run(input)
    assert report.outcome is Outcome.DONE
    tree, target = stores.read_zookeeper(stack.zk_url, without_coordinator=False), stores.read_oxia(stack.oxia_url)
    commit = stores.committed_ms(stack.zk_url)
    lost = [path for path in (f"/admin/policies/{name}" for name in tenants.names) if path not in target]
    assert len(tenants.names) > 20
    assert {path: tree[path].mtime - commit for path in lost if path in tree} == {}, "ms after the commit"
    assert lost == []
