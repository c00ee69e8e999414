"""Tenants."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, field_validator

from clients.pulsar.admin.answers import NAMES, Answer
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.names import encoded


class Tenant(Answer):
    """A tenant's settings.

    Attributes:
        admin_roles: who may administer it.
        allowed_clusters: clusters that its namespaces may use.
    """

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()

    @field_validator("admin_roles", "allowed_clusters", mode="before")
    @classmethod
    def _none_is_empty(cls, names: Any) -> Any:
        # Brokers of 4.x give a tenant as it was created, also without any.
        return () if names is None else names


_TENANT = TypeAdapter(Tenant)


class TenantsReader:
    """The tenants."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self) -> list[str]:
        """Return all of them."""
        return self._endpoint.get_as(NAMES, "/tenants")

    def get(self, name: str) -> Tenant:
        """Return a tenant's settings.

        Raises:
            AdminNotFound: there is no such tenant.
        """
        return self._endpoint.get_as(_TENANT, f"/tenants/{encoded(name)}")


class Tenants(TenantsReader):
    """The tenants, and what changes them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(self, name: str, tenant: Tenant) -> None:
        """Create a tenant.

        Raises:
            AdminPreconditionFailed: one of the clusters is not known; looked at before whether the tenant exists.
            AdminConflict: it exists.
        """
        self._calls.put(f"/tenants/{encoded(name)}", tenant.body())

    def update(self, name: str, tenant: Tenant) -> None:
        """Replace a tenant's settings."""
        self._calls.post(f"/tenants/{encoded(name)}", tenant.body())

    def delete(self, name: str) -> None:
        """Delete a tenant.

        Raises:
            AdminConflict: it has namespaces.
        """
        self._calls.delete(f"/tenants/{encoded(name)}")
