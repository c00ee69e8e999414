"""Checks of the policies of a topic, of its namespace and of its brokers.

Segments have the policies of the namespace and of `topic://…`; policies of `persistent://…` end with the regular topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.regular_topic import kind_of
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminUnsupported
from clients.pulsar.admin.policy_calls import BACKLOG_QUOTAS
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.names import TopicName
from models.broker_settings import (
    QUOTA_LIMITS,
    backlog_quota,
    deletes_consumed,
    eviction_limit,
    message_ttl,
    subscription_expiration,
)
from models.lifecycle.failures import summarize
from models.segments.segment import SubscriptionKind

_Rights = Mapping[str, Sequence[str]]
"""The actions that each role may perform."""

_KEEPS = ("retention", "offloadPolicies")
"""Names of the policies of a topic that keep its consumed messages."""
_TTL, _EXPIRATION = "messageTTL", "subscriptionExpirationTime"
_ATTACHED_AS = {SubscriptionKind.STREAM: "Exclusive", SubscriptionKind.QUEUE: "Shared"}
"""Subscription type with which V5 consumers of each kind attach to segments."""


def check_policies(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str], *, remove: bool
) -> None:
    """Note why the policies of a topic keep it from becoming scalable.

    Args:
        findings: collects the results.
        topic: the current regular topic, with its policies.
        namespace: policies of its namespace, as brokers write them.
        broker: settings of a broker.
        remove: whether the cleanup deletes the regular topic.
    """
    _check_retention(findings, topic, remove=remove)
    _check_backlog(findings, topic, namespace, broker)  # mutant: scalable-topic/own-expiry-is-lost
    # mutant: scalable-topic/subscriptions-expire-on-segments
    _check_expiration(findings, topic, namespace, broker, remove=remove)
    _check_types(findings, topic, namespace, broker)  # mutant: scalable-topic/types-that-are-not-allowed-are-used
    _check_replication(findings, topic, namespace, broker)
    _check_rights(findings, topic.name, namespace)
    _check_deletion(findings, topic, namespace, broker)
    _check_deduplication(findings, topic, namespace, broker)


def own_retention(admin: PulsarAdminReader, topic: TopicName) -> list[str]:
    """Return the names of the own policies of a topic that keep its consumed messages; empty if it is gone."""
    try:
        policies = {
            name: admin.topic_policies.get(topic, name) for name in (*_KEEPS, *(f"{GLOBAL}{keep}" for keep in _KEEPS))
        }
    except (AdminNotFound, AdminUnsupported):
        return []
    return _keeping(policies)


# Inside ---------------------------------------------------------------------------------------------------------------


def _keeping(policies: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, policy in policies.items()
        if policy
        and name.removeprefix(GLOBAL) in _KEEPS
        and 0 not in (policy.get("retentionTimeInMinutes"), policy.get("retentionSizeInMB"))
    ]


def _check_retention(findings: Findings, topic: TopicInventory, *, remove: bool) -> None:
    if not (names := _keeping(topic.policies or {})):
        return
    cause = (
        f"{topic.name} keeps consumed messages by its own policies ({', '.join(names)}), which brokers ignore when "
        "they drop the regular topic from the layout"
    )
    if remove:
        findings.block(
            "OWN_RETENTION",
            f'{cause}; with "cleanup": "remove" these messages would be deleted',
            'start with "cleanup": "leave"; or remove these policies, if the messages are not needed',
        )
    else:
        findings.warn(
            f"{cause}: they stay with the regular topic, and later messages follow the policies of the namespace"
        )


def _check_backlog(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    """Note policies with which a topic keeps unconsumed messages for longer than its segments would."""
    lost = [name for name, given in _limits(namespace, broker).items() if _is_longer(topic.own_policy(name), given)]
    own: Mapping[str, Any] = topic.own_policy(BACKLOG_QUOTAS) or {}
    for kind in QUOTA_LIMITS:
        if kind not in own or (limit := eviction_limit(kind, backlog_quota(kind, namespace, broker))) is None:
            continue
        own_limit = eviction_limit(kind, own[kind])
        if own_limit is None or own_limit > limit:
            lost.append(f"{BACKLOG_QUOTAS} {kind}")
    if lost:
        findings.block(
            "OWN_EXPIRY",
            f"{topic.name} keeps unconsumed messages by its own policies ({', '.join(lost)}) for longer than its "
            "namespace and brokers do, whose policies apply to its segments: these would drop messages",
            "give the namespace the policies of the topic, or remove those of the topic if its messages may be dropped",
        )


def _check_expiration(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str], *, remove: bool
) -> None:
    minutes = subscription_expiration(namespace, broker)
    ordered = [subscription.name for subscription in topic.durable if kind_of(subscription) is SubscriptionKind.STREAM]
    if not (minutes and (ordered or remove)):
        return
    why = (
        f"consumers of {summarize(ordered)} come to a new segment only when they have consumed the segments before it"
        if ordered
        else "the subscription that keeps the regular topic until the grace window ends has none"
    )
    findings.block(
        "SUBSCRIPTIONS_EXPIRE",
        f"brokers delete a subscription from each segment of {topic.name} on which it has had no consumer for "
        f"{minutes} minutes, and {why}",
        "switch that off for the namespace: pulsar-admin namespaces set-subscription-expiration-time -t 0 "
        f"{topic.name.namespace_path}",
    )


def _check_types(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    allowed = namespace.get("subscription_types_enabled") or broker.get("subscriptionTypesEnabled", "").split(",")
    # Brokers write their own setting as `[Exclusive, Shared]`.
    names = {name.strip(" []") for name in allowed} - {""}
    refused = {
        need: [subscription.name for subscription in topic.durable if kind_of(subscription) is kind]
        for kind, need in _ATTACHED_AS.items()
        if names and need not in names
    }
    for need, subscriptions in refused.items():
        if subscriptions:
            types = ",".join(sorted({*names, need}))
            findings.block(
                "SUBSCRIPTION_TYPES",
                f"segments of {topic.name} would take subscriptions of these types only: {', '.join(sorted(names))}; "
                f"V5 clients attach to them as {need} to consume {summarize(subscriptions)}, and would be refused",
                f"add {need} to the types that the namespace allows: pulsar-admin namespaces "
                f"set-subscription-types-enabled --types {types} {topic.name.namespace_path}",
            )


def _limits(namespace: Mapping[str, Any], broker: Mapping[str, str]) -> dict[str, int]:
    """Return the limits of segments, by the names of the own policies of a topic; 0 for no limit."""
    return {_TTL: message_ttl(namespace, broker), _EXPIRATION: subscription_expiration(namespace, broker)}


def _is_longer(own: int | None, given: int | None) -> bool:
    """Return whether the own limit of a topic keeps more than the inherited one; 0 or less means unlimited."""
    return own is not None and given is not None and given > 0 and (own <= 0 or own > given)


def _check_replication(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    # Replicators that run are reported from the topic's statistics; a link that is down has none.
    wanted = topic.own_policy("replication") or namespace.get("replication_clusters") or ()
    running = {name for partition in topic.parts if partition.stats for name in partition.stats.replication}
    if others := sorted({*wanted} - running - {broker.get("clusterName")}):
        findings.block(
            "REPLICATED",
            f"{topic.name} is replicated to {', '.join(others)}; scalable topics are not",
            "end the replication of this topic first, or leave it out",
        )


def _check_rights(findings: Findings, name: TopicName, namespace: Mapping[str, Any]) -> None:
    rights: Mapping[str, Any] = namespace.get("auth_policies") or {}
    of_topics: Mapping[str, _Rights] = rights.get("destination_auth") or {}
    whole, everywhere = of_topics.get(str(name), {}), cast("_Rights", rights.get("namespace_auth") or {})
    lost = {
        role
        for topic, roles in of_topics.items()
        if topic.startswith(f"{name}-partition-") and TopicName.parse(topic).whole == name
        for role, actions in roles.items()
        if {*actions} - {*whole.get(role, ()), *everywhere.get(role, ())}
    }
    if lost:
        findings.block(
            "PARTITION_RIGHTS",
            f"roles {summarize(sorted(lost))} have rights on single partitions of {name}, which brokers do not give "
            "them on the scalable topic",
            "grant them the rights on the whole topic, which brokers copy, or on the namespace",
        )


def _check_deletion(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    policy = topic.own_policy("inactiveTopicPolicies") or namespace.get("inactive_topic_policies")
    if deletes_consumed(policy, broker):
        findings.block(
            "INACTIVE_DELETION",
            f"brokers delete {topic.name} as soon as all its subscriptions have consumed it, and it has no clients: "
            "also while the scalable topic still names it, and in the grace window",
            "let the topic have other policies until the migration has ended: pulsar-admin topicPolicies "
            f"set-inactive-topic-policies --disable-delete-while-inactive {topic.name} --max-inactive-duration 1h "
            "--delete-mode delete_when_no_subscriptions",
        )


def _check_deduplication(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    on = topic.own_policy("deduplicationEnabled")
    if on is None:
        on = namespace.get("deduplicationEnabled")
    if on is None:
        on = broker.get("brokerDeduplicationEnabled") == "true"
    if on:
        findings.block(
            "DEDUPLICATED",
            f"brokers remove duplicates from {topic.name}, and the new segments do not know what was sent before: what "
            "a producer sends again is stored twice, and one that continues by its last sequence id gets -1",
            "if consumers tolerate duplicates during the flip, turn that off for the topic, and on again afterwards: "
            f"pulsar-admin topicPolicies set-deduplication --disable {topic.name}; or leave it out",
        )
