"""Copies that an attempt sent to Oxia before it was lost, and that arrive while the next one runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from activities.metadata_store import convergence, cutover, pre_copy, preparation, rollback
from activities.metadata_store.catch_up import catch_up
from activities.metadata_store.context import MetadataStoreTask
from clients.errors import StoreError
from clients.oxia.connection import OxiaConnection
from models.metadata_store.results import PreCopy
from pulsar_devstack.servers.stack import StackSpec
from tests.support.metadata_store.steps import open_place
from tests.support.stacks import SharedStack

_TIMEOUT = 60.0


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


@pytest.mark.parametrize("lost_step", ["pre_copy", "catch_up", "copy_changes", "verify", "complete", "follow"])
def test_a_late_copy_brings_no_deleted_record_back(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, lost_step: str
) -> None:
    """A record that was deleted while its copy was on its way to Oxia is not in the target in the end."""
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)

    def services(*_: object) -> list[str]:
        return ["a broker"]

    # In the window, deletions are copied only while services use the source.
    monkeypatch.setattr(cutover, "still_registered", services)
    stack = shared_stack(StackSpec(zookeepers=1, oxias=1))
    with open_place(stack, f"late-copies-{lost_step.replace('_', '-')}", ["/tenants/a"]) as place:
        copied: list[PreCopy] = []
        steps: dict[str, Callable[[], Any]] = {
            "pre_copy": lambda: copied.append(place.run(pre_copy.pre_copy, 0, concurrency=1)),
            "catch_up": lambda: place.run(catch_up, copied[0], 0.0),
            "prepare": lambda: place.run(preparation.prepare),
            "copy_changes": lambda: place.run(cutover.copy_changes, copied[0]),
            "verify": lambda: place.run(cutover.verify, copied[0]),
            "complete": lambda: place.run(cutover.complete, copied[0]),
            "follow": lambda: place.run(cutover.follow, copied[0]),
        }

        let_arrive: Callable[[], None] | None = None
        for name, run_attempt in steps.items():
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
