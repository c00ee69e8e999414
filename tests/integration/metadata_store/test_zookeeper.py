"""Migrations from one ZooKeeper to another, live and offline."""

from __future__ import annotations

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.servers.admin import StackAdmin, refusal
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.pulsar_client import read_from, send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.releases import live_migrations
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

CLUSTER = "zookeepers"


@live_migrations
def test_live_to_another_zookeeper(make_stack: MakeStack, environment: Environment) -> None:
    """Versions and sequences are kept, the cluster works on the new ZooKeeper, and no ledger id is given twice."""
    stack = make_stack(StackSpec(zookeepers=1, second_zookeepers=1, bookies=1, brokers=1, cluster=CLUSTER))
    admin = StackAdmin(stack.admin_urls[0])
    target = f"{stack.second_zk_url}/new"
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": target,
            "validation_window": "PT0S",
        }
    )
    for number in range(4):
        admin.create_topic(f"old-{number}")
    admin.delete_topic("old-3")
    with Traffic.here(stack.broker_url, ["flow"]) as traffic:
        traffic.wait_for_more(10)
        report = environment.operator.run(input)
        tree = stores.read_zookeeper(stack.zk_url, without_coordinator=False)
        commit = stores.committed_ms(stack.zk_url)
        copy = stores.read_zookeeper(target)
        assert report.outcome is Outcome.DONE
        source = {path: node for path, node in tree.items() if not path.startswith(stores.COORDINATOR)}
        copied_before = {path: node for path, node in copy.items() if node.mtime < commit}
        lasting = stores.persistent(source)
        assert (
            stores.assert_same_tree({path: source[path] for path in lasting & set(copied_before)}, copied_before) > 30
        )
        assert lasting - set(copy) == set()
        assert copy["/ledgers/idgen"].created >= source["/ledgers/idgen"].created
        used = stores.ledger_ids(set(source))
        refused = [why for n in range(20) if (why := refusal(admin.create_topic, f"new-{n}"))]
        assert refused == []
        each = [admin.ledgers(f"new-{number}") for number in range(20)]
        fresh = {ledger for ledgers in each for ledger in ledgers}
        assert len(fresh) == sum(map(len, each)), "two topics share a ledger"
        assert min(fresh) > max(used)
        assert fresh <= stores.ledger_ids(set(stores.read_zookeeper(target)))
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    admin.close()


def test_offline_to_another_zookeeper(make_stack: MakeStack, environment: Environment) -> None:
    """The copy is exact, the cluster starts on it, reads what it wrote before, and gives no ledger id twice."""
    stack = make_stack(StackSpec(zookeepers=1, second_zookeepers=1, bookies=1, brokers=1, cluster="offline-zk"))
    target = f"{stack.second_zk_url}/new"
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": "offline-zk",
            "mode": "offline",
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": target,
            "validation_window": "PT0S",
        }
    )
    with StackAdmin(stack.admin_urls[0]) as admin:
        send_to(stack.broker_url, ["eras", "gone"], b"first")
        admin.delete_topic("gone")
    refused = environment.operator.refusal(input)
    assert "SERVICES_RUNNING" in str(refused)
    for name in ("broker-1", "bookie-1"):
        stack[name].stop()
    stores.wait_until_unused(stack.zk_url)

    report = environment.operator.run(input)

    assert report.outcome is Outcome.DONE
    tree = stores.read_zookeeper(stack.zk_url)
    assert stores.assert_same_tree(tree, stores.read_zookeeper(target)) > 30
    used = stores.ledger_ids(set(tree))
    stack.use_metadata(target)
    for name in ("bookie-1", "broker-1"):
        stack[name].start()
    send_to(stack.broker_url, ["eras"], b"second")
    assert read_from(stack.broker_url, "eras", 2) == [b"first", b"second"]
    send_to(stack.broker_url, ["new"], b"x")
    with StackAdmin(stack.admin_urls[0]) as admin:
        assert min(admin.ledgers("new")) > max(used)
