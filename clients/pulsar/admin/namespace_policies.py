"""Single policies of a namespace, by their position in the broker's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clients.pulsar.admin.errors import AdminUnsupported
from clients.pulsar.admin.http import Endpoint
from clients.pulsar.admin.policy_calls import BACKLOG_QUOTAS, PolicyCall, read_policy, set_policy
from clients.pulsar.names import TopicName, encoded, encoded_namespace

PolicyPath = tuple[str, ...]
"""Position of a policy: `("retention_policies",)`, `("properties", "owner")`."""

_MAPS: Mapping[PolicyPath, int] = {
    ("auth_policies", "namespace_auth"): 1,
    ("auth_policies", "destination_auth"): 2,
    ("auth_policies", "subscription_auth_roles"): 1,
    ("properties",): 1,
    ("backlog_quota_map",): 1,
    ("offload_policies",): 1,
    ("latency_stats_sample_rate",): 1,
    ("clusterDispatchRate",): 1,
    ("topicDispatchRate",): 1,
    ("subscriptionDispatchRate",): 1,
    ("replicatorDispatchRate",): 1,
    ("clusterSubscribeRate",): 1,
    ("publishMaxMessageRate",): 1,
}
"""Objects that hold policies by name, and how deep."""

PER_CLUSTER = frozenset(
    (
        "latency_stats_sample_rate",
        "clusterDispatchRate",
        "topicDispatchRate",
        "subscriptionDispatchRate",
        "replicatorDispatchRate",
        "clusterSubscribeRate",
        "publishMaxMessageRate",
    )
)
"""Policies that each cluster has for itself: the name in them is the cluster's."""

CLUSTER_LISTS = frozenset(("replication_clusters", "allowed_clusters"))
"""Policies that are lists of clusters."""

UNORDERED = CLUSTER_LISTS | {"subscription_types_enabled", "allowed_topic_property_keys_for_metrics"}
"""Policies that are lists without an order."""

_CALLS: Mapping[str, PolicyCall] = {
    "allowed_clusters": PolicyCall("allowedClusters"),
    "allowed_topic_property_keys_for_metrics": PolicyCall("allowedTopicPropertyKeysForMetrics"),
    "autoSubscriptionCreationOverride": PolicyCall("autoSubscriptionCreation"),
    "autoTopicCreationOverride": PolicyCall("autoTopicCreation"),
    "clusterSubscribeRate": PolicyCall("subscribeRate"),
    "compaction_threshold": PolicyCall("compactionThreshold", "PUT"),
    "deduplicationEnabled": PolicyCall("deduplication"),
    "deduplicationSnapshotIntervalSeconds": PolicyCall("deduplicationSnapshotInterval"),
    "delayed_delivery_policies": PolicyCall("delayedDelivery"),
    "dispatcherPauseOnAckStatePersistentEnabled": PolicyCall("dispatcherPauseOnAckStatePersistent", switch=True),
    "encryption_required": PolicyCall("encryptionRequired"),
    "entryFilters": PolicyCall("entryFilters"),
    "inactive_topic_policies": PolicyCall("inactiveTopicPolicies"),
    "is_allow_auto_update_schema": PolicyCall("isAllowAutoUpdateSchema"),
    "max_consumers_per_subscription": PolicyCall("maxConsumersPerSubscription"),
    "max_consumers_per_topic": PolicyCall("maxConsumersPerTopic"),
    "max_producers_per_topic": PolicyCall("maxProducersPerTopic"),
    "max_subscriptions_per_topic": PolicyCall("maxSubscriptionsPerTopic"),
    "max_topics_per_namespace": PolicyCall("maxTopicsPerNamespace"),
    "max_unacked_messages_per_consumer": PolicyCall("maxUnackedMessagesPerConsumer"),
    "max_unacked_messages_per_subscription": PolicyCall("maxUnackedMessagesPerSubscription"),
    "message_ttl_in_seconds": PolicyCall("messageTTL"),
    "persistence": PolicyCall("persistence"),
    "publishMaxMessageRate": PolicyCall("publishRate"),
    "replication_clusters": PolicyCall("replication"),
    "replicatorDispatchRate": PolicyCall("replicatorDispatchRate"),
    "retention_policies": PolicyCall("retention"),
    "scalableTopicAutoScalePolicy": PolicyCall("scalableTopicAutoScalePolicy"),
    "schema_auto_update_compatibility_strategy": PolicyCall("schemaAutoUpdateCompatibilityStrategy", "PUT"),
    "schema_compatibility_strategy": PolicyCall("schemaCompatibilityStrategy", "PUT"),
    "schema_validation_enforced": PolicyCall("schemaValidationEnforced"),
    "subscriptionDispatchRate": PolicyCall("subscriptionDispatchRate"),
    "subscription_auth_mode": PolicyCall("subscriptionAuthMode"),
    "subscription_expiration_time_minutes": PolicyCall("subscriptionExpirationTime"),
    "subscription_types_enabled": PolicyCall("subscriptionTypesEnabled"),
    "topicDispatchRate": PolicyCall("dispatchRate"),
}

