"""Policies with which the target of a copy would lose messages, wherever they are set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.scalable_topic.operations.copy_out.target import CopyTarget
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.scalable_topic.copies import KeyHash
from spark.scalable_topic.copy_record import CopyRecord
from tests.support.clients.memory_store import MemoryStore

TARGET = TopicName.parse("persistent://shop/orders/old")
WANTED = CopyRecord(source="shop/orders/new", partitions=0, hashing=KeyHash.JAVA)
EXPIRATION, TTL = "subscription_expiration_time_minutes", "message_ttl_in_seconds"
CAUGHT_UP = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "deleteWhileInactive": True}
EVICTS, HOLDS = "consumer_backlog_eviction", "producer_request_hold"


def _absent(_topic: TopicName) -> Any:
    raise AdminNotFound("no such topic", method="GET", url="http://broker-1:8080")


def _quota(policy: str, size: int = -1, seconds: int = -1) -> dict[str, Any]:
    return {"limitSize": size, "limitTime": seconds, "policy": policy}


def _target(topic: dict[str, Any] | None, namespace: dict[str, Any], broker: dict[str, str]) -> CopyTarget:
    """Return a target that is empty, or does not exist."""

    def policies(_namespace: str) -> object:
        return SimpleNamespace(raw=namespace)

    def own_policies(name: TopicName) -> dict[str, Any]:
        return _absent(name) if topic is None else topic

    def stats(_topic: TopicName) -> TopicStats:
        return TopicStats()

    admin = SimpleNamespace(
        namespaces=SimpleNamespace(policies=policies),
        brokers=SimpleNamespace(runtime_configuration=lambda: broker),
        topic_policies=SimpleNamespace(read=own_policies),
        topics=SimpleNamespace(partitions=_absent, internal_stats=_absent, stats=stats),
    )
    return CopyTarget(cast("Any", admin), cast("Any", MemoryStore()), TARGET, 0, lambda: None)


@pytest.mark.parametrize(
    ("topic", "namespace", "broker", "policy"),
    [
        ({"subscriptionExpirationTime": 5}, {EXPIRATION: 0}, {}, "subscription expiration"),
        (None, {EXPIRATION: 5}, {}, "subscription expiration"),
        (None, {}, {"subscriptionExpirationTimeMinutes": "5"}, "subscription expiration"),
        ({"global/messageTTL": 60}, {}, {}, "message TTL"),
        ({}, {TTL: 60}, {}, "message TTL"),
        (None, {}, {"ttlDurationDefaultInSeconds": "60"}, "message TTL"),
        ({"inactiveTopicPolicies": CAUGHT_UP}, {}, {}, "deletion of inactive topics"),
        (None, {"inactive_topic_policies": CAUGHT_UP}, {}, "deletion of inactive topics"),
        (
            None,
            {},
            {
                "brokerDeleteInactiveTopicsEnabled": "true",
                "brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up",
            },
            "deletion of inactive topics",
        ),
        ({"backlogQuota": {"message_age": _quota(EVICTS, seconds=60)}}, {}, {}, "the backlog quota message_age"),
        (
            {"backlogQuota": {"message_age": _quota(EVICTS, seconds=0)}},
            {"backlog_quota_map": {"destination_storage": _quota(EVICTS, 0)}},
            {},
            "the backlog quota destination_storage",
        ),
        (
            None,
            {},
            {"backlogQuotaDefaultRetentionPolicy": EVICTS, "backlogQuotaDefaultLimitBytes": "1000"},
            "the backlog quota destination_storage",
        ),
        (
            None,
            {},
            {
                "backlogQuotaDefaultRetentionPolicy": EVICTS,
                "backlogQuotaDefaultLimitGB": "0.5",
                "backlogQuotaDefaultLimitBytes": "-1",
                "backlogQuotaDefaultLimitSecond": "60",
            },
            "the backlog quota destination_storage, the backlog quota message_age",
        ),
    ],
)
def test_policies_that_lose_messages(
    topic: dict[str, Any] | None, namespace: dict[str, Any], broker: dict[str, str], policy: str
) -> None:
    """Brokers must not drop subscriptions of the copy, nor messages that they have not consumed."""
    with pytest.raises(StoreConflict, match=f"{TARGET} would lose messages; switch off {policy} for the topic"):
        _target(topic, namespace, broker).require_ready(WANTED)


@pytest.mark.parametrize(
    ("topic", "namespace", "broker"),
    [
        (None, {}, {}),
        ({"subscriptionExpirationTime": 0}, {EXPIRATION: 5}, {}),
        ({"messageTTL": 0}, {TTL: 60}, {}),
        ({}, {TTL: 0}, {"ttlDurationDefaultInSeconds": "60"}),
        (
            {"inactiveTopicPolicies": {**CAUGHT_UP, "deleteWhileInactive": False}},
            {"inactive_topic_policies": CAUGHT_UP},
            {},
        ),
        ({}, {"backlog_quota_map": {"destination_storage": _quota(HOLDS, 1000)}}, {}),
        ({}, {}, {"backlogQuotaDefaultRetentionPolicy": EVICTS, "backlogQuotaDefaultLimitBytes": "-1"}),
        (
            {"backlogQuota": {"destination_storage": _quota(HOLDS, 1000)}},
            {
                "backlog_quota_map": {
                    "destination_storage": _quota(EVICTS, 1000),
                    "message_age": _quota(EVICTS, seconds=-1),
                }
            },
            {},
        ),
    ],
)
def test_policies_that_keep_messages(
    topic: dict[str, Any] | None, namespace: dict[str, Any], broker: dict[str, str]
) -> None:
    """A policy of the topic overrides the namespace, which overrides the brokers, so the cures work."""
    assert _target(topic, namespace, broker).require_ready(WANTED) is None
