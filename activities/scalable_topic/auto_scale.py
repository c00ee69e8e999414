"""The auto-scale policy of one scalable topic: set, and read back (PIP-483)."""

from __future__ import annotations

from collections.abc import Callable

from pydantic.alias_generators import to_camel

from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminPreconditionFailed
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.scalable_topic.auto_scale import AutoScale

_STILL = AutoScale(enabled=False)
_KNOWN = {to_camel(name) for name in AutoScale.model_fields}


def stored_policy(wanted: AutoScale, now: AutoScalePolicy | None) -> AutoScalePolicy:
    """Return the policy that is stored for a wanted one.

    Args:
        wanted: as an operator wrote it; what it leaves out is left to the namespace and the brokers.
        now: what the topic has; fields of it that an operator cannot write here stay.
    """
    unknown = {name: value for name, value in now.body().items() if name not in _KNOWN} if now else {}
    fields = {to_camel(name): value for name, value in wanted.model_dump(exclude_none=True).items()}
    return AutoScalePolicy.model_validate({**unknown, **fields})


def set_or_fall_back(
    admin: PulsarAdminReader,
    change: ChangeOrNever,
    topic: TopicName,
    wanted: AutoScale,
    fence: Callable[[], object],
) -> str:
    """Set the policy of a topic, or keep brokers from merging its segments where they refuse it.

    Args:
        admin: of the cluster.
        change: makes the change.
        topic: the scalable one.
        wanted: its policy.
        fence: raises where somebody else is in charge.

    Returns:
        why it is another, in words; empty where it is set.
    """
    try:
        set_auto_scale(admin, change, topic, wanted, fence)
    except AdminNotFound:
        return f"topic://{topic.local_path} is gone: somebody has deleted it, and it gets no auto-scale policy"
    except AdminPreconditionFailed as error:
        why = f"brokers refuse the auto-scale policy of topic://{topic.local_path}: {error.reason}"
        try:
            set_auto_scale(admin, change, topic, _STILL, fence)
        except AdminPreconditionFailed:
            return f"{why}; it has none"
        return f'{why}; it has {{"enabled": false}} instead, so brokers neither split nor merge its segments'
    return ""


def set_auto_scale(
    admin: PulsarAdminReader,
    change: ChangeOrNever,
    topic: TopicName,
    wanted: AutoScale,
    fence: Callable[[], object],
) -> None:
    """Set the policy of a topic where it is another; what the input leaves out is left to the namespace.

    Args:
        admin: of the cluster.
        change: makes the change.
        topic: the scalable one.
        wanted: its policy.
        fence: raises where somebody else is in charge.

    Raises:
        AdminPreconditionFailed: its values contradict those of the namespace.
        StoreContention: somebody else sets another one at the same time.
    """
    now = admin.scalable_topics.auto_scale_policy(topic)
    policy = stored_policy(wanted, now)
    if now == policy:
        return
    change(
        look=lambda admin: admin.scalable_topics.auto_scale_policy(topic),
        fence=fence,
        change=lambda admin: admin.scalable_topics.set_auto_scale_policy(topic, policy),
    )
    if (after := admin.scalable_topics.auto_scale_policy(topic)) != policy:
        told = after.body() if after else "none"
        raise StoreContention(f"the auto-scale policy of {topic} is {told} right after it was set to {policy.body()}")
