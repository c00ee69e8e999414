"""Stores that a broker depends on, by its own configuration."""

from __future__ import annotations

import pytest

from activities.metadata_store.census import _stores  # pyright: ignore[reportPrivateUsage] - the rest asks servers


@pytest.mark.parametrize(
    ("metadata", "ledgers", "stores"),
    [
        ("zk:a:1/pulsar", "", ["zk:a:1/pulsar"]),
        ("oxia://c:1", "metadata-store:zk:a:1/pulsar", ["oxia://c:1/default", "zk:a:1/pulsar"]),
        ("oxia://c:1", "metadata-store:oxia://c:1/bookies", ["oxia://c:1/default", "oxia://c:1/bookies"]),
        ("oxia://c:1", "zk+hierarchical://a:1/pulsar/ledgers", ["oxia://c:1/default", "zk:a:1/pulsar/ledgers"]),
    ],
)
def test_which_stores_a_broker_names(metadata: str, ledgers: str, stores: list[str]) -> None:
    """A broker depends on the store of its metadata, and on that of the metadata of ledgers."""
    settings = {"metadataStoreUrl": metadata, "bookkeeperMetadataServiceUri": ledgers}
    assert [str(store) for _, store in _stores(settings)] == stores


@pytest.mark.parametrize("settings", [{}, {"metadataStoreUrl": ""}, {"metadataStoreUrl": "etcd://a:1"}])
def test_a_broker_that_names_no_store_is_not_known(settings: dict[str, str]) -> None:
    """A configuration without a store that is known is an error, which counts as unknown."""
    with pytest.raises(ValueError, match="store"):
        _stores(settings)
