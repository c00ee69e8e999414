"""Copies of an attempt that was lost, and that arrive in the target while the next attempt runs or later."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from activities.metadata_store import convergence, cutover, pre_copy, preparation, rollback
from activities.metadata_store.catch_up import catch_up
from activities.metadata_store.context import MetadataStoreTask
from clients import stores as clients_stores
from clients.errors import StoreError
from clients.oxia.connection import OxiaConnection
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from models.metadata_store.results import PreCopy
from pulsar_devstack.servers.stack import StackSpec
from tests.support.metadata_store import stores
from tests.support.metadata_store.steps import Place, open_place
from tests.support.stacks import SharedStack

_TIMEOUT = 60.0
_COPYING_STEPS = ["pre_copy", "catch_up", "copy_changes", "verify", "complete", "follow"]


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the waits after the commit, and make deletions in the source count as those of a service."""

    def services(*_: object) -> list[str]:
        return ["a broker"]

    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    # In the window, deletions are copied only while services use the source.
    monkeypatch.setattr(cutover, "still_registered", services)


def steps_of(place: Place, run: int = 1) -> dict[str, Callable[[], Any]]:
    """Return the steps of a migration in their order; each call runs an attempt of its own."""
    copied: list[PreCopy] = []
    return {
        "pre_copy": lambda: copied.append(place.run(pre_copy.pre_copy, 0, run=run, concurrency=1)),
        "catch_up": lambda: place.run(catch_up, copied[-1], 0.0, run=run),
        "prepare": lambda: place.run(preparation.prepare, run=run),
        "copy_changes": lambda: place.run(cutover.copy_changes, copied[-1], run=run),
        "verify": lambda: place.run(cutover.verify, copied[-1], run=run),
        "complete": lambda: place.run(cutover.complete, copied[-1], run=run),
        "follow": lambda: place.run(cutover.follow, copied[-1], run=run),
    }


def lose_attempt(monkeypatch: pytest.MonkeyPatch, run_attempt: Callable[[], object]) -> Callable[[], None]:
    """Run an attempt until its first write to Oxia is on its way; return a function that lets it arrive.

    A step that waits for late writes lets it arrive too.
    """
    held, released = threading.Event(), threading.Event()
    write_stream = OxiaConnection.write_stream

    def hold_first(self: OxiaConnection, shard: int, requests: Iterator[Any], *, lifetime: float | None = None) -> Any:
        monkeypatch.setattr(OxiaConnection, "write_stream", write_stream)

        def sent() -> Iterator[Any]:
            # The one that only opens the stream.
            yield next(requests)
            for request in requests:
                held.set()
                assert released.wait(_TIMEOUT)
                yield request

        return write_stream(self, shard, sent(), lifetime=lifetime)

    def lose() -> None:
        with contextlib.suppress(StoreError):
            run_attempt()

    def let_arrive(*_: object) -> None:
        released.set()
        lost.join(_TIMEOUT)

    lost = threading.Thread(target=lose)
    monkeypatch.setattr(OxiaConnection, "write_stream", hold_first)
    monkeypatch.setattr(MetadataStoreTask, "await_late_writers", let_arrive)
    lost.start()
    assert held.wait(_TIMEOUT)
    return let_arrive


@pytest.mark.parametrize("lost_step", _COPYING_STEPS)
def test_a_late_copy_brings_no_deleted_record_back(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, lost_step: str
) -> None:
    """A record that was deleted while its copy was on its way to Oxia is not in the target in the end."""
    hurry(monkeypatch)
    stack = shared_stack(StackSpec(zookeepers=1, oxias=1))
    with open_place(stack, f"late-copies-{lost_step.replace('_', '-')}", ["/tenants/a"]) as place:
        let_arrive: Callable[[], None] | None = None
        for name, run_attempt in steps_of(place).items():
            if name == lost_step:
                place.set("/tenants/late")
                let_arrive = lose_attempt(monkeypatch, run_attempt)
                place.zookeeper.delete("/tenants/late")
            run_attempt()
        # Later than any attempt: none of them compared this record after it.
        assert let_arrive
        let_arrive()
        assert "/tenants/late" not in place.copied()


