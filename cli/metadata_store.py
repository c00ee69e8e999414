"""Servers of a metadata store migration, for `doctor` and `features`."""

from __future__ import annotations

from cli.migrations import Servers
from models.metadata_store.input import MetadataStoreInput, Mode

_LEDGERS = "/ledgers"


def servers(input: MetadataStoreInput) -> Servers:
    """Return both stores, and the bookies whose metadata moves with them."""
    source = input.source_url
    ledgers = source.model_copy(update={"root": source.root + _LEDGERS})
    return Servers(
        cluster=input.cluster,
        metadata=source,
        stores={"source": source, "target": input.target_url},
        bookie_clusters={"the source": ledgers} if source.scheme == "zk" else {},
        needs_brokers=input.mode is Mode.LIVE,
        credentials=input.credentials,
        store_credentials=input.store_credentials,
    )
