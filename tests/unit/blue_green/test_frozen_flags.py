"""Changes of flags that froze between their read and their write, while a later attempt decided by the same flag."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import failback
from activities.blue_green.context import AnyBlueGreenTask
from clients.cas.claims import ClaimKeeper
from clients.errors import Superseded
from clients.pulsar.admin.clusters import ClusterMigration, ClusterUrls
from clients.pulsar.records.cluster_flag import read_cluster_flag, rewrite_cluster_flag, set_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag, rewrite_flag, set_flag
from models.blue_green.claims import BlueGreenClaim
from models.lifecycle.claim import Attempt
from tests.support.clients.memory_store import MemoryStore

_OFF = ClusterMigration(migrated=False, migrated_cluster_url=ClusterUrls(service_url="http://blue:8080"))
_ON = _OFF.model_copy(update={"migrated": True})


def _store(*, flagged: bool = False) -> MemoryStore:
    """Return a store with the record of one namespace and of the cluster."""
    store = MemoryStore()
    store.create("/admin/local-policies/t/space", json.dumps({"bundles": 4, "migrated": flagged}).encode())
    store.create("/admin/clusters/green/policies", json.dumps(_OFF.body()).encode())
    return store


def _keepers(store: MemoryStore) -> list[ClaimKeeper[BlueGreenClaim]]:
    """Return the keepers of two attempts, of which the first has the claim, and moved the flag of green."""
    keepers = [ClaimKeeper(store, BlueGreenClaim, Attempt("w", "run", 1, epoch, 1)) for epoch in (1, 2)]
    keepers[0].take(cluster_flag=True)
    return keepers


def _frozen(keeper: ClaimKeeper[BlueGreenClaim], then: Callable[[], object]) -> Callable[[], None]:
    """Return the fence of an attempt that froze after it."""
    waiting = [then]

    def fence() -> None:
        keeper.require()
        if waiting:
            waiting.pop()()

    return fence


def _task(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> AnyBlueGreenTask:
    """Return a task on green alone, which has one namespace."""
    green = SimpleNamespace(store=lambda: store)

    def own_namespaces(_: AnyBlueGreenTask) -> list[str]:
        return ["t/space"]

    monkeypatch.setattr(failback, "_own_namespaces", own_namespaces)
    return cast("AnyBlueGreenTask", SimpleNamespace(green=green, input=SimpleNamespace(green_cluster="green")))


@pytest.mark.parametrize("flagged", [False, True])
def test_a_flag_that_was_written_again_is_not_changed_late(*, flagged: bool) -> None:
    """The record stays as it is, and a change that was read before is refused."""
    store = _store(flagged=flagged)
    first, second = _keepers(store)

    def decide() -> None:
        second.renew()
        assert rewrite_flag(store, "t/space", second.require) is flagged
        assert rewrite_cluster_flag(store, "green", second.require) == _OFF

    with pytest.raises(Superseded):
        set_flag(store, "t/space", _frozen(first, decide), migrated=not flagged)
    assert json.loads(store.nodes["/admin/local-policies/t/space"].value) == {"bundles": 4, "migrated": flagged}


def test_a_flag_without_a_record_is_off() -> None:
    """Brokers keep no record of an unused namespace, and none is created; a superseded attempt writes nothing."""
    store = MemoryStore()
    first, second = _keepers(store)
    second.renew()
    before = dict(store.nodes)
    assert rewrite_flag(store, "t/space", second.require) is False
    assert rewrite_cluster_flag(store, "green", second.require) is None
    assert store.nodes == before
    store = _store()
    first, second = _keepers(store)
    second.renew()
    with pytest.raises(Superseded):
        rewrite_flag(store, "t/space", first.require)


def test_a_late_rollback_does_not_redirect_what_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace lost its flag while the rollback was frozen: the flag of the whole of green is not set late."""
    store = _store()
    first, second = _keepers(store)

    def repeat() -> None:
        second.renew()
        failback.restore_cluster_flag(_task(store, monkeypatch), second, store)

    def wanted(_: Any) -> ClusterMigration:
        return _ON

    with pytest.raises(Superseded):
        set_cluster_flag(store, "green", _frozen(first, repeat), wanted)
    assert read_cluster_flag(store, "green") == _OFF
    assert not second.require().cluster_flag


def test_remaining_flags_are_not_taken_off_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt does not set the flag of the cluster, so the namespace's own one must stay on green."""
    store = _store(flagged=True)
    first, second = _keepers(store)

    def repeat() -> None:
        second.renew()
        failback.rewrite_remaining_flags(_task(store, monkeypatch), second)

    with pytest.raises(Superseded):
        set_flag(store, "t/space", _frozen(first, repeat), migrated=False)
    assert read_flag(store, "t/space")
