"""A live migration of a cluster that lives beneath a chroot of its ZooKeeper."""

from __future__ import annotations

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.runner import Traffic
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

CLUSTER = "chroot"


def test_live_from_beneath_a_chroot(make_stack: MakeStack, environment: Environment) -> None:
    """The tree beneath the chroot arrives whole, brokers follow, no message is lost and no ledger id is given twice."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, zk_chroot="/pulsar-a", cluster=CLUSTER))
    assert stack.zk_url.endswith("/pulsar-a")
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
    admin = StackAdmin(stack.admin_urls[0])
    admin.create_topic("old")
    with Traffic.here(stack.broker_url, ["flow"]) as traffic:
        traffic.wait_for_more(10)
        report = environment.operator.run(input)
        tree = stores.read_zookeeper(stack.zk_url)
        commit = stores.committed_ms(stack.zk_url)
        assert report.outcome is Outcome.DONE
        assert any("below the chroot /pulsar-a" in note for note in report.notes)
        assert stores.assert_equal(tree, stores.read_oxia(stack.oxia_url), until_ms=commit) > 30
        used = stores.ledger_ids(set(tree))
        for number in range(10):
            admin.create_topic(f"new-{number}")
        each = [admin.ledgers(f"new-{number}") for number in range(10)]
        fresh = {ledger for ledgers in each for ledger in ledgers}
        assert all(each)
        # A broker that has loaded a topic again has another ledger for it.
        assert len(fresh) == sum(map(len, each)), "two topics share a ledger"
        assert min(fresh) > max(used)
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    admin.close()