_OFFLOAD = PolicyCall("offloadPolicies")
_OFFLOAD_CALLS: Mapping[str, PolicyCall] = {
    "managedLedgerOffloadThresholdInBytes": PolicyCall("offloadThreshold", "PUT"),
    "managedLedgerOffloadThresholdInSeconds": PolicyCall("offloadThresholdInSeconds", "PUT"),
    "managedLedgerOffloadDeletionLagInMillis": PolicyCall("offloadDeletionLagMs", "PUT"),
}
# In older releases these were separate policies.
_OLD_OFFLOAD_FIELDS: Mapping[str, str] = {
    "offload_threshold": "managedLedgerOffloadThresholdInBytes",
    "offload_threshold_in_seconds": "managedLedgerOffloadThresholdInSeconds",
    "offload_deletion_lag_ms": "managedLedgerOffloadDeletionLagInMillis",
}


def single_policies(raw: Mapping[str, Any]) -> dict[PolicyPath, Any]:
    """Return the policies of a namespace one by one; what is empty or null is left out."""
    policies_by_path: dict[PolicyPath, Any] = {}
    old = {name: raw[field] for field, name in _OLD_OFFLOAD_FIELDS.items() if raw.get(field) not in (None, -1)}
    offload: dict[str, Any] = {**old, **(raw.get("offload_policies") or {})}
    rest = {field: value for field, value in raw.items() if field not in _OLD_OFFLOAD_FIELDS}
    _collect({**rest, "offload_policies": offload}, (), policies_by_path)
    return {path: value for path, value in policies_by_path.items() if value not in (None, {}, [])}


def _collect(value: Any, path: PolicyPath, policies_by_path: dict[PolicyPath, Any]) -> None:
    holds = not path or path == ("auth_policies",) or any(_within(path, top, deep) for top, deep in _MAPS.items())
    if holds and isinstance(value, Mapping):
        named: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON
        for name, child in named.items():
            _collect(child, (*path, name), policies_by_path)
    elif isinstance(value, list) and (path[0] in UNORDERED or path[0] == "auth_policies"):
        policies_by_path[path] = sorted(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    else:
        policies_by_path[path] = value


def _within(path: PolicyPath, top: PolicyPath, deep: int) -> bool:
    return path[: len(top)] == top and len(path) < len(top) + deep


def can_be_set(path: PolicyPath, cluster: str) -> bool:
    """Return whether brokers of a cluster have a call that sets this policy of a namespace that exists."""
    if path[0] in PER_CLUSTER and path[1:] != (cluster,):
        return False
    return path[0] in _CALLS or path[0] in ("auth_policies", "properties", "backlog_quota_map", "offload_policies")


def set_single_policy(endpoint: Endpoint, namespace: str, path: PolicyPath, value: Any) -> None:
    """Set one policy, with the value that `single_policies` gives.

    Raises:
        AdminPreconditionFailed: it contradicts another policy.
        AdminUnsupported: there is no call that sets it.
    """
    base = f"/namespaces/{encoded_namespace(namespace)}"
    match path:
        case ("auth_policies", "namespace_auth", role):
            endpoint.post(f"{base}/permissions/{encoded(role)}", value)
        case ("auth_policies", "destination_auth", topic, role):
            endpoint.post(f"/{TopicName.parse(topic).rest_path}/permissions/{encoded(role)}", value)
        case ("auth_policies", "subscription_auth_roles", subscription):
            endpoint.post(f"{base}/permissions/subscription/{encoded(subscription)}", value)
        case ("properties", key):
            endpoint.put(f"{base}/properties", {key: value})
        case ("offload_policies", part) if part in _OFFLOAD_CALLS:
            set_policy(endpoint, base, _OFFLOAD_CALLS[part], value)
        case ("offload_policies", part):
            there: dict[str, Any] = read_policy(endpoint, base, _OFFLOAD) or {}
            set_policy(endpoint, base, _OFFLOAD, {**there, part: value})
        case ("backlog_quota_map", kind):
            set_policy(endpoint, base, PolicyCall(BACKLOG_QUOTAS), {kind: value})
        case (field, *_) if field in _CALLS:
            set_policy(endpoint, base, _CALLS[field], value)
        case _:
            reason = f"brokers have no call that sets {'.'.join(path)} of a namespace that exists"
            raise AdminUnsupported(reason, method="POST", url=base)
