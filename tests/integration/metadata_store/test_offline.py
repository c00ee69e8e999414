"""Offline migrations with all services stopped: from ZooKeeper, beneath a chroot, to Oxia, and back again."""

from __future__ import annotations

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.releases import Behaviour
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import read_from, send_to
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.releases import RELEASE, SAMPLED_ON_ANOTHER
from tests.support.stacks import MakeStack

pytestmark = SAMPLED_ON_ANOTHER

CLUSTER = "offline"
SERVICES = ("broker-1", "bookie-1")
TOPIC = "eras"
OLD_FLAG = b'{"phase":"COMPLETED","targetUrl":"oxia://127.0.0.1:1/default"}'


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One broker and one bookie beneath a chroot, with a message of the first era and ledgers that are gone."""
    made = make_stack(
        StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, cluster=CLUSTER, zk_chroot="/clusters/pulsar-a")
    )
    send_to(made.broker_url, [TOPIC], b"first")
    for number in range(3):
        send_to(made.broker_url, [f"gone-{number}"], b"x")
    admin = StackAdmin(made.admin_urls[0])
    for number in range(3):
        admin.delete_topic(f"gone-{number}")
    admin.close()
    return made


def input(source: str, target: str, **more: object) -> MetadataStoreInput:
    """Return an offline plan without a window."""
    return MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "mode": "offline",
            "validation_window": "PT0S",
            "accept": stores.OTHER_ROOTS,
            "source": source,
            "target": target,
            **more,
        }
    )


@pytest.mark.skipif(RELEASE.has(Behaviour.LIVE_MIGRATION), reason=f"brokers of {RELEASE} take part in it")
def test_live_is_refused_without_pip_454(stack: Stack, environment: Environment) -> None:
    """Brokers that take no part in a live migration are a blocker, which names their release and the mode to use."""
    refused = str(environment.operator.refusal(input(stack.zk_url, stack.oxia_url, mode="live")))
    assert f"[NO_LIVE_MIGRATION] brokers of Pulsar {RELEASE} take no part" in refused
    assert 'use "mode": "offline"' in refused


def test_to_oxia_and_start_there(stack: Stack, environment: Environment) -> None:
    """The copy is exact, the cluster starts on it, reads what it wrote before, and no ledger id comes again."""
    _stop(stack)
    report = environment.operator.run(input(stack.zk_url, stack.oxia_url))
    assert report.outcome is Outcome.DONE
    tree, records = stores.read_zookeeper(stack.zk_url), stores.read_oxia(stack.oxia_url)
    assert stores.assert_equal(tree, records) > 30
    assert report.certificate["compared_while_blocked"] == len(stores.persistent(tree))
    # A version that a client still holds must not come again.
    assert stores.put_oxia(stack.oxia_url, "/scratch", b"") > max(record.version for record in records.values())
    stores.delete_oxia(stack.oxia_url, "/scratch")
    given = tree["/ledgers/idgen"].created
    _start(stack, stack.oxia_url)
    send_to(stack.broker_url, [TOPIC], b"second")
    assert read_from(stack.broker_url, TOPIC, 2) == [b"first", b"second"]
    fresh = _ledgers(stack, "new-on-oxia")
    assert min(fresh) >= given


def test_failback_to_zookeeper(stack: Stack, environment: Environment) -> None:
    """After a failback over the old tree and its flag the cluster starts on ZooKeeper with the messages of all runs."""
    before = stores.ledger_ids(set(stores.read_oxia(stack.oxia_url)))
    _stop(stack)
    with stores.kazoo(stack.zk_url) as source:
        source.create(stores.FLAG, OLD_FLAG, makepath=True)
    back = input(stack.oxia_url, stack.zk_url)
    assert "[TARGET_NOT_EMPTY]" in str(environment.operator.refusal(back))
    records = stores.read_oxia(stack.oxia_url)
    report = environment.operator.run(back.model_copy(update={"replace_target": True}))
    assert report.outcome is Outcome.DONE
    tree = stores.read_zookeeper(stack.zk_url, without_coordinator=False)
    assert stores.FLAG not in tree
    copied = stores.persistent(records)
    assert copied - set(tree) == set()
    assert {path for path in copied if tree[path].value != records[path].value} == set()
    _start(stack, stack.zk_url)
    send_to(stack.broker_url, [TOPIC], b"third")
    assert read_from(stack.broker_url, TOPIC, 3) == [b"first", b"second", b"third"]
    fresh = _ledgers(stack, "new-on-zookeeper")
    assert fresh & before == set()
    assert min(fresh) > max(before)


def _stop(stack: Stack) -> None:
    for name in SERVICES:
        stack[name].stop()
    stores.wait_until_unused(stack.zk_url, stack.oxia_url)


def _start(stack: Stack, url: str) -> None:
    stack.use_metadata(url)
    for name in reversed(SERVICES):
        stack[name].start()


def _ledgers(stack: Stack, topic: str) -> set[int]:
    """Return the ledgers of a new topic."""
    send_to(stack.broker_url, [topic], b"x")
    with StackAdmin(stack.admin_urls[0]) as admin:
        return admin.ledgers(topic)
