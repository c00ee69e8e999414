"""How a cluster is reached: what the inputs of workflows share that talk to brokers and to their metadata store."""

from __future__ import annotations

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
