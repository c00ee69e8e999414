"""Writes of brokers to a source after the commit, while services write to a ZooKeeper target."""

from __future__ import annotations

from typing import Any

from clients.stores import Access, last_transaction
from models.store_url import parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.metadata_store.replica import CommitPoint, Replica
from spark.metadata_store.spec import Pair
from tests.support.metadata_store import stores
from tests.support.stacks import SharedStack

COPIED = ["/both", "/recreated", "/dropped", "/late", "/removed", "/grown"]


def test_newer_writes_of_a_zookeeper_target_are_kept(shared_stack: SharedStack) -> None:
    """Only records without a write or deletion in the target since the commit follow the source; others are named."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source_url, target_url = f"{stack.zk_url}/late", f"{stack.second_zk_url}/late"
    pair = Pair(parse_store_url(source_url), parse_store_url(target_url), Access(), parts=1)
    with stores.kazoo(stack.zk_url) as old, stores.kazoo(stack.second_zk_url) as new:
        new.ensure_path(f"/late{stores.COORDINATOR}")
        for path in COPIED:
            old.create(f"/late{path}", b"copied", makepath=True)
        with Replica(pair, lambda: None) as replica:
            assert replica.apply(map(str.encode, COPIED)).written == len(COPIED)
            commit = CommitPoint(last_transaction(pair.source, Access()), last_transaction(pair.target, Access()))
            _services_write(new)
            for _ in range(5):
                old.set("/late/both", b"late")
            old.set("/late/late", b"late")
            old.create("/late/dropped/child", b"late")
            old.create("/late/fresh", b"late")
            for path in ("/recreated", "/removed", "/grown"):
                old.delete(f"/late{path}")
            paths = [*map(str.encode, COPIED), b"/fresh"]
            followed = replica.apply_untouched(paths, commit)
            assert followed.contested == {b"/both", b"/recreated", b"/dropped", b"/grown"}
            assert (followed.written, followed.deleted) == (2, 1)
            # The second change of a record that was followed once.
            old.set("/late/late", b"later")
            assert replica.apply_untouched([b"/late"], commit).written == 1
        in_target = {path: node.value for path, node in stores.read_zookeeper(target_url).items() if node.value}
    assert in_target == {
        "/both": b"service",
        "/recreated": b"service",
        "/late": b"later",
        "/fresh": b"late",
        "/grown": b"copied",
        "/grown/child": b"service",
    }


def _services_write(new: Any) -> None:
    new.set("/late/both", b"service")
    new.delete("/late/recreated")
    new.create("/late/recreated", b"service")
    new.delete("/late/dropped")
    new.create("/late/grown/child", b"service")
