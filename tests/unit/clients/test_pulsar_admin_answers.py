"""Answers of the admin interface that say in another way what is usual."""

from __future__ import annotations

from clients.pulsar.admin.tenants import Tenant


def test_a_tenant_without_roles() -> None:
    """A tenant whose lists are null, as it was created, has none of either."""
    assert Tenant.model_validate({"adminRoles": None, "allowedClusters": None}) == Tenant()
    assert Tenant.model_validate({"adminRoles": ["boss"], "allowedClusters": ["blue"]}) == Tenant(
        admin_roles=("boss",), allowed_clusters=("blue",)
    )
