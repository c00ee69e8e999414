"""The flag of the whole cluster redirects clients of all namespaces, also of those that the new cluster lacks."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import cluster
from activities.blue_green.context import BlueGreenTask
from models.blue_green.claims import BlueGreenClaim
from models.releases import parse_release


@pytest.mark.parametrize("staying", [[], ["t/new"]])
def test_no_flag_over_a_namespace_that_comes_last(monkeypatch: pytest.MonkeyPatch, staying: list[str]) -> None:
    """A namespace that is created while the new cluster's remaining flags are taken off keeps its clients."""
    flags: list[str] = []
    listed: list[str] = []

    def nothing(*_: object) -> None:
        return None

    def split_namespaces(*_: object) -> tuple[list[str], list[str]]:
        return [], list(listed)

    def clear_remaining_flags(*_: object) -> None:
        listed.extend(staying)

    def no_records(*_: object) -> dict[str, object]:
        return {}

    def allowed(*_: object) -> bool:
        return True

    def set_address(*_: object) -> None:
        flags.append("cluster")

    monkeypatch.setattr(cluster, "split_namespaces", split_namespaces)
    monkeypatch.setattr(cluster, "clear_remaining_flags", clear_remaining_flags)
    monkeypatch.setattr(cluster, "records", no_records)
    monkeypatch.setattr(cluster, "sets_cluster_flag", allowed)
    monkeypatch.setattr(cluster, "_set_address", set_address)
    for name in ("rewrite_cluster_flag", "rewrite_remaining_flags", "restore_settings"):
        monkeypatch.setattr(cluster, name, nothing)
    claim = BlueGreenClaim.model_construct()

    def held(**_: object) -> BlueGreenClaim:
        return claim

    def keeper(_: object) -> Any:
        return SimpleNamespace(renew=held, require=held)

    blue = SimpleNamespace(store=lambda: nullcontext(None))
    blue.release = parse_release("5.0.1")
    task = SimpleNamespace(blue=blue, keeper=keeper, input=SimpleNamespace(cluster="blue"))
    done = cluster.complete(cast("BlueGreenTask", task))
    assert (done.flagged, done.not_moved, done.stayed) == (not staying, len(staying), tuple(staying))
    assert flags == ([] if staying else ["cluster"])
