"""What policies of a topic, of its namespace and of its brokers mean for a topic that becomes scalable.

Segments have policies of the namespace and of `topic://…`; those that were set on `persistent://…` end with the regular
topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from activities.lifecycle.precheck import Findings
from activities.lifecycle.topic_inventory import TopicInventory
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminUnsupported
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.names import TopicName
from models.lifecycle.failures import some

_Rights = Mapping[str, Sequence[str]]
"""What each role may do."""

_CAUGHT_UP = "delete_when_subscriptions_caught_up"
_KEEPS = ("retention", "offloadPolicies")
"""Policies of a topic by which its consumed messages stay, by name."""


def check_policies(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str], *, remove: bool
) -> None:
    """Note why the policies of a topic keep it from becoming scalable.

    Args:
        findings: where that goes.
        topic: as it is, with its policies.
        namespace: policies of its namespace, as brokers write them.
        broker: settings of a broker.
        remove: whether the regular topic is deleted in the end.
    """
    _check_retention(findings, topic, remove=remove)
    _check_replication(findings, topic, namespace, broker)
    _check_rights(findings, topic.name, namespace)
    _check_deletion(findings, topic, namespace, broker)
    _check_deduplication(findings, topic, namespace, broker)


def own_retention(admin: PulsarAdminReader, topic: TopicName) -> list[str]:
    """Return the policies of a topic itself by which its consumed messages stay, by name; empty where it is gone."""
    try:
        found = {
            name: admin.topic_policies.get(topic, name) for name in (*_KEEPS, *(f"{GLOBAL}{one}" for one in _KEEPS))
        }
    except (AdminNotFound, AdminUnsupported):
        return []
    return _keeping(found)


# Inside ---------------------------------------------------------------------------------------------------------------


def _keeping(policies: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, policy in policies.items()
        if policy
        and name.removeprefix(GLOBAL) in _KEEPS
        and 0 not in (policy.get("retentionTimeInMinutes"), policy.get("retentionSizeInMB"))
    ]


def _of_topic(topic: TopicInventory, name: str) -> Any:
    """Return a policy of the topic itself; None where it has none."""
    policies = topic.policies or {}
    return policies.get(name, policies.get(f"{GLOBAL}{name}"))


def _check_retention(findings: Findings, topic: TopicInventory, *, remove: bool) -> None:
    if not (kept := _keeping(topic.policies or {})):
        return
    cause = (
        f"{topic.name} keeps consumed messages by policies of its own ({', '.join(kept)}), which brokers do not ask "
        "when they drop the regular topic from the layout"
    )
    if remove:
        findings.block(
            "OWN_RETENTION",
            f'{cause}; with "cleanup": "remove" these messages would be deleted',
            'start with "cleanup": "leave"; or remove these policies, if nobody needs the messages',
        )
    else:
        findings.warn(f"{cause}: they are kept with the regular topic, and what is sent later by the namespace's")


def _check_replication(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    # Replicators that run are reported from the topic's statistics; a link that is down has none.
    wanted = _of_topic(topic, "replication") or namespace.get("replication_clusters") or ()
    running = {name for part in topic.parts if part.stats for name in part.stats.replication}
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
            f"roles {some(sorted(lost))} have rights on single partitions of {name}, which brokers do not give them on "
            "the scalable topic",
            "grant them the rights on the whole topic, which brokers copy, or on the namespace",
        )


def _check_deletion(
    findings: Findings, topic: TopicInventory, namespace: Mapping[str, Any], broker: Mapping[str, str]
) -> None:
    policy = _of_topic(topic, "inactiveTopicPolicies") or namespace.get("inactive_topic_policies")
    if policy:
        deletes, mode = policy.get("deleteWhileInactive"), policy.get("inactiveTopicDeleteMode")
    else:
        deletes = broker.get("brokerDeleteInactiveTopicsEnabled") == "true"
        mode = broker.get("brokerDeleteInactiveTopicsMode")
    if deletes and mode == _CAUGHT_UP:
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
    on = _of_topic(topic, "deduplicationEnabled")
    if on is None:
        on = namespace.get("deduplicationEnabled")
    if on is None:
        on = broker.get("brokerDeduplicationEnabled") == "true"
    if on:
        findings.block(
            "DEDUPLICATED",
            f"brokers remove duplicates from {topic.name}, and the new segments do not know what was sent before: what "
            "a producer sends again is stored twice, and one that continues by its last sequence id gets -1",
            "if consumers can do with duplicates of the flip, turn that off for the topic, and on again afterwards: "
            f"pulsar-admin topicPolicies set-deduplication --disable {topic.name}; or leave it out",
        )
