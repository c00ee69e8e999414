"""Servers of a blue-green migration, for `doctor` and `features`."""

from __future__ import annotations

from dataclasses import replace

from cli.migrations import Servers
from models.blue_green.input import BlueGreenInput, ClusterAddresses


def servers(input: BlueGreenInput) -> Servers:
    """Return the metadata stores and brokers of both clusters."""
    green = _of("green", input.green_cluster, input.green)

    def selects(namespace: str) -> bool:
        return input.rank(namespace) is not None

    return replace(_of("blue", input.cluster, input.blue), others=(green,), selects=selects)


def _of(side: str, name: str, cluster: ClusterAddresses) -> Servers:
    return Servers(cluster=name, metadata=cluster.store, stores={side: cluster.store}, credentials=cluster.credentials)
