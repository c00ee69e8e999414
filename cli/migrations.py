"""Commands and servers of each kind of workflow, from its module `cli.<package>`.

It may have `COMMANDS`, its own commands by name, and `servers`, a function that returns the
servers of an input for `doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.input import WorkflowInput
from models.store_url import StoreUrl
from worker.catalog import Registered

Command = Callable[..., None]


@dataclass(frozen=True)
class Servers:
    """Servers that an input leads to.

    Attributes:
        cluster: the Pulsar cluster.
        metadata: the store in which its brokers register.
        stores: all metadata stores, by their roles.
        bookie_clusters: roots of ledgers' metadata, by the names of the bookie clusters.
        needs_brokers: whether brokers must be running when the migration starts.
        credentials: name of the credentials in the worker's settings; empty for the default ones.
        store_credentials: the same for stores that have their own.
        others: servers of further clusters.
        selects: returns whether the workflow concerns a namespace, `tenant/namespace`.
    """

    cluster: str
    metadata: StoreUrl
    stores: Mapping[str, StoreUrl]
    bookie_clusters: Mapping[str, StoreUrl] = field(default_factory=dict[str, StoreUrl])
    needs_brokers: bool = True
    credentials: str = ""
    store_credentials: Mapping[StoreUrl, str] = field(default_factory=dict[StoreUrl, str])
    others: tuple[Servers, ...] = ()
    selects: Callable[[str], bool] = lambda _: True

    @classmethod
    def of(cls, input: ClusterAccess) -> Self:
        """Return the metadata store and the brokers of one cluster."""
        return cls(
            cluster=input.cluster,
            metadata=input.store,
            stores={"metadata store": input.store},
            credentials=input.credentials,
        )


def commands_of(kind: Registered) -> Mapping[str, Command]:
    """Return the commands of one kind of workflow, by name."""
    return _exported(kind, "COMMANDS") or {}


def servers_of(kind: Registered, input: WorkflowInput) -> Servers | None:
    """Return the servers that an input leads to; None if the module of its kind does not define them."""
    servers: Callable[[WorkflowInput], Servers] | None = _exported(kind, "servers")
    return servers(input) if servers else None


def _exported(kind: Registered, name: str) -> Any:
    module = f"cli.{kind.package}"
    return getattr(import_module(module), name, None) if find_spec(module) else None
