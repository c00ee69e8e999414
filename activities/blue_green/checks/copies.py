"""Checks that green's brokers take and keep backlogs which are copied for subscriptions without consumers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from activities.blue_green.checks.settings import elements
from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.wire.subscription import EXCLUSIVE
from models.blue_green.input import IdleSubscriptions
from models.broker_settings import QUOTA_LIMITS, backlog_quota, eviction_limit, message_ttl
from models.lifecycle.failures import summarize

_TTL, _QUOTAS = "messageTTL", "backlogQuota"
_TYPES, _VALIDATION = "subscriptionTypesEnabled", "schemaValidationEnforced"


def check_copies(
    task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory, brokers: Mapping[str, str]
) -> None:
    """Note a blocker for backlogs that green's brokers would refuse, or would drop while blue's keep them.

    Copies keep their publish times, so green's limits apply to them at once. Policies of namespaces and topics are the
    same on both sides; defaults of brokers may differ.

    Args:
        task: the step.
        findings: receives blockers.
        namespace: namespace of blue.
        brokers: settings of green's brokers.
    """
    if task.input.idle_subscriptions is not IdleSubscriptions.COPY:
        return
    policies = namespace.policies.raw
    green = dict(_limits(policies, brokers))
    idle = [topic for topic in namespace.topics.values() if topic.persistent and _has_idle_backlog(topic)]
    refused = [
        f"{topic.name} ({why})"
        for topic in sorted(idle, key=lambda topic: topic.name)
        if (why := _refusal(topic, policies, brokers))
    ]
    if refused:  # mutant: blue-green/copy-that-green-refuses
        findings.block(
            "COPY_REFUSED",
            f"brokers of {task.input.green_cluster} would refuse to copy backlogs: {summarize(refused)}",
            "allow it on blue until the migration is complete (pulsar-admin namespaces set-subscription-types-enabled, "
            "or set-schema-validation-enforce --disable) and in the settings of green's brokers, or move these "
            'namespaces with "idle_subscriptions": "wait" or "skip"',
        )
    # Before blue is asked, once for each namespace: most clusters have no such limits.
    if not idle or not green:
        return
    blue = dict(_limits(policies, task.blue.admin.brokers.runtime_configuration()))
    stricter = {
        name: limit
        for name, limit in green.items()
        if name not in blue or limit < blue[name]  # mutant: blue-green/green-drops-what-is-copied
    }
    dropped = [
        f"{topic.name} ({', '.join(limits)})"
        for topic in sorted(idle, key=lambda topic: topic.name)
        if (limits := [f"{name} {limit:,}" for name, limit in stricter.items() if not _is_own(topic, name)])
    ]
    if dropped:
        findings.block(
            "GREEN_DROPS_BACKLOGS",
            f"brokers of {task.input.green_cluster} drop messages that are not consumed by defaults that brokers of "
            f"{task.input.cluster} do not have, and would drop copied backlogs: {summarize(dropped)}",
            "give the namespace policies of its own on blue, which are copied (pulsar-admin namespaces set-message-ttl "
            "--messageTTL 0, or set-backlog-quota with another policy than consumer_backlog_eviction), or change the "
            "defaults of green's brokers",
        )


def _has_idle_backlog(topic: TopicInventory) -> bool:
    return any(
        sub.msg_backlog and not sub.consumers for stats in topic.stats for sub in stats.durable_subscriptions.values()
    )


def _refusal(topic: TopicInventory, policies: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """Return why brokers refuse the producer, which has no schema, or the consumer of a copy; empty if they do not."""
    own = topic.own_policy(_TYPES) or policies.get("subscription_types_enabled")
    types = {*(own or elements(settings.get(_TYPES, "")))} - {""}
    if types and EXCLUSIVE not in types:
        return f"it allows only subscriptions of {', '.join(sorted(types))}"
    enforced = (
        topic.own_policy(_VALIDATION)
        or policies.get("schema_validation_enforced")
        or settings.get("isSchemaValidationEnforced") == "true"
    )
    return "it has a schema, and their validation is enforced" if enforced and topic.schemas else ""


def _limits(policies: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the limits from which on brokers drop messages that are not consumed, by names of topics' policies."""
    if ttl := message_ttl(policies, settings):
        yield _TTL, ttl
    for kind in QUOTA_LIMITS:
        limit = eviction_limit(kind, backlog_quota(kind, policies, settings))
        if limit is not None:
            yield f"{_QUOTAS} {kind}", limit


def _is_own(topic: TopicInventory, limit: str) -> bool:
    """Return whether a topic has the policy of a limit itself."""
    name, _, kind = limit.partition(" ")
    own = topic.own_policy(name)
    return kind in (own or {}) if kind else own is not None
