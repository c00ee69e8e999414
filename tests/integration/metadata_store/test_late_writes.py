"""Writes of brokers to a source after the commit, while services write to a ZooKeeper target."""

from __future__ import annotations

from typing import Any

import pytest

from activities.metadata_store import convergence, cutover, pre_copy, preparation, rollback
from clients.stores import Access, last_transaction
from models.store_url import parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.metadata_store.replica import CommitPoint, Replica
from spark.metadata_store.spec import Pair
from tests.support.metadata_store import stores
from tests.support.metadata_store.steps import open_place
from tests.support.stacks import SharedStack

COPIED = ["/both", "/recreated", "/dropped", "/late", "/removed", "/grown", "/unset"]
PARENTS = ["/with-children", "/made-again", "/of-both"]


def test_newer_writes_of_a_zookeeper_target_are_kept(shared_stack: SharedStack) -> None:
    """Only records without a write or deletion in the target since the commit follow the source; others are named."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source_url, target_url = f"{stack.zk_url}/late", f"{stack.second_zk_url}/late"
    pair = Pair(parse_store_url(source_url), parse_store_url(target_url), Access(), parts=1)
    with stores.kazoo(stack.zk_url) as old, stores.kazoo(stack.second_zk_url) as new:
        new.ensure_path(f"/late{stores.COORDINATOR}")
        for path in COPIED:
            old.create(f"/late{path}", b"copied", makepath=True)
        for path in PARENTS:
            old.create(f"/late{path}")
        everything = [*map(str.encode, COPIED + PARENTS)]
        with Replica(pair, lambda: None) as replica:
            assert replica.apply(everything).written == len(everything)
            commit = CommitPoint(last_transaction(pair.source, Access()), last_transaction(pair.target, Access()))
            _services_write(new)
            for _ in range(5):
                old.set("/late/both", b"late")
            old.set("/late/late", b"late")
            old.create("/late/dropped/child", b"late")
            old.create("/late/fresh", b"late")
            # ZooKeeper deletes parents itself, if they are containers without children.
            for path in ("/recreated", "/removed", "/grown", "/with-children", "/made-again"):
                old.delete(f"/late{path}")
            for path in ("/unset", "/of-both"):
                old.create(f"/late{path}/child", b"", ephemeral=True)
                old.delete(f"/late{path}/child")
            followed = replica.apply_untouched([*everything, b"/fresh"], commit)
            assert followed.contested == {b"/both", b"/recreated", b"/grown"}
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
        "/with-children/child": b"service",
        "/made-again/child": b"service",
        "/unset": b"service",
        "/of-both/child": b"service",
    }


def _services_write(new: Any) -> None:
    new.set("/late/both", b"service")
    new.delete("/late/recreated")
    new.create("/late/recreated", b"service")
    new.delete("/late/dropped")
    new.create("/late/grown/child", b"service")
    new.create("/late/with-children/child", b"service")
    new.delete("/late/made-again")
    new.create("/late/made-again/child", b"service", makepath=True)
    new.set("/late/unset", b"service")
    new.create("/late/of-both/child", b"service")


def test_each_late_write_of_a_record_is_copied(shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was copied after the commit is copied again, unless a service or an unknown worker wrote it."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    target = f"{stack.second_zk_url}/twice"
    with open_place(stack, "twice", ["/tenants/a", "/tenants/b"], target) as place:
        pre = place.run(pre_copy.pre_copy, 0)
        assert not place.run(preparation.prepare).gap
        place.run(cutover.copy_changes, pre)
        place.run(cutover.verify, pre)
        place.run(cutover.complete, pre)
        for number in (1, 2, 3):
            place.set("/tenants/a", number)
            followed = place.run(cutover.follow, pre)
            assert (followed.copied, followed.contested) == (1, ())
            assert _stored(target, "/tenants/a") == _stored(place.source, "/tenants/a")
        with stores.kazoo(stack.second_zk_url) as new:
            new.set("/twice/tenants/b", b"service")
        place.set("/tenants/b")
        assert place.run(cutover.follow, pre).contested == ("/tenants/b",)
        # Another worker does not know which of these writes were ours: it keeps the record, and reports it.
        place.lose_the_watch()
        place.set("/tenants/a", 5)
        assert place.run(cutover.follow, pre).contested == ("/tenants/a", "/tenants/b")


def test_a_late_write_that_the_target_cannot_hold_stops_no_other(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that ZooKeeper cannot hold is reported, and the other late writes are copied."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    target = f"{stack.second_zk_url}/unheld"
    with open_place(stack, "unheld", ["/tenants/a", "/tenants/b"], target) as place:
        pre = place.run(pre_copy.pre_copy, 0)
        assert not place.run(preparation.prepare).gap
        place.run(cutover.copy_changes, pre)
        place.run(cutover.verify, pre)
        place.run(cutover.complete, pre)
        with stores.kazoo(stack.second_zk_url) as new:
            new.create("/unheld/tenants/a/lock", b"", ephemeral=True)
            place.zookeeper.delete("/tenants/a")
            place.zookeeper.create("/tenants/a", b"created again")
            place.set("/tenants/b", 3)
            followed = place.run(cutover.follow, pre)
        assert followed.contested == ("/tenants/a",)
        assert _stored(target, "/tenants/b") == _stored(place.source, "/tenants/b")


def _stored(url: str, path: str) -> tuple[bytes, int]:
    node = stores.read_zookeeper(url)[path]
    return node.value, node.version
