"""Dynamic settings of blue's brokers: no late change, and no restored value over that of an operator."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from activities.blue_green.cluster import restore_settings
from activities.blue_green.context import AnyBlueGreenTask
from clients.cas.claims import ClaimKeeper
from clients.errors import Superseded
from clients.pulsar.records.dynamic_settings import change_dynamic_settings, read_dynamic_settings
from models.blue_green.claims import BlueGreenClaim, ChangedSetting
from models.lifecycle.claim import Attempt
from tests.support.clients.memory_store import MemoryStore

_SHEDDING = {"shedding": "false"}


def _keepers(store: MemoryStore, **settings: ChangedSetting) -> list[ClaimKeeper[BlueGreenClaim]]:
    """Return the keepers of two attempts, of which the first has noted settings in the claim."""
    keepers = [ClaimKeeper(store, BlueGreenClaim, Attempt("w", "run", 1, epoch, 1)) for epoch in (1, 2)]
    keepers[0].take(settings=settings)
    return keepers


@pytest.mark.parametrize("stored", [None, {}, {"other": "5"}])
def test_a_setting_is_not_changed_after_the_rollback(stored: dict[str, str] | None) -> None:
    """A step that froze before its write is refused, although the rollback found nothing to restore."""
    store = MemoryStore()
    if stored is not None:
        store.create("/admin/configuration", json.dumps(stored).encode())
    first, second = _keepers(store, shedding=ChangedSetting(before="true", ours="false"))
    waiting = [second]

    def freeze() -> None:
        first.require()
        while waiting:
            waiting.pop().renew()
            assert restore_settings(cast("AnyBlueGreenTask", None), second, store) == ([], 0)

    with pytest.raises(Superseded):
        change_dynamic_settings(store, freeze, lambda settings: {**settings, **_SHEDDING})
    assert read_dynamic_settings(store) == (stored or {})
    assert not second.require().settings


def test_a_setting_of_an_operator_is_restored() -> None:
    """The previous value of an operator is set again; one that was set in the meantime stays, and is named."""
    store = MemoryStore()

    def overridden(before: str) -> ChangedSetting:
        return ChangedSetting(before=before, ours="false", overridden=True)

    keeper, _ = _keepers(store, shedding=overridden("true"), split=overridden("1"), closing=overridden("true"))

    def operator(_: Any) -> dict[str, str]:
        return {"shedding": "false", "split": "2", "other": "5"}

    change_dynamic_settings(store, keeper.require, operator)
    assert restore_settings(cast("AnyBlueGreenTask", None), keeper, store) == (["split"], 1)
    assert read_dynamic_settings(store) == {"shedding": "true", "split": "2", "other": "5"}
    assert restore_settings(cast("AnyBlueGreenTask", None), keeper, store) == ([], 0)
