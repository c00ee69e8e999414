"""Policies of blue's namespaces that a migration changes for a time: noted, set, and put back.

All of it where brokers keep them, by compare-and-set: a request to a broker that a worker sends late, when nobody knows
of it any more, would hold writes back for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.flags import LOOK_EVERY, SEEN_WITHIN
from clients.cas.store import CasStore
from clients.errors import StoreContention, StoreNotFound
from clients.pulsar.admin.answers import Answer
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.admin.namespaces import InactiveTopics, Policies, PublishRate
from clients.pulsar.json_records import Record
from clients.pulsar.namespace_policy import change_policies, read_policy, value_at, with_value
from models.blue_green.claims import Changed, NamespaceClaim
from models.blue_green.input import BlueGreenInput

AnswerT = TypeVar("AnswerT", bound=Answer)

_KEPT_FOR = 60
"""Seconds that brokers want with this policy; they delete nothing with it, however long that is."""


class HeldPolicy(NamedTuple, Generic[AnswerT]):
    """One of these policies.

    Attributes:
        field: of `NamespaceClaim`, which has its value of before.
        name: for people.
        kind: of its values.
        path: in the broker's JSON of all policies, given the name of its cluster.
        ours: gets what stands, and returns what shall stand while it is held; None where it may stay.
    """

    field: str
    name: str
    kind: type[AnswerT]
    path: Callable[[str], Sequence[str]]
    ours: Callable[[BlueGreenInput, AnswerT | None], AnswerT | None]

    def parsed(self, body: object) -> AnswerT | None:
        """A value as it was noted or stored."""
        return None if body is None else self.kind.model_validate(body)


def _rate_path(cluster: str) -> Sequence[str]:
    return ("publishMaxMessageRate", cluster)


def _throttled(given: BlueGreenInput, _now: PublishRate | None) -> PublishRate:
    return PublishRate(publish_throttling_rate_in_byte=given.throttle_bytes)


def _inactive_path(_cluster: str) -> Sequence[str]:
    return ("inactive_topic_policies",)


def _kept(_given: BlueGreenInput, now: InactiveTopics | None) -> InactiveTopics | None:
    if now is not None and not now.delete_while_inactive:
        return None
    known = now or InactiveTopics(
        inactive_topic_delete_mode="delete_when_no_subscriptions",
        max_inactive_duration_seconds=_KEPT_FOR,
        delete_while_inactive=True,
    )
    return known.model_copy(update={"delete_while_inactive": False})


RATE = HeldPolicy("publish_rate", "publish rate", PublishRate, _rate_path, _throttled)
"""How much may be sent: while a batch is flipped, next to nothing."""

INACTIVE = HeldPolicy("inactive_topics", "policy on inactive topics", InactiveTopics, _inactive_path, _kept)
"""Whether brokers delete topics because nobody uses them any more: from a flip on, they do not.

Consumers that subscribe by a pattern list topics at the address that they began with, and leave those that are gone
there, also when they have moved (Java client, seen).
"""


def hold(task: BlueGreenTask, guard: NamespaceGuard, *policies: HeldPolicy[Any]) -> None:
    """Set policies, after their values of before were noted; harmless when done twice.

    In one write, since a broker applies two that come at once in either order: it hands each to another thread (seen in
    the source of 5.0.0-M1).

    Raises:
        StoreNotFound: the namespace is gone.
    """

    def change(record: Record) -> Record:
        for policy in policies:
            at = policy.path(task.input.cluster)
            record = with_value(record, at, _held(task, guard, policy, value_at(record, at)))
        return record

    change_policies(guard.store, guard.namespace, guard.require, change)


def _held(task: BlueGreenTask, guard: NamespaceGuard, policy: HeldPolicy[Any], stored: Any) -> Any:
    """What shall stand in place of what is stored, after that was noted."""
    now, noted = policy.parsed(stored), _noted(guard, policy)
    wanted = policy.ours(task.input, now)
    if wanted is None:
        return stored
    # What stands there besides ours is an operator's, also where something else was noted before. What is ours
    # and was not noted was left by a run whose record is gone.
    if noted is None or now != wanted:
        before = None if now == wanted else stored
        guard.note(**{policy.field: Changed(before=before, ours=wanted.body())})
    return stored if now == wanted else wanted.body()


def tell_again(guard: NamespaceGuard) -> None:
    """Have brokers apply the policies of a namespace once more.

    One that had lost its session just then was not told, and one that was told of two changes at once may have applied
    the older one last; its topics know nothing of what it answers for the namespace.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    change_policies(guard.store, guard.namespace, guard.require, lambda record: record)


