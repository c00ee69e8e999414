"""Policies of blue's namespaces that a migration changes for a time: noted, set, and put back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from activities.blue_green.context import NamespaceGuard
from clients.pulsar.admin.answers import Answer
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import InactiveTopics, Namespaces, Policies, PublishRate
from models.blue_green.claims import Changed, NamespaceClaim

AnswerT = TypeVar("AnswerT", bound=Answer)

# In the broker's JSON of all policies.
_RATES = "publishMaxMessageRate"
_INACTIVE = "inactive_topic_policies"

_KEPT_FOR = 60
"""Seconds that brokers want with this policy; they delete nothing with it, however long that is."""


class HeldPolicy(NamedTuple, Generic[AnswerT]):
    """One of these policies.

    Attributes:
        field: of `NamespaceClaim`, which has its value of before.
        name: for people.
        kind: of its values.
        read, write, remove: at the broker.
    """

    field: str
    name: str
    kind: type[AnswerT]
    read: Callable[[Namespaces, str], AnswerT | None]
    write: Callable[[Namespaces, str, AnswerT], None]
    remove: Callable[[Namespaces, str], None]

    def set(self, namespaces: Namespaces, namespace: str, value: AnswerT | None) -> None:
        """Set the policy, or take it away where there is no value."""
        if value is None:
            self.remove(namespaces, namespace)
        else:
            self.write(namespaces, namespace, value)

    def parsed(self, body: object) -> AnswerT | None:
        """A value as it was noted."""
        return None if body is None else self.kind.model_validate(body)


RATE = HeldPolicy(
    "publish_rate",
    "publish rate",
    PublishRate,
    Namespaces.publish_rate,
    Namespaces.set_publish_rate,
    Namespaces.remove_publish_rate,
)
INACTIVE = HeldPolicy(
    "inactive_topics",
    "policy on inactive topics",
    InactiveTopics,
    Namespaces.inactive_topics,
    Namespaces.set_inactive_topics,
    Namespaces.remove_inactive_topics,
)


def hold(namespaces: Namespaces, guard: NamespaceGuard, policy: HeldPolicy[AnswerT], ours: AnswerT) -> None:
    """Set a policy, after its value of before was noted; harmless when done twice."""
    now, noted = policy.read(namespaces, guard.namespace), _noted(guard, policy)
    # What stands there besides ours is an operator's, also where something else was noted before.
    if noted is None or now != ours:
        guard.note(**{policy.field: Changed(before=now.body() if now else None, ours=ours.body())})
    if now != ours:
        guard.require()
        policy.write(namespaces, guard.namespace, ours)


def is_held(namespaces: Namespaces, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> bool:
    """Whether a policy stands as the migration has set it."""
    now, noted = policy.read(namespaces, guard.namespace), _noted(guard, policy)
    return now is not None and noted is not None and now == policy.parsed(noted.ours)


def put_back(namespaces: Namespaces, guard: NamespaceGuard, policy: HeldPolicy[AnswerT], *, forget: bool = True) -> str:
    """Put a policy back; what somebody else has set meanwhile stays, and is returned in words.

    Args:
        namespaces: of blue.
        guard: of the namespace.
        policy: which one.
        forget: also forget its value of before; not while a late request of an earlier attempt may still arrive.
    """
    noted = _noted(guard, policy)
    if noted is None:
        return ""
    kept = ""
    # Where the namespace is gone, so is its policy.
    with suppress(AdminNotFound):
        now, before = policy.read(namespaces, guard.namespace), policy.parsed(noted.before)
        if now == policy.parsed(noted.ours):
            guard.require()
            policy.set(namespaces, guard.namespace, before)
        elif now != before:
            told = now.body() if now else "none"
            kept = f"{policy.name} of {guard.namespace}: {told} was set by somebody else, and stays"
    if forget:
        guard.note(**{policy.field: None})
    return kept


def keep_topics(namespaces: Namespaces, guard: NamespaceGuard) -> None:
    """Have brokers of blue not delete topics because nobody uses them any more.

    Consumers that subscribe by a pattern list topics at the address that they began with, and leave those that are
    gone there, also when they have moved (Java client, seen).
    """
    now = namespaces.inactive_topics(guard.namespace)
    if now is None or now.delete_while_inactive:
        known = now or InactiveTopics(
            inactive_topic_delete_mode="delete_when_no_subscriptions",
            max_inactive_duration_seconds=_KEPT_FOR,
            delete_while_inactive=True,
        )
        hold(namespaces, guard, INACTIVE, known.model_copy(update={"delete_while_inactive": False}))


def as_before(policies: Policies, record: NamespaceClaim | None, cluster: str) -> Policies:
    """The policies of a namespace as they will be again once what was noted in its record is put back.

    Args:
        policies: as they are.
        record: of the namespace.
        cluster: whose policies these are.
    """
    raw = dict(policies.raw)
    if record and record.publish_rate:
        rates: dict[str, Any] = {**(raw.get(_RATES) or {})}
        _replace(rates, cluster, record.publish_rate)
        raw[_RATES] = rates
    if record and record.inactive_topics:
        _replace(raw, _INACTIVE, record.inactive_topics)
    return policies.model_copy(update={"raw": raw})


def _replace(values: dict[str, Any], name: str, changed: Changed) -> None:
    if values.get(name) != changed.ours:
        return
    if changed.before is None:
        del values[name]
    else:
        values[name] = changed.before


def _noted(guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> Changed | None:
    return getattr(guard.require(), policy.field)
