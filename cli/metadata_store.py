"""What the command line knows of the metadata store migration alone."""

from __future__ import annotations

from cli.migrations import Servers
from models.metadata_store.input import MetadataStoreInput, Mode

_LEDGERS = "/ledgers"


def servers(input: MetadataStoreInput) -> Servers:
    """Both stores, and the bookies whose metadata move with them."""
    source = input.source_url
    ledgers = source.model_copy(update={"root": source.root + _LEDGERS})
    return Servers(
        cluster=input.cluster,
        metadata=source,
        stores={"source": source, "target": input.target_url},
        bookie_clusters={"the source": ledgers} if source.scheme == "zk" else {},
        needs_brokers=input.mode is Mode.LIVE,
    )
