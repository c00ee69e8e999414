"""Metadata that brokers go on writing while writes are blocked.

PIP-454 has them refuse every write from PREPARATION to COMPLETED. Pulsar 5.0.0-M1 refuses only those that do not go
through a cache: tenants, namespaces and policies are still written to the source.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator
from contextlib import contextmanager

from deploy.devstack.admin import StackAdmin, refusal
from deploy.devstack.stack import StackSpec
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

CLUSTER = "cached"
INTERVAL = 0.1


@contextmanager
def new_tenants(url: str) -> Generator[list[str]]:
    """Create one tenant after the other until the context ends; yields the names of those that were acknowledged."""
    end, admin, names = threading.Event(), StackAdmin(url), list[str]()

    def work() -> None:
        for number in itertools.count():
            if end.wait(INTERVAL):
                return
            if not refusal(admin.create_tenant, f"meanwhile-{number}", CLUSTER):
                names.append(f"meanwhile-{number}")

    thread = threading.Thread(target=work, name="tenants", daemon=True)
    thread.start()
    try:
        yield names
    finally:
        end.set()
        thread.join(40)
        admin.close()


def test_no_acknowledged_tenant_is_lost(make_stack: MakeStack, environment: Environment) -> None:
    """Every tenant that a broker acknowledged before, while and after writes were blocked stands in the target."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, cluster=CLUSTER))
    input = MetadataStoreInput.model_validate(
        {"cluster": CLUSTER, "source": stack.zk_url, "target": stack.oxia_url, "validation_window": "PT0S"}
    )
    with new_tenants(stack.admin_urls[0]) as names:
        report = environment.operator.run(input)
    assert report.outcome is Outcome.DONE
    tree, standing = stores.read_zookeeper(stack.zk_url, without_coordinator=False), stores.read_oxia(stack.oxia_url)
    commit = stores.committed_ms(stack.zk_url)
    lost = [path for path in (f"/admin/policies/{name}" for name in names) if path not in standing]
    assert len(names) > 20
    assert {path: tree[path].mtime - commit for path in lost if path in tree} == {}, "ms after the commit"
    assert lost == []
