"""Policies of blue's namespaces that a migration changes for a time."""

from __future__ import annotations

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.pulsar import overridden_policies
from activities.pulsar.overridden_policies import AnswerT, OverriddenPolicy, without_overrides
from clients.pulsar.admin.namespaces import AutoTopicCreation, InactiveTopics, Policies, PublishRate
from models.blue_green.claims import NamespaceClaim

_KEPT_FOR = 60
"""Seconds that brokers want with this policy; they delete nothing with it, however long that is."""


def rate(cluster: str, limit: int = 1) -> OverriddenPolicy[PublishRate]:
    """Return the policy of how much may be sent: while a batch is flipped, next to nothing.

    Args:
        cluster: whose brokers apply it.
        limit: bytes per second of a topic, for who sets it.
    """

    def throttled(_now: PublishRate | None) -> PublishRate:
        return PublishRate(publish_throttling_rate_in_byte=limit)

    return _rate_in(cluster)._replace(ours=throttled)


def _rate_in(cluster: str) -> OverriddenPolicy[PublishRate]:
    return OverriddenPolicy("publish_rate", "publish rate", PublishRate, ("publishMaxMessageRate", cluster), _as_it_is)


def _as_it_is(now: PublishRate | None) -> PublishRate | None:
    return now


def _kept(now: InactiveTopics | None) -> InactiveTopics | None:
    if now is not None and not now.delete_while_inactive:
        return None
    known = now or InactiveTopics(
        inactive_topic_delete_mode="delete_when_no_subscriptions",
        max_inactive_duration_seconds=_KEPT_FOR,
        delete_while_inactive=True,
    )
    return known.model_copy(update={"delete_while_inactive": False})


INACTIVE = OverriddenPolicy(
    "inactive_topics", "policy on inactive topics", InactiveTopics, ("inactive_topic_policies",), _kept
)
"""Whether brokers delete topics because nobody uses them any more: from a flip on, they do not.

Consumers that subscribe by a pattern list topics at the address that they began with, and leave those that are gone
there, also when they have moved (Java client, seen).
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
"""Whether clients create topics: while the flag of a namespace that has moved is off, they must not.

A topic that exists on green alone would be created on blue as well, and take messages there that no consumer gets.
"""


def restore_policy(task: AnyBlueGreenTask, guard: NamespaceGuard, policy: OverriddenPolicy[AnswerT]) -> str:
    """Put a policy back; what somebody else has set meanwhile stays, and is returned in words.

    Brokers of blue may be asked for all policies next, to be made the same on green, and must not tell our own.
    """
    return overridden_policies.restore_policy(guard, policy, task.context, task.blue_brokers)


def as_before(policies: Policies, record: NamespaceClaim | None, cluster: str) -> Policies:
    """The policies of a namespace as they will be again once what was noted in its record is put back.

    Args:
        policies: as they are.
        record: of the namespace.
        cluster: whose policies these are.
    """
    return policies.model_copy(
        update={"raw": without_overrides(policies.raw, record, _rate_in(cluster), INACTIVE, AUTO_CREATION)}
    )
