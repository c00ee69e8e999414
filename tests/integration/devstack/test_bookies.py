"""Two BookKeeper clusters on one ZooKeeper, and brokers that go from one to the other."""

from __future__ import annotations

import importlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pulsar_devstack.servers.admin import StackAdmin, topic_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.clients.java_ledgers import JavaLedgers
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two bookies in each cluster, and two brokers."""
    return make_stack(StackSpec(zookeepers=1, bookies=2, second_bookies=2, brokers=2))


def exchange(stack: Stack, topic: str) -> set[int]:
    """Send and receive one message; returns the ledgers that hold it."""
    with closing(quiet_client(stack.broker_url)) as client, StackAdmin(stack.admin_urls[0]) as admin:
        reader = client.create_reader(topic_url(topic), pulsar.MessageId.earliest)
        client.create_producer(topic_url(topic)).send(topic.encode())
        assert reader.read_next(timeout_millis=60_000).data() == topic.encode()
        return admin.ledgers(topic)


def test_brokers_write_to_the_configured_cluster(stack: Stack, toolchain: Toolchain, tmp_path: Path) -> None:
    """Messages lie on both bookies of the first cluster, then of the second, with nothing of them in the other one."""
    with JavaLedgers(toolchain, tmp_path) as java:
        on_first = exchange(stack, "first")
        stack["broker-2"].stop()

        stack.use_bookies(stack.second_bookkeeper_uri)

        assert not stack["broker-2"].alive
        # Ids start again in the other cluster, so ledgers are identified by their topic.
        on_second = exchange(stack, "second")
        for uri, ids, topic, kind in (
            (stack.bookkeeper_uri, on_first, "first", "bookie"),
            (stack.second_bookkeeper_uri, on_second, "second", "second-bookie"),
        ):
            ledgers = java.read(uri, ids, recover=True)
            assert {ledger.error for ledger in ledgers} == {None}
            assert {ledger.custom["pulsar/managed-ledger"] for ledger in ledgers} == {
                f"public/default/persistent/{topic}".encode()
            }
            assert {bookie for ledger in ledgers for row in ledger.segments.values() for bookie in row} == {
                f"{kind}-1",
                f"{kind}-2",
            }
            assert sum(ledger.entries for ledger in ledgers) >= 1


@pytest.mark.exhaustive
def test_a_stopped_broker_starts_on_the_configured_cluster(stack: Stack) -> None:
    """A broker that was down during the change uses the second cluster from its start, and both go back together."""
    stack["broker-2"].start()
    assert f"bookkeeperMetadataServiceUri={stack.second_bookkeeper_uri}" in _config(stack, "broker-2")
    before = {name: stack[name].pid for name in ("broker-1", "broker-2")}
    stack.use_bookies(stack.bookkeeper_uri)
    for name, pid in before.items():
        assert stack[name].pid != pid
        wait_for(f"{name} to be ready", lambda name=name: stack[name].ready, 60)
    assert exchange(stack, "first-again")


@pytest.mark.exhaustive
def test_both_clusters_survive_a_restart(stack: Stack) -> None:
    """The roots are written once: a stack that was down comes up on the same data, in both clusters."""
    stack.down()
    stack.up()
    ready = dict.fromkeys(stack.state.spec.names, "ready")
    wait_until_equal("the servers", lambda: {row.name: row.state for row in stack.status()}, ready, 60)
    assert exchange(stack, "once-more")


def _config(stack: Stack, name: str) -> list[str]:
    return (stack[name].folder / "broker.conf").read_text().splitlines()
