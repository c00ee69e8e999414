"""Namespaces of blue with everything in them that must be on green as well."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from tests.support.blue_green.environment import BLUE
from tests.support.waiting import wait_for, wait_until_equal

# Brokers delete a topic without subscriptions within a minute.
KEPT = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 3600}
ODD = "odd näme+1%*~.-_&?#;"
_RATE = {
    "dispatchThrottlingRateInMsg": 500,
    "dispatchThrottlingRateInByte": 50_000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_INACTIVE = {**KEPT, "deleteWhileInactive": False}

POLICIES: dict[str, Any] = {
    "auth_policies": {
        "namespace_auth": {"app": ["consume", "produce"], "näme/1": ["functions"]},
        "destination_auth": {},
        "subscription_auth_roles": {"s/1": ["app"]},
    },
    "bundles": {"numBundles": 6},
    "backlog_quota_map": {
        "destination_storage": {"limitSize": 10**10, "limitTime": -1, "policy": "producer_exception"},
        "message_age": {"limitSize": -1, "limitTime": 86_400, "policy": "consumer_backlog_eviction"},
    },
    "topicDispatchRate": {BLUE: _RATE},
    "subscriptionDispatchRate": {BLUE: _RATE},
    "replicatorDispatchRate": {BLUE: _RATE},
    "clusterSubscribeRate": {BLUE: {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30}},
    "publishMaxMessageRate": {BLUE: {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1}},
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 2.5,
    },
    "deduplicationEnabled": False,
    "autoTopicCreationOverride": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
    "message_ttl_in_seconds": 3600,
    "subscription_expiration_time_minutes": 600,
    "retention_policies": {"retentionTimeInMinutes": 6000, "retentionSizeInMB": 100_000},
    "encryption_required": False,
    "delayed_delivery_policies": {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 0},
    "inactive_topic_policies": _INACTIVE,
    "subscription_auth_mode": "Prefix",
    "max_producers_per_topic": 11,
    "max_consumers_per_topic": 12,
    "max_consumers_per_subscription": 13,
    "max_unacked_messages_per_consumer": 14,
    "max_unacked_messages_per_subscription": 15,
    "max_subscriptions_per_topic": 16,
    "max_topics_per_namespace": 500,
    "compaction_threshold": 10**9,
    "offload_threshold": 10**12,
    "offload_threshold_in_seconds": 10**8,
    "offload_deletion_lag_ms": 1000,
    "schema_compatibility_strategy": "FULL",
    "is_allow_auto_update_schema": False,
    "schema_validation_enforced": True,
    "deduplicationSnapshotIntervalSeconds": 17,
    "subscription_types_enabled": ["Exclusive", "Failover", "Key_Shared", "Shared"],
    "properties": {"owner": "team a", "näme": "ü"},
    "dispatcherPauseOnAckStatePersistentEnabled": True,
}
"""Every policy that a namespace can have and that needs nothing else on the cluster."""

TOPIC_POLICIES: dict[str, Any] = {
    "retention": {"retentionTimeInMinutes": 6000, "retentionSizeInMB": 50_000},
    "backlogQuota": {
        "destination_storage": {"limitSize": 10**9, "limitTime": -1, "policy": "producer_exception"},
        "message_age": {"limitSize": -1, "limitTime": 3600, "policy": "producer_exception"},
    },
    "messageTTL": 300,
    "subscriptionExpirationTime": 55,
    "persistence": POLICIES["persistence"],
    "deduplicationEnabled": True,
    "deduplicationSnapshotInterval": 10,
    "delayedDelivery": {"active": True, "tickTime": 3000, "maxDeliveryDelayInMillis": 0},
    "inactiveTopicPolicies": _INACTIVE,
    "maxProducers": 3,
    "maxConsumers": 4,
    "maxConsumersPerSubscription": 2,
    "maxUnackedMessagesOnConsumer": 10,
    "maxUnackedMessagesOnSubscription": 20,
    "maxMessageSize": 1000,
    "maxSubscriptionsPerTopic": 7,
    "dispatchRate": _RATE,
    "subscriptionDispatchRate": _RATE,
    "replicatorDispatchRate": _RATE,
    "publishRate": {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 10_000},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 6, "ratePeriodInSecond": 30},
    "compactionThreshold": 100_000,
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
    "replication": [BLUE],
    "schemaCompatibilityStrategy": "BACKWARD",
    "schemaValidationEnforced": True,
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "dispatcherPauseOnAckStatePersistent": True,
    "global/maxProducers": 30,
    "global/retention": {"retentionTimeInMinutes": 6000, "retentionSizeInMB": 200_000},
}
"""Every policy that a topic can have and that needs nothing else on the cluster."""


def create_namespace(admin: PulsarAdmin, name: str, **policies: Any) -> None:
    """Create a namespace in a tenant of its own; topics stay without subscriptions."""
    tenant = name.partition("/")[0]
    if tenant not in admin.tenants.names():
        admin.tenants.create(tenant, Tenant(admin_roles=("boss", "deputy"), allowed_clusters=admin_clusters(admin)))
    admin.namespaces.create(name, {"inactive_topic_policies": _INACTIVE, **policies})


def wait_until_listed(admin: PulsarAdmin, namespace: str, expected: Iterable[str]) -> None:
    """Wait until the broker that answers lists these topics: it learns a moment later what another one has deleted."""
    topics = sorted(expected)
    wait_until_equal(f"topics of {namespace}", lambda: sorted(admin.topics.names(namespace)), topics, 30)


def admin_clusters(admin: PulsarAdmin) -> tuple[str, ...]:
    """Return the cluster that an admin interface belongs to."""
    return (admin.brokers.runtime_configuration()["clusterName"],)


def record(*fields: str) -> str:
    """Return an Avro record of optional texts."""
    texts = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
    return json.dumps({"type": "record", "name": "R", "fields": texts})


def create_topic(admin: PulsarAdmin, name: str, partitions: int = 0, **properties: str) -> TopicName:
    """Return a topic of blue."""
    topic = TopicName.parse(name)
    if partitions:
        admin.topics.create_partitioned(topic, partitions)
        if properties:
            admin.topics.set_properties(topic, properties)
    else:
        admin.topics.create(topic, properties)
    return topic


def set_topic_policies(admin: PulsarAdmin, topic: TopicName, policies: Mapping[str, Any]) -> None:
    """Set policies of a topic, and wait until brokers read all of them."""
    for name, value in policies.items():
        admin.topic_policies.set(topic, name, value)
    wait_for("the policies", lambda: admin.topic_policies.read(topic).keys() >= policies.keys(), 20)
