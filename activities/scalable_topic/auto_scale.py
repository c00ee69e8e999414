"""The auto-scale policy of one scalable topic: set, and read back (PIP-483)."""

from __future__ import annotations

from collections.abc import Callable

from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.scalable_topic.auto_scale import AutoScale


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
    policy = AutoScalePolicy.model_validate(wanted.model_dump(exclude_none=True))
    if admin.scalable_topics.auto_scale_policy(topic) == policy:
        return
    change(
        look=lambda admin: admin.scalable_topics.auto_scale_policy(topic),
        fence=fence,
        change=lambda admin: admin.scalable_topics.set_auto_scale_policy(topic, policy),
    )
    if (found := admin.scalable_topics.auto_scale_policy(topic)) != policy:
        told = found.body() if found else "none"
        raise StoreContention(f"the auto-scale policy of {topic} is {told} right after it was set to {policy.body()}")
