"""Copies that an attempt sent to Oxia before it was lost, and that arrive while the next one runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
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


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk copy", "single records"])
def test_a_late_copy_brings_no_deleted_record_back(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, *, bulk: bool
) -> None:
    """A record that was deleted while its copy was on its way to Oxia is not in the target after the commit."""
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
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

    stack = shared_stack(StackSpec(zookeepers=1, oxias=1))
    with open_place(stack, f"late-{'bulk' if bulk else 'single'}-copies", ["/tenants/a"]) as place:
        pre = None if bulk else place.run(pre_copy.pre_copy, 0)

        def run_attempt() -> PreCopy:
            if pre is None:
                return place.run(pre_copy.pre_copy, 0, concurrency=1)
            place.run(catch_up, pre, 0.0)
            return pre

        def lose_attempt() -> None:
            with contextlib.suppress(StoreError):
                run_attempt()

        place.set("/tenants/late")
        monkeypatch.setattr(OxiaConnection, "write_stream", hold_first)
        lost = threading.Thread(target=lose_attempt)
        lost.start()

        def let_arrive(*_: object) -> None:
            released.set()
            lost.join(_TIMEOUT)

        monkeypatch.setattr(MetadataStoreTask, "await_late_writers", let_arrive)
        assert held.wait(_TIMEOUT)
        place.zookeeper.delete("/tenants/late")
        copied = run_attempt()
        let_arrive()
        assert not place.run(preparation.prepare).gap
        place.run(cutover.copy_changes, copied)
        place.run(cutover.verify, copied)
        place.run(cutover.complete, copied)
        assert "/tenants/late" not in place.copied()
