"""Addresses of a cluster: fields that the inputs of several workflows share."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from models.addresses import AdminUrl
from models.lifecycle.input import MigrationInput, WorkflowInput
from models.store_url import StoreAddress, StoreUrl, parse_store_url


class ClusterAccess(WorkflowInput):
    """Base of inputs of workflows that connect to brokers and to their metadata store.

    Attributes:
        cluster: `clusterName` of its brokers.
        metadata_url: the metadata store of its brokers.
        admin_urls: addresses of the admin interface, of one or more brokers.
        credentials: name of the credentials in the worker's settings; empty for the default ones.
    """

    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...] = Field(min_length=1)
    credentials: str = ""

    @property
    def store(self) -> StoreUrl:
        """The metadata store, parsed."""
        return parse_store_url(self.metadata_url)


class StoresInput(MigrationInput):
    """Base of inputs of migrations between stores, each of which may have credentials of its own.

    Attributes:
        credentials: name of the credentials in the worker's settings, for brokers, stores and bookies; empty for the
            default ones.
    """

    credentials: str = ""

    @property
    def store_credentials(self) -> dict[StoreUrl, str]:
        """Name of the credentials of each store, of which the brokers' is the first."""
        raise NotImplementedError


class Addresses(Protocol):
    """Addresses of the servers of a cluster."""

    @property
    def metadata_url(self) -> str:
        """The metadata store of the brokers."""
        ...

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Addresses of the admin interface."""
        ...


def share_servers(first: Addresses, second: Addresses) -> bool:
    """Return whether two clusters of one name are the same: they share a metadata store or a broker.

    One of the two is enough: a cluster keeps its identity when its metadata moves, or brokers change.
    """
    if {*first.admin_urls} & {*second.admin_urls}:
        return True
    store, other = parse_store_url(first.metadata_url), parse_store_url(second.metadata_url)
    return store.root == other.root and store.shares_servers(other)
