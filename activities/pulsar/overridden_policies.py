"""Policies of namespaces that a migration changes for a time: noted, set, and put back.

All of it where brokers keep them, by compare-and-set: a request to a broker that a worker sends late, when nobody knows
of it any more, would leave a namespace changed indefinitely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.pulsar.await_on_brokers import await_on_brokers
from activities.pulsar.namespace_guard import NamespaceGuard
from clients.cas.store import CasStore
from clients.errors import StoreNotFound
from clients.pulsar.admin.answers import Answer
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.json_records import Record
from clients.pulsar.namespace_policy import change_policies, read_policy, value_at, with_value
from models.lifecycle.claim import Changed, Claim

AnswerT = TypeVar("AnswerT", bound=Answer)

Brokers = Callable[[], Iterable[tuple[str, PulsarAdminReader]]]
"""Gives every broker that is active, with its address."""


PolicyGuard = NamespaceGuard[Any]
"""The right to change a namespace, with its record, in which values of before are noted."""


class OverriddenPolicy(NamedTuple, Generic[AnswerT]):
    """One of these policies.

    Attributes:
        field: of the namespace's record, which has the value of before, as `Changed`.
        name: for people.
        kind: of its values.
        path: in the broker's JSON of all policies.
        ours: gets what stands, and returns what must stand while it is held; None where it may stay.
    """

    field: str
    name: str
    kind: type[AnswerT]
    path: tuple[str, ...]
    ours: Callable[[AnswerT | None], AnswerT | None]

    def parsed(self, body: object) -> AnswerT | None:
        """A value as it was noted or stored."""
        return None if body is None else self.kind.model_validate(body)

    def noted(self, record: Claim | None) -> Changed | None:
        """What a namespace's record has of it."""
        return getattr(record, self.field) if record else None


def override_policies(guard: PolicyGuard, *policies: OverriddenPolicy[Any]) -> None:
    """Set policies, after their values of before were noted; harmless when done twice.

    In one write, since a broker applies two that come at once in either order: it hands each to a pool of threads.

    Raises:
        StoreNotFound: the namespace is gone.
    """

    def change(record: Record) -> Record:
        for policy in policies:
            record = with_value(record, policy.path, _held(guard, policy, value_at(record, policy.path)))
        return record

    change_policies(guard.store, guard.namespace, guard.require, change)


def _held(guard: PolicyGuard, policy: OverriddenPolicy[Any], stored: Any) -> Any:
    """What must stand in place of what is stored, after that was noted."""
    now, noted = policy.parsed(stored), policy.noted(guard.require())
    wanted = policy.ours(now)
    if wanted is None:
        return stored
    # What stands there besides ours is an operator's, also where something else was noted before. What is ours
    # and was not noted was left by a run whose record is gone.
    if noted is None or now != wanted:
        before = None if now == wanted else stored
        guard.note(**{policy.field: Changed(before=before, ours=wanted.body())})
    return stored if now == wanted else wanted.body()


def rewrite_policies(guard: PolicyGuard) -> None:
    """Have brokers apply the policies of a namespace again.

    One that had lost its session just then was not told, and one that was told of two changes at once may have applied
    the older one last; its topics know nothing of what it answers for the namespace.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    change_policies(guard.store, guard.namespace, guard.require, lambda record: record)


def is_overridden(guard: PolicyGuard, policy: OverriddenPolicy[AnswerT]) -> bool:
    """Whether a policy stands as the migration has set it."""
    now, noted = stored_policy(guard, policy), policy.noted(guard.require())
    return now is not None and noted is not None and now == policy.parsed(noted.ours)


def stored_policy(guard: PolicyGuard, policy: OverriddenPolicy[AnswerT]) -> AnswerT | None:
    """What stands.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    return policy.parsed(read_policy(guard.store, guard.namespace, policy.path))


def restore_policy(
    guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], context: ActivityContext, brokers: Brokers
) -> str:
    """Put a policy back, and wait until brokers know it; what somebody else has set meanwhile stays.

    Args:
        guard: of the namespace.
        policy: which one.
        context: of the activity.
        brokers: who must know it.

    Returns:
        what stays, in words.

    Raises:
        StoreContention: a broker tells another value than the store has, for half a minute.
    """
    noted = policy.noted(guard.require())
    if noted is None:
        return ""
    # Where the namespace is gone, so is its policy.
    kept = ""
    with suppress(StoreNotFound):
        kept = compare_and_set_policy(guard.store, guard, policy, Changed(before=noted.ours, ours=noted.before))
        wait_until_known(guard, policy, context, brokers)
    guard.note(**{policy.field: None})
    return kept


def wait_until_known(
    guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], context: ActivityContext, brokers: Brokers
) -> None:
    """Wait until every broker that answers tells the value that the store has; see `restore_policy`."""

    def lag_of(admin: PulsarAdminReader) -> str:
        seen = policy.parsed(value_at(admin.namespaces.policies(guard.namespace).raw, policy.path))
        return "" if seen == stored_policy(guard, policy) else f"does not see the {policy.name} of {guard.namespace}"

    # A broker that does not answer gives no client the previous value.
    await_on_brokers(context, brokers(), lag_of, silent=set())


def compare_and_set_policy(
    store: CasStore, guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], change: Changed
) -> str:
    """Set a policy where it still stands as it was before; says in words what somebody else has set meanwhile.

    Args:
        store: whose policies these are; that of the guard, or another cluster's.
        guard: of the namespace.
        policy: which one.
        change: the value that is expected, and the new one.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    kept = ""

    def changed(record: Record) -> Record:
        nonlocal kept
        now, kept = policy.parsed(value_at(record, policy.path)), ""
        if now == policy.parsed(change.before):  # mutant: blue-green/limit-of-an-operator-is-overwritten
            return with_value(record, policy.path, change.ours)
        if now != policy.parsed(change.ours):
            kept = f"{policy.name} of {guard.namespace}: {now.body() if now else 'none'} was set by somebody else, "
            kept += "and stays"
        return record

    change_policies(store, guard.namespace, guard.require, changed)
    return kept


def without_overrides(raw: Mapping[str, Any], record: Claim | None, *policies: OverriddenPolicy[Any]) -> Record:
    """All policies of a namespace, in the broker's JSON, as they will be once what was noted is put back."""
    found = dict(raw)
    for policy in policies:
        noted = policy.noted(record)
        if noted and value_at(found, policy.path) == noted.ours:  # mutant: blue-green/limit-of-a-run-that-is-gone
            found = with_value(found, policy.path, noted.before)
    return found
