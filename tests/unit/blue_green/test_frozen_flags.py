"""Changes of flags that froze between their read and their write, while a later attempt decided by the same flag."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from clients.cas.claims import ClaimKeeper
from clients.errors import Superseded
from clients.pulsar.records.namespace_flag import rewrite_flag, set_flag
from models.blue_green.claims import BlueGreenClaim
from models.lifecycle.claim import Attempt
from tests.support.clients.memory_store import MemoryStore


def _store(*, flagged: bool = False) -> MemoryStore:
    """Return a store with the record of one namespace."""
    store = MemoryStore()
    store.create("/admin/local-policies/t/space", json.dumps({"bundles": 4, "migrated": flagged}).encode())
    return store


def _keepers(store: MemoryStore) -> list[ClaimKeeper[BlueGreenClaim]]:
    """Return the keepers of two attempts, of which the first has the claim."""
    keepers = [ClaimKeeper(store, BlueGreenClaim, Attempt("w", "run", 1, epoch, 1)) for epoch in (1, 2)]
    keepers[0].take()
    return keepers


def _frozen(keeper: ClaimKeeper[BlueGreenClaim], then: Callable[[], object]) -> Callable[[], None]:
    """Return the fence of an attempt that froze after it."""
    waiting = [then]

    def fence() -> None:
        keeper.require()
        if waiting:
            waiting.pop()()

    return fence


@pytest.mark.parametrize("flagged", [False, True])
def test_a_flag_that_was_written_again_is_not_changed_late(*, flagged: bool) -> None:
    """The record stays as it is, and a change that was read before is refused."""
    store = _store(flagged=flagged)
    first, second = _keepers(store)

    def decide() -> None:
        second.renew()
        assert rewrite_flag(store, "t/space", second.require) is flagged

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
    assert store.nodes == before
    store = _store()
    first, second = _keepers(store)
    second.renew()
    with pytest.raises(Superseded):
        rewrite_flag(store, "t/space", first.require)
