"""Policies of blue's namespaces that a migration overrides for a time."""

from __future__ import annotations

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.pulsar import overridden_policies
from activities.pulsar.overridden_policies import AnswerT, OverriddenPolicy, without_overrides
from clients.pulsar.admin.namespaces import AutoTopicCreation, InactiveTopics, Policies, PublishRate
from models.blue_green.claims import NamespaceClaim

_KEPT_FOR = 60
"""Value that brokers require in this policy, in seconds. It has no effect, since the policy deletes nothing."""


def rate(cluster: str, limit: int = 1) -> OverriddenPolicy[PublishRate]:
    """Return the publish rate as a policy to override; it almost stops writes while a batch flips.

    Args:
        cluster: cluster whose brokers apply it.
        limit: bytes/s per topic.
    """

    def throttled(_now: PublishRate | None) -> PublishRate:
        return PublishRate(publish_throttling_rate_in_byte=limit)

    return _rate_in(cluster)._replace(ours=throttled)


def _rate_in(cluster: str) -> OverriddenPolicy[PublishRate]:
    return OverriddenPolicy("publish_rate", "publish rate", PublishRate, ("publishMaxMessageRate", cluster), _as_it_is)


def _as_it_is(now: PublishRate | None) -> PublishRate | None:
    return now


def _without_deletion(now: InactiveTopics | None) -> InactiveTopics | None:
    if now is not None and not now.delete_while_inactive:
        return None
    policy = now or InactiveTopics(
        inactive_topic_delete_mode="delete_when_no_subscriptions",
        max_inactive_duration_seconds=_KEPT_FOR,
        delete_while_inactive=True,
    )
    return policy.model_copy(update={"delete_while_inactive": False})


INACTIVE = OverriddenPolicy(
    "inactive_topics", "policy on inactive topics", InactiveTopics, ("inactive_topic_policies",), _without_deletion
)
"""Policy on the deletion of inactive topics. From the flip on, brokers must not delete them.

Pattern consumers list topics at their first address, and unsubscribe from topics that are missing there, even if these
have moved (Java client, seen).
"""


def _not_created(now: AutoTopicCreation | None) -> AutoTopicCreation | None:
    if now is not None and not now.allow_auto_topic_creation:
        return None
    return (now or AutoTopicCreation(allow_auto_topic_creation=False)).model_copy(
        update={"allow_auto_topic_creation": False}
    )


AUTO_CREATION = OverriddenPolicy(
    "auto_creation",
    "policy on the creation of topics by clients",
    AutoTopicCreation,
    ("autoTopicCreationOverride",),
    _not_created,
)
"""Policy on auto-creation of topics. While the flag of a moved namespace is off, clients must not create topics.

Otherwise a topic that only green has would be created on blue as well, and would take messages that no consumer gets.
"""


def restore_policy(task: AnyBlueGreenTask, guard: NamespaceGuard, policy: OverriddenPolicy[AnswerT]) -> str:
    """Restore a policy; if it was changed since, keep it and return that in words.

    Wait until brokers of blue see it: their policies may be copied to green next, without ours.
    """
    return overridden_policies.restore_policy(guard, policy, task.context, task.blue.brokers)


def as_before(policies: Policies, record: NamespaceClaim | None, cluster: str) -> Policies:
    """Return the policies of a namespace without the overrides that its record notes.

    Args:
        policies: current policies.
        record: record of the namespace.
        cluster: cluster of the policies.
    """
    return policies.model_copy(
        update={"raw": without_overrides(policies.raw, record, _rate_in(cluster), INACTIVE, AUTO_CREATION)}
    )
