"""Translation of blue's settings for green, where clusters have other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clients.pulsar.admin.namespace_policies import CLUSTER_LISTS, PER_CLUSTER, PolicyPath, single_policies
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topic_policies import GLOBAL

# These belong to the cluster, not to the namespace's owner. Brokers of 4.0 compute the last one.
_OWN = frozenset(("bundles", "deleted", "migrated", "clusterThatCanDeleteNamespace"))
_TOPIC_CLUSTERS = "replication"
# Values of policies that are not set; some releases report them and others do not.
_DEFAULTS: Mapping[PolicyPath, Any] = {
    ("encryption_required",): False,
    ("is_allow_auto_update_schema",): True,
    ("is_allow_auto_update_schema_with_replicator",): True,
    ("schema_compatibility_strategy",): "UNDEFINED",
    ("schema_validation_enforced",): False,
    ("subscription_auth_mode",): "None",
}


def cluster_names(clusters: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the same clusters on green."""
    return tuple(sorted({names.get(cluster, cluster) for cluster in clusters}))


def translated_tenant(tenant: Tenant, names: Mapping[str, str]) -> Tenant:
    """Return a tenant for green; it is always allowed to use green."""
    return Tenant(
        admin_roles=tuple(sorted(tenant.admin_roles)),
        allowed_clusters=cluster_names((*tenant.allowed_clusters, *names), names),
    )


def translated_policies(policies: Policies, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a namespace's policies as they are given to green in one call; its bundles start with equal ranges."""
    wanted = {field: _translated(field, value, names) for field, value in policies.raw.items() if field not in _OWN}
    if count := bundle_count(policies):
        wanted["bundles"] = {"numBundles": count}
    return wanted


def comparable(policies: Mapping[str, Any]) -> dict[PolicyPath, Any]:
    """Return the policies of a namespace one by one: those that are set, and those that always have a value."""
    configured = {path: value for path, value in single_policies(policies).items() if path[0] not in _OWN}
    return {**_DEFAULTS, **configured}


def bundle_count(policies: Policies) -> int:
    """Return the number of bundles of a namespace; 0 if it is not reported."""
    bundles: dict[str, Any] = policies.raw.get("bundles") or {}
    return int(bundles.get("numBundles") or 0)


def translated_topic_policies(policies: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic's policies for green."""
    return {
        name: list(cluster_names(value, names)) if name.removeprefix(GLOBAL) == _TOPIC_CLUSTERS else value
        for name, value in policies.items()
    }


def _translated(field: str, value: Any, names: Mapping[str, str]) -> Any:
    if value and field in CLUSTER_LISTS:
        return list(cluster_names(value, names))
    if value and field in PER_CLUSTER:
        return {names.get(cluster, cluster): setting for cluster, setting in value.items()}
    return value
