"""GUARD: what brokers must not do in a namespace while topics of it become scalable, and how that is undone.

A broker that leads a scalable topic looks once a minute for sealed segments that retention does not keep, and takes one
without any record of a subscription for consumed; and it merges segments that have little traffic (5.0.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from activities.lifecycle.context import ActivityContext
from activities.pulsar.namespace_guard import NamespaceGuard
from activities.pulsar.overridden_policies import Brokers, HeldPolicy, hold, is_held, put_back, wait_until_known
from clients.errors import StoreConflict
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from models.scalable_topic.claims import GuardedNamespace

Guard = NamespaceGuard[GuardedNamespace]


def _kept(_now: Retention | None) -> Retention:
    return Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def _still(now: AutoScalePolicy | None) -> AutoScalePolicy:
    return (now or AutoScalePolicy()).model_copy(update={"enabled": False})


RETENTION = HeldPolicy("retention", "retention", Retention, ("retention_policies",), _kept)
"""How long consumed messages are kept: for ever, so that no segment is taken for consumed."""

AUTO_SCALE = HeldPolicy("auto_scale", "auto-scale policy", AutoScalePolicy, ("scalableTopicAutoScalePolicy",), _still)
"""When brokers split and merge segments on their own: not now."""

_HELD: tuple[HeldPolicy[Any], ...] = (RETENTION, AUTO_SCALE)


def hold_policies(guard: Guard, context: ActivityContext, brokers: Brokers) -> None:
    """Hold the policies, and wait until every broker knows it; harmless when done twice.

    Raises:
        StoreContention: a broker does not see it for half a minute.
    """
    hold(guard, *_HELD)
    for policy in _HELD:
        wait_until_known(guard, policy, context, brokers)


def require_held(guard: Guard) -> None:
    """Right before a topic becomes scalable: the policies still stand.

    Raises:
        StoreConflict: somebody has changed one.
    """
    for policy in _HELD:
        if not is_held(guard, policy):
            raise StoreConflict(
                f"the {policy.name} of {guard.namespace} is not what the migration has set: somebody has changed it, "
                "and brokers may drop messages that are not consumed"
            )


def put_policies_back(guard: Guard, context: ActivityContext, brokers: Brokers) -> Iterable[str]:
    """Put the policies back as they were, and forget them; says in words what somebody else has set meanwhile."""
    guard.take()
    kept = [put_back(guard, policy, context, brokers) for policy in _HELD]
    guard.release()
    return filter(None, kept)
