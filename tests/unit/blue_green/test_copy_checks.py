"""Backlogs are copied only to brokers that keep them; both clusters are doubles here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks.copies import check_copies
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topics import Client, SubscriptionStats, TopicStats
from tests.unit.blue_green.test_differences import namespace
from tests.unit.blue_green.test_topic_use import task, topic

_NONE: dict[str, str] = {}
_TTL = {"ttlDurationDefaultInSeconds": "604800"}
_EVICTS = "consumer_backlog_eviction"
_EVICTION = {"backlogQuotaDefaultRetentionPolicy": _EVICTS, "backlogQuotaDefaultLimitGB": "10"}
_AGE = {"backlogQuotaDefaultRetentionPolicy": _EVICTS, "backlogQuotaDefaultLimitSecond": "3600"}
_HOLDS = {**_EVICTION, "backlogQuotaDefaultRetentionPolicy": "producer_request_hold"}
_IDLE = TopicStats(subscriptions={"s": SubscriptionStats(msg_backlog=7)})
_READ = TopicStats(subscriptions={"s": SubscriptionStats(msg_backlog=7, consumers=(Client(),))})
_DONE = TopicStats(subscriptions={"s": SubscriptionStats()})
_QUOTA = {"limitSize": 1, "limitTime": -1, "policy": _EVICTS}


def _check(
    brokers: tuple[dict[str, str], dict[str, str]], stats: TopicStats, own: dict[str, Any], idle: str, policies: Any
) -> Findings:
    """Return what the check finds in a namespace with one topic."""
    blue, green = brokers
    admin = SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=lambda: blue))
    fields = vars(task(idle_subscriptions=idle))
    step_task = SimpleNamespace(**{**fields, "blue": SimpleNamespace(admin=admin)})
    findings = Findings()
    check_copies(cast("BlueGreenTask", step_task), findings, namespace(topic(stats, **own), **policies), green)
    return findings


@pytest.mark.parametrize(
    ("blue", "green", "limit"),
    [
        ({}, _TTL, "messageTTL 604,800"),
        ({"ttlDurationDefaultInSeconds": "604801"}, _TTL, "messageTTL 604,800"),
        ({}, _EVICTION, "backlogQuota destination_storage 10,737,418,240"),
        (_HOLDS, _EVICTION, "backlogQuota destination_storage 10,737,418,240"),
        ({}, _AGE, "backlogQuota message_age 3,600"),
        ({}, {**_TTL, **_AGE}, "messageTTL 604,800, backlogQuota message_age 3,600"),
    ],
)
def test_brokers_that_would_drop_what_is_copied(blue: dict[str, str], green: dict[str, str], limit: str) -> None:
    """Defaults of green that blue does not have, or has later, drop old messages as soon as they are copied."""
    (blocker,) = _check((blue, green), _IDLE, {}, "copy", {}).blockers
    assert blocker.code == "GREEN_DROPS_BACKLOGS"
    assert f"({limit})" in blocker.cause


_TYPES = {"subscriptionTypesEnabled": "[Failover, Shared]"}
_BOTH_TYPES = {"subscriptionTypesEnabled": ["Exclusive", "Shared"]}
_ENFORCED = {"isSchemaValidationEnforced": "true"}
_SCHEMA = {"schemas": (Schema(version=0, type="STRING"),)}


@pytest.mark.parametrize(
    ("green", "own", "policies", "schema", "why"),
    [
        (_NONE, {}, {}, _SCHEMA, ""),
        (_TYPES, {}, {}, {}, "it allows only subscriptions of Failover, Shared"),
        (_TYPES, _BOTH_TYPES, {}, {}, ""),
        (_NONE, {}, {"subscription_types_enabled": ["Shared"]}, {}, "it allows only subscriptions of Shared"),
        (_NONE, _BOTH_TYPES, {"subscription_types_enabled": ["Shared"]}, {}, ""),
        (_NONE, {"subscriptionTypesEnabled": ["Shared"]}, {}, {}, "it allows only subscriptions of Shared"),
        (_ENFORCED, {}, {}, {}, ""),
        (_ENFORCED, {}, {}, _SCHEMA, "it has a schema"),
        (_NONE, {}, {"schema_validation_enforced": True}, _SCHEMA, "it has a schema"),
        (_NONE, {"schemaValidationEnforced": True}, {}, _SCHEMA, "it has a schema"),
    ],
)
def test_brokers_that_refuse_a_copy(
    green: dict[str, str], own: dict[str, Any], policies: dict[str, Any], schema: dict[str, Any], why: str
) -> None:
    """The copy has no schema, and its cursors are placed by an exclusive consumer while writes are held back."""
    fields = vars(task(idle_subscriptions="copy"))
    for stats in (_IDLE, _READ):
        findings = Findings()
        space = namespace(replace(topic(stats, **own), **schema), **policies)
        check_copies(cast("BlueGreenTask", SimpleNamespace(**fields)), findings, space, green)
        assert [blocker.code for blocker in findings.blockers] == (["COPY_REFUSED"] if why and stats is _IDLE else [])
        assert all(f"({why}" in blocker.cause for blocker in findings.blockers)


@pytest.mark.parametrize(
    ("brokers", "stats", "own", "idle", "policies"),
    [
        ((_TTL, _TTL), _IDLE, {}, "copy", {}),
        (({"ttlDurationDefaultInSeconds": "3600"}, _TTL), _IDLE, {}, "copy", {}),
        ((_EVICTION, _EVICTION), _IDLE, {}, "copy", {}),
        ((_NONE, _HOLDS), _IDLE, {}, "copy", {}),
        ((_NONE, _TTL), _IDLE, {}, "wait", {}),
        ((_NONE, _TTL), _READ, {}, "copy", {}),
        ((_NONE, _TTL), _DONE, {}, "copy", {}),
        # Both sides have the policies of the namespace, and of the topic.
        ((_NONE, _TTL), _IDLE, {}, "copy", {"message_ttl_in_seconds": 0}),
        ((_NONE, _TTL), _IDLE, {}, "copy", {"message_ttl_in_seconds": 60}),
        ((_NONE, _TTL), _IDLE, {"messageTTL": 60}, "copy", {}),
        ((_NONE, _EVICTION), _IDLE, {}, "copy", {"backlog_quota_map": {"destination_storage": _QUOTA}}),
        ((_NONE, _EVICTION), _IDLE, {"backlogQuota": {"destination_storage": _QUOTA}}, "copy", {}),
    ],
)
def test_brokers_that_keep_what_is_copied(
    brokers: tuple[dict[str, str], dict[str, str]],
    stats: TopicStats,
    own: dict[str, Any],
    idle: str,
    policies: dict[str, Any],
) -> None:
    """The copy is allowed if the limits hold on blue as well, or if the topic has no backlog that is copied."""
    assert _check(brokers, stats, own, idle, policies).blockers == []
