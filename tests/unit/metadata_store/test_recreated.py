"""Ephemerals of a source that count as created again in a target with several shards, with doubles of the stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clients.store import NO_SHARD, Record
from clients.stores import Access
from models.metadata_store.claims import SourceClaim
from models.store_url import StoreUrl, parse_store_url
from spark.metadata_store import replica
from spark.metadata_store.replica import Mirror
from spark.metadata_store.spec import Pair

SOURCE, TARGET = parse_store_url("zk:a:1"), parse_store_url("oxia://b:2")
# The first shard has counted on for months.
FAR, NEAR, UNKNOWN = 0, 1, 2
CLAIM = SourceClaim(workflow_id="m", run_id="r", target_mark=90_000_000, target_marks={FAR: 90_000_000, NEAR: 70})
SHARDS = {b"/far": FAR, b"/far-leftover": FAR, b"/near": NEAR, b"/near-leftover": NEAR, b"/unknown": UNKNOWN}
VERSIONS = {b"/far": 90_000_001, b"/far-leftover": 89_000_000, b"/near": 71, b"/near-leftover": 69, b"/unknown": 80}


class Store:
    """A store in which a session holds records."""

    def __init__(self, url: StoreUrl) -> None:
        self.url = url

    def read(self, paths: Sequence[bytes]) -> list[Record]:
        """Return the records."""
        return [Record(path, b"", VERSIONS[path], 0, owner=5, changed=0, children_changed=0) for path in paths]

    def shard_of(self, path: bytes) -> int:
        """Return the shard of a record."""
        return SHARDS[path] if self.url == TARGET else NO_SHARD

    def close(self) -> None:
        """Close nothing."""


def test_each_shard_has_a_mark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leftover of a failed attempt has a version below the mark of its shard, whatever other shards have counted."""

    def open_reader(url: StoreUrl, _: object) -> Any:
        return Store(url)

    monkeypatch.setattr(replica, "open_reader", open_reader)
    claim = SourceClaim.model_validate_json(CLAIM.encode())
    with Mirror(Pair(SOURCE, TARGET, Access(), parts=1)) as mirror:
        ephemerals = mirror.ephemerals(SHARDS, claim.mark_of)
    recreated = {ephemeral.path for ephemeral in ephemerals if ephemeral.recreated}
    # A shard that did not exist when the marks were taken counts by the highest one.
    assert recreated == {b"/far", b"/near"}


def test_a_claim_of_an_earlier_release_has_one_mark() -> None:
    """An attempt that continues in PREPARATION after an upgrade uses the mark that all shards had reached."""
    value = CLAIM.model_copy(update={"target_marks": {}}).encode().replace(b'"target_marks":{}', b'"other":{}')
    claim = SourceClaim.model_validate_json(value)
    assert [claim.mark_of(shard) for shard in (FAR, NEAR)] == [90_000_000] * 2
