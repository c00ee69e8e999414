"""How a cluster is reached: what the inputs of workflows share that talk to brokers and to their metadata store."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from models.addresses import AdminUrl
from models.lifecycle.input import WorkflowInput
from models.store_url import StoreAddress, StoreUrl, parse_store_url


class ClusterAccess(WorkflowInput):
    """Base of these inputs.

    Attributes:
        cluster: `clusterName` of its brokers.
        metadata_url: the metadata store of its brokers.
        admin_urls: addresses of the admin interface, of one broker or several.
        credentials: name of the credentials in the worker's settings; empty for the common ones.
    """

    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...] = Field(min_length=1)
    credentials: str = ""

    @property
    def store(self) -> StoreUrl:
        """The metadata store, taken apart."""
        return parse_store_url(self.metadata_url)


class Addresses(Protocol):
    """Where the servers of a cluster are."""

    @property
    def metadata_url(self) -> str:
        """The metadata store of the brokers."""
        ...

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Addresses of the admin interface."""
        ...


def share_servers(one: Addresses, other: Addresses) -> bool:
    """Return whether two clusters of one name are the same: they have a metadata store, or a broker, in common.

    Either may change while the cluster stays what it is: the metadata may move, and brokers come and go.
    """
    if {*one.admin_urls} & {*other.admin_urls}:
        return True
    mine, theirs = parse_store_url(one.metadata_url), parse_store_url(other.metadata_url)
    return (mine.scheme, mine.root) == (theirs.scheme, theirs.root) and bool({*mine.hosts} & {*theirs.hosts})
