"""Policies that keep a topic from becoming scalable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from activities.scalable_topic.checks.policies import check_policies
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName

_TOPIC = TopicName("acme", "shop", "orders")
# As a broker of 5.0.1 has them without any line of its operator's.
_BROKER = {
    "clusterName": "prod",
    "brokerDeduplicationEnabled": "false",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerDeleteInactiveTopicsMode": "delete_when_no_subscriptions",
    "subscriptionTypesEnabled": "[Exclusive, Shared, Failover, Key_Shared]",
}
_NAMESPACE: dict[str, Any] = {
    "replication_clusters": ["prod"],
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}},
}
_CAUGHT_UP = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "deleteWhileInactive": True}
_NO_SUBSCRIPTIONS = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "deleteWhileInactive": True}
_INDEFINITELY = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
_TYPES = "subscription_types_enabled"
_EXPIRATION = "subscription_expiration_time_minutes"
_EVICTS = "consumer_backlog_eviction"


def _quota(policy: str, size: int) -> dict[str, Any]:
    return {"destination_storage": {"limitSize": size, "limitTime": -1, "policy": policy}}


_EVICTING: dict[str, Any] = {"backlog_quota_map": _quota(_EVICTS, 10)}


def _findings(
    *,
    topic: dict[str, Any] | None = None,
    namespace: dict[str, Any] | None = None,
    remove: bool = True,
    types: Iterable[str] = (),
    **broker: str,
) -> Findings:
    findings = Findings()
    stats = TopicStats.model_validate({"subscriptions": {kind: {"type": kind, "isDurable": True} for kind in types}})
    inventory = TopicInventory(_TOPIC, policies=topic or {}, parts=(TopicPartition(_TOPIC, stats),))
    given = {**_NAMESPACE, **(namespace or {})}
    check_policies(findings, inventory, given, {**_BROKER, **broker}, remove=remove)
    return findings


def test_defaults() -> None:
    """A topic, a namespace and a broker with default policies have no findings."""
    findings = _findings()
    assert (findings.blockers, findings.warnings) == ([], [])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"topic": {"retention": _INDEFINITELY}}, "OWN_RETENTION"),
        ({"topic": {"global/retention": _INDEFINITELY}}, "OWN_RETENTION"),
        ({"topic": {"offloadPolicies": {"managedLedgerOffloadDriver": "S3"}}}, "OWN_RETENTION"),
        ({"topic": {"messageTTL": 0}, "namespace": {"message_ttl_in_seconds": 60}}, "OWN_EXPIRY"),
        ({"topic": {"global/messageTTL": 90}, "namespace": {"message_ttl_in_seconds": 60}}, "OWN_EXPIRY"),
        ({"topic": {"messageTTL": 90}, "ttlDurationDefaultInSeconds": "60"}, "OWN_EXPIRY"),
        ({"topic": {"subscriptionExpirationTime": 9}, "namespace": {_EXPIRATION: 5}, "remove": False}, "OWN_EXPIRY"),
        ({"topic": {"backlogQuota": _quota("producer_exception", 5)}, "namespace": _EVICTING}, "OWN_EXPIRY"),
        ({"topic": {"backlogQuota": _quota(_EVICTS, 20)}, "namespace": _EVICTING}, "OWN_EXPIRY"),
        (
            {
                "topic": {"backlogQuota": {"message_age": {"limitTime": -1, "policy": "producer_request_hold"}}},
                "backlogQuotaDefaultRetentionPolicy": _EVICTS,
                "backlogQuotaDefaultLimitSecond": "60",
            },
            "OWN_EXPIRY",
        ),
        ({"namespace": {_EXPIRATION: 5}}, "SUBSCRIPTIONS_EXPIRE"),
        ({"subscriptionExpirationTimeMinutes": "5"}, "SUBSCRIPTIONS_EXPIRE"),
        ({"namespace": {_EXPIRATION: 5}, "remove": False, "types": ["Shared", "Failover"]}, "SUBSCRIPTIONS_EXPIRE"),
        ({"namespace": {_TYPES: ["Shared", "Failover"]}, "types": ["Failover"]}, "SUBSCRIPTION_TYPES"),
        ({"subscriptionTypesEnabled": "[Exclusive, Key_Shared]", "types": ["Key_Shared"]}, "SUBSCRIPTION_TYPES"),
        ({"topic": {"replication": ["prod", "west"]}}, "REPLICATED"),
        ({"namespace": {"replication_clusters": ["prod", "west"]}}, "REPLICATED"),
        ({"topic": {"inactiveTopicPolicies": _CAUGHT_UP}}, "INACTIVE_DELETION"),
        ({"namespace": {"inactive_topic_policies": _CAUGHT_UP}}, "INACTIVE_DELETION"),
        ({"brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up"}, "INACTIVE_DELETION"),
        ({"topic": {"deduplicationEnabled": True}}, "DEDUPLICATED"),
        ({"namespace": {"deduplicationEnabled": True}}, "DEDUPLICATED"),
        ({"brokerDeduplicationEnabled": "true"}, "DEDUPLICATED"),
    ],
)
def test_blockers(given: dict[str, Any], code: str) -> None:
    """Each policy is refused wherever it is set, with the topic and a cure."""
    (blocker,) = _findings(**given).blockers
    assert blocker.code == code
    assert str(_TOPIC) in blocker.cause
    assert blocker.cure


@pytest.mark.parametrize(
    "given",
    [
        {"topic": {"retention": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}}},
        {"topic": {"messageTTL": 60}, "namespace": {"message_ttl_in_seconds": 60}},
        {"topic": {"messageTTL": 90}, "namespace": {"message_ttl_in_seconds": 0}, "ttlDurationDefaultInSeconds": "60"},
        {"topic": {"messageTTL": 90}},
        {"namespace": {_TYPES: ["Shared", "Failover"]}, "types": ["Shared", "Key_Shared"]},
        {"namespace": {_TYPES: []}, "types": ["Failover", "Shared"]},
        {"types": ["Exclusive", "Shared"]},
        {"namespace": {_TYPES: ["Exclusive"]}, "subscriptionTypesEnabled": "[Shared]", "types": ["Failover"]},
        {"topic": {"backlogQuota": _quota(_EVICTS, 5)}, "namespace": _EVICTING},
        {"namespace": _EVICTING},
        {"topic": {"backlogQuota": _quota("producer_exception", 5)}},
        {"namespace": {_EXPIRATION: 5}, "remove": False, "types": ["Shared", "Key_Shared"]},
        {"namespace": {_EXPIRATION: 0}, "subscriptionExpirationTimeMinutes": "5"},
        {"topic": {"replication": ["prod"]}, "namespace": {"replication_clusters": ["prod", "west"]}},
        {"topic": {"inactiveTopicPolicies": _NO_SUBSCRIPTIONS}, "namespace": {"inactive_topic_policies": _CAUGHT_UP}},
        {"namespace": {"inactive_topic_policies": {**_CAUGHT_UP, "deleteWhileInactive": False}}},
        {"topic": {"deduplicationEnabled": False}, "namespace": {"deduplicationEnabled": True}},
        {"namespace": {"deduplicationEnabled": False}, "brokerDeduplicationEnabled": "true"},
    ],
)
def test_what_is_nearer_wins(given: dict[str, Any]) -> None:
    """A policy of the topic overrides the namespace, which overrides the brokers, so the cures work."""
    assert _findings(**given).blockers == []


def test_own_retention_of_a_topic_that_stays() -> None:
    """With `cleanup: leave` own retention is a warning, since the regular topic keeps its messages."""
    findings = _findings(topic={"retention": _INDEFINITELY}, remove=False)
    assert findings.blockers == []
    assert "keeps consumed messages by its own policies (retention)" in findings.warnings[0]


@pytest.mark.parametrize(
    ("topics", "everywhere", "lost"),
    [
        ({"": ["produce", "consume"]}, {}, False),
        ({"-partition-1": ["produce"]}, {}, True),
        ({"-partition-1": ["produce"]}, {"app": ["produce"]}, False),
        ({"-partition-1": ["produce"], "": ["produce", "consume"]}, {}, False),
        ({"-partition-1": ["produce"], "": ["consume"]}, {}, True),
        ({"-partition-1-other": ["produce"]}, {}, False),
    ],
)
def test_rights_on_partitions(topics: dict[str, list[str]], everywhere: dict[str, list[str]], lost: bool) -> None:
    """Brokers copy rights on the whole topic, but not on single partitions."""
    rights = {
        "namespace_auth": everywhere,
        "destination_auth": {f"{_TOPIC}{name}": {"app": actions} for name, actions in topics.items()},
    }
    findings = _findings(namespace={"auth_policies": rights})
    assert [blocker.code for blocker in findings.blockers] == (["PARTITION_RIGHTS"] if lost else [])
