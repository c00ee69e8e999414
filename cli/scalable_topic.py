"""What the command line knows alone of the migrations to scalable topics, and of operations on such."""

from __future__ import annotations

from cli.migrations import Servers
from models.scalable_topic.access import ClusterInput


def servers(input: ClusterInput) -> Servers:
    """The metadata store and the brokers of the cluster."""
    return Servers(
        cluster=input.cluster,
        metadata=input.store,
        stores={"metadata store": input.store},
        credentials=input.credentials,
    )