def is_held(task: BlueGreenTask, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> bool:
    """Whether a policy stands as the migration has set it."""
    now, noted = held_value(task, guard, policy), _noted(guard, policy)
    return now is not None and noted is not None and now == policy.parsed(noted.ours)


def held_value(task: BlueGreenTask, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> AnswerT | None:
    """What stands.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    return policy.parsed(read_policy(guard.store, guard.namespace, policy.path(task.input.cluster)))


def put_back(task: BlueGreenTask, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> str:
    """Put a policy back; what somebody else has set meanwhile stays, and is returned in words."""
    noted = _noted(guard, policy)
    if noted is None:
        return ""
    # Where the namespace is gone, so is its policy.
    kept = ""
    with suppress(StoreNotFound):
        back = Changed(before=noted.ours, ours=noted.before)
        kept = exchange(guard.store, task.input.cluster, guard, policy, back)
        _wait_until_known(task, guard, policy)
    guard.note(**{policy.field: None})
    return kept


def _wait_until_known(task: BlueGreenTask, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> None:
    """Brokers may be asked for all policies next, to be made the same on green, and must not tell our own.

    Raises:
        StoreContention: one tells another value than the store has, for half a minute.
    """
    end = time.monotonic() + SEEN_WITHIN
    for url, admin in task.blue_brokers():
        # Who does not answer tells nobody a value of before.
        with suppress(AdminUnreachable):
            while _told(task, admin, guard, policy) != held_value(task, guard, policy):
                if time.monotonic() > end:
                    raise StoreContention(f"the broker {url} does not see the {policy.name} of {guard.namespace}")
                task.context.pause(LOOK_EVERY)


def _told(
    task: BlueGreenTask, admin: PulsarAdminReader, guard: NamespaceGuard, policy: HeldPolicy[AnswerT]
) -> AnswerT | None:
    policies = admin.namespaces.policies(guard.namespace)
    return policy.parsed(value_at(policies.raw, policy.path(task.input.cluster)))


def exchange(store: CasStore, cluster: str, guard: NamespaceGuard, policy: HeldPolicy[AnswerT], change: Changed) -> str:
    """Set a policy where it still stands as it was before; says in words what somebody else has set meanwhile.

    Args:
        store: of blue, or of green.
        cluster: whose store this is.
        guard: of the namespace.
        policy: which one.
        change: the value that is expected, and the new one.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    kept = ""

    at = policy.path(cluster)

    def changed(record: Record) -> Record:
        nonlocal kept
        now, kept = policy.parsed(value_at(record, at)), ""
        if now == policy.parsed(change.before):
            return with_value(record, at, change.ours)
        if now != policy.parsed(change.ours):
            kept = f"{policy.name} of {guard.namespace}: {now.body() if now else 'none'} was set by somebody else, "
            kept += "and stays"
        return record

    change_policies(store, guard.namespace, guard.require, changed)
    return kept


def as_before(policies: Policies, record: NamespaceClaim | None, cluster: str) -> Policies:
    """The policies of a namespace as they will be again once what was noted in its record is put back.

    Args:
        policies: as they are.
        record: of the namespace.
        cluster: whose policies these are.
    """
    raw = dict(policies.raw)
    for policy in (RATE, INACTIVE):
        noted: Changed | None = getattr(record, policy.field) if record else None
        if noted and value_at(raw, at := policy.path(cluster)) == noted.ours:
            raw = with_value(raw, at, noted.before)
    return policies.model_copy(update={"raw": raw})


def _noted(guard: NamespaceGuard, policy: HeldPolicy[AnswerT]) -> Changed | None:
    return getattr(guard.require(), policy.field)