def test_a_rollback_leaves_no_late_copy(shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk copy that arrives after its attempt was lost is deleted too, so that the migration can start again."""
    with open_place(shared_stack(StackSpec(zookeepers=1, oxias=1)), "late-rollback", ["/tenants/late"]) as place:
        let_arrive = lose_attempt(monkeypatch, lambda: place.run(pre_copy.pre_copy, 0, concurrency=1))
        place.run(rollback.unblock_writes, "a test")
        place.run(rollback.clear_target)
        let_arrive()
        assert place.copied() == {}


def test_a_start_after_blocked_writes_has_no_late_copy(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a run that was terminated arrives before its claim is removed, and the next start deletes it."""
    hurry(monkeypatch)
    with open_place(shared_stack(StackSpec(zookeepers=1, oxias=1)), "late-unblocked", ["/tenants/a"]) as place:
        let_arrive: Callable[[], None] | None = None
        for name, run_attempt in steps_of(place).items():
            if name == "copy_changes":
                place.set("/tenants/late")
                let_arrive = lose_attempt(monkeypatch, run_attempt)
                place.zookeeper.delete("/tenants/late")
                break
            run_attempt()
        assert let_arrive
        assert place.run(rollback.unblock_leftover, run=2)
        for run_attempt in steps_of(place, run=3).values():
            run_attempt()
        let_arrive()
        assert "/tenants/late" not in place.copied()


def freeze_attempt(monkeypatch: pytest.MonkeyPatch, run_attempt: Callable[[], object], path: str) -> Callable[[], None]:
    """Run an attempt until right before it writes a path to ZooKeeper; return a function that lets it continue."""
    frozen, released = threading.Event(), threading.Event()
    submit = Connection.submit

    def freeze_first(self: Connection, op: int, body: bytes) -> int:
        if op == wire.MULTI and path.encode() in body and not frozen.is_set():
            frozen.set()
            assert released.wait(_TIMEOUT)
        return submit(self, op, body)

    def lose() -> None:
        with contextlib.suppress(StoreError):
            run_attempt()

    def wake_up() -> None:
        released.set()
        if threading.current_thread() is not lost:
            lost.join(_TIMEOUT)

    lost = threading.Thread(target=lose)
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "submit", freeze_first)
        lost.start()
        assert frozen.wait(_TIMEOUT)
    return wake_up


def wake_before_revocation(monkeypatch: pytest.MonkeyPatch, wake_up: Callable[[], None]) -> None:
    """Wake a frozen attempt at the last moment at which the target takes its write."""
    revoke = clients_stores.revoke_zookeeper_permits

    def wake_first(connection: Connection) -> None:
        wake_up()
        revoke(connection)

    monkeypatch.setattr(clients_stores, "revoke_zookeeper_permits", wake_first)


def after_the_bulk_copy(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change the source once a bulk copy is compared, so that the change is copied by itself."""
    repair_many = pre_copy.repair_many

    def change_first(*arguments: Any) -> Any:
        change()
        return repair_many(*arguments)

    monkeypatch.setattr(pre_copy, "repair_many", change_first)


def tenants(url: str) -> dict[str, tuple[bytes, int]]:
    """Return value and version of each tenant; only the source also has the parents of the flag."""
    tree = stores.read_zookeeper(url)
    return {path: (node.value, node.version) for path, node in tree.items() if path.startswith("/tenants")}


@pytest.mark.parametrize(("lost_copy", "late"), [("creation", False), ("deletion", False), ("overwriting", True)])
@pytest.mark.parametrize("lost_step", _COPYING_STEPS)
def test_a_frozen_copy_to_zookeeper_changes_nothing(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, lost_step: str, lost_copy: str, late: bool
) -> None:
    """A copy that is outdated when its attempt wakes up is refused after the commit, or undone by the next attempt."""
    hurry(monkeypatch)
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    name = f"frozen-{lost_step.replace('_', '-')}-{lost_copy}"
    target, path = f"{stack.second_zk_url}/{name}", f"/tenants/{lost_copy}"
    with open_place(stack, name, ["/tenants/kept"], target) as place:
        if lost_copy != "creation":
            place.set(path)
        changes: dict[str, Callable[[], object]] = {
            "creation": lambda: place.zookeeper.create(path),
            "deletion": lambda: place.zookeeper.delete(path),
            "overwriting": lambda: place.zookeeper.set(path, b"outdated"),
        }

        wake_up: Callable[[], None] | None = None
        for step, run_attempt in steps_of(place).items():
            if step == lost_step:
                with monkeypatch.context() as patch:
                    if step == "pre_copy":
                        after_the_bulk_copy(patch, changes[lost_copy])
                    else:
                        changes[lost_copy]()
                    wake_up = freeze_attempt(patch, run_attempt, path)
                if lost_copy != "deletion":
                    place.zookeeper.delete(path)
                if lost_copy != "creation":
                    # With the value and the version that the target has.
                    place.set(path)
                if step != "follow":
                    # Another worker does not find by its scan what was created and deleted.
                    place.lose_the_watch()
                if not late:
                    wake_before_revocation(monkeypatch, wake_up)
            run_attempt()
        assert wake_up
        wake_up()
        assert tenants(target) == tenants(place.source)
