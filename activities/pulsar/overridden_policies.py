"""Policies of namespaces that a migration overrides for a time: recorded, set, and restored.

They are changed in the brokers' metadata store by compare-and-set. A late request to a broker, which no attempt would
undo, could leave a namespace changed indefinitely.
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
"""Returns every active broker, with its address."""


PolicyGuard = NamespaceGuard[Any]
"""The right to change a namespace, with its record, which has the previous values."""


class OverriddenPolicy(NamedTuple, Generic[AnswerT]):
    """A policy that a migration overrides for a time.

    Attributes:
        field: of the namespace's record, which has the previous value as `Changed`.
        name: for people.
        kind: type of its values.
        path: in the broker's JSON of all policies.
        ours: gets the stored value, and returns the overriding one; None to keep the stored value.
    """

    field: str
    name: str
    kind: type[AnswerT]
    path: tuple[str, ...]
    ours: Callable[[AnswerT | None], AnswerT | None]

    def parsed(self, body: object) -> AnswerT | None:
        """Return a recorded or stored value as the policy's type."""
        return None if body is None else self.kind.model_validate(body)

    def noted(self, record: Claim | None) -> Changed | None:
        """Return the override in a namespace's record; None without one."""
        return getattr(record, self.field) if record else None


def override_policies(guard: PolicyGuard, *policies: OverriddenPolicy[Any]) -> None:
    """Record the previous values of policies, and set the overriding ones; idempotent.

    All are set in one write: a broker applies two concurrent changes in any order, since it gives each to a thread
    pool.

    Raises:
        StoreNotFound: the namespace is gone.
    """

    def change(record: Record) -> Record:
        for policy in policies:
            record = with_value(record, policy.path, _held(guard, policy, value_at(record, policy.path)))
        return record

    change_policies(guard.store, guard.namespace, guard.require, change)


def _held(guard: PolicyGuard, policy: OverriddenPolicy[Any], stored: Any) -> Any:
    """Record the stored value, and return the value that overrides it."""
    now, noted = policy.parsed(stored), policy.noted(guard.require())
    wanted = policy.ours(now)
    if wanted is None:
        return stored
    # A value that is not ours comes from an operator, also if an earlier one was recorded. A value of ours without a
    # record was left by a run whose record is gone.
    if noted is None or now != wanted:
        before = None if now == wanted else stored
        guard.note(**{policy.field: Changed(before=before, ours=wanted.body())})
    return stored if now == wanted else wanted.body()


def rewrite_policies(guard: PolicyGuard) -> None:
    """Write the policies of a namespace again, so that brokers apply them again.

    A broker that lost its session misses the change. One that gets two changes at once may apply the older one last;
    its topics then differ from what it reports for the namespace.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    change_policies(guard.store, guard.namespace, guard.require, lambda record: record)


def is_overridden(guard: PolicyGuard, policy: OverriddenPolicy[AnswerT]) -> bool:
    """Return whether a policy has the migration's value."""
    now, noted = stored_policy(guard, policy), policy.noted(guard.require())
    return now is not None and noted is not None and now == policy.parsed(noted.ours)


def stored_policy(guard: PolicyGuard, policy: OverriddenPolicy[AnswerT]) -> AnswerT | None:
    """Return the stored value of a policy; None where it is not set.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    return policy.parsed(read_policy(guard.store, guard.namespace, policy.path))


def restore_policy(
    guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], context: ActivityContext, brokers: Brokers
) -> str:
    """Restore a policy, and wait until brokers see it; a value that an operator set since the override stays.

    Args:
        guard: of the namespace.
        policy: to restore.
        context: of the activity.
        brokers: that must see the value.

    Returns:
        A note about an operator's value that stays; empty without one.

    Raises:
        StoreContention: a broker reports another value than the store for half a minute.
    """
    noted = policy.noted(guard.require())
    if noted is None:
        return ""
    note = ""
    # Where the namespace is gone, so is its policy.
    with suppress(StoreNotFound):
        note = compare_and_set_policy(guard.store, guard, policy, Changed(before=noted.ours, ours=noted.before))
        wait_until_known(guard, policy, context, brokers)
    guard.note(**{policy.field: None})
    return note


def wait_until_known(
    guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], context: ActivityContext, brokers: Brokers
) -> None:
    """Wait until every broker that answers reports the value of the store; see `restore_policy`."""

    def lag_of(admin: PulsarAdminReader) -> str:
        seen = policy.parsed(value_at(admin.namespaces.policies(guard.namespace).raw, policy.path))
        return "" if seen == stored_policy(guard, policy) else f"does not see the {policy.name} of {guard.namespace}"

    # A broker that does not answer cannot apply the old value to a client.
    await_on_brokers(context, brokers(), lag_of, silent=set())


def compare_and_set_policy(
    store: CasStore, guard: PolicyGuard, policy: OverriddenPolicy[AnswerT], change: Changed
) -> str:
    """Set a policy if it has the expected value; return a note about another value, which stays.

    Args:
        store: with the policies; that of the guard, or another cluster's.
        guard: of the namespace.
        policy: to set.
        change: the expected value, and the new one.

    Raises:
        StoreNotFound: the namespace is gone.
    """
    note = ""

    def changed(record: Record) -> Record:
        nonlocal note
        now, note = policy.parsed(value_at(record, policy.path)), ""
        if now == policy.parsed(change.before):  # mutant: blue-green/limit-of-an-operator-is-overwritten
            return with_value(record, policy.path, change.ours)
        if now != policy.parsed(change.ours):
            value = now.body() if now else "none"
            note = f"{policy.name} of {guard.namespace}: {value} was not set by this migration, and stays"
        return record

    change_policies(store, guard.namespace, guard.require, changed)
    return note


def without_overrides(raw: Mapping[str, Any], record: Claim | None, *policies: OverriddenPolicy[Any]) -> Record:
    """Return all policies of a namespace, in the broker's JSON, as they are once overrides are restored."""
    policies_json = dict(raw)
    for policy in policies:
        noted = policy.noted(record)
        # mutant: blue-green/limit-of-a-run-that-is-gone
        if noted and value_at(policies_json, policy.path) == noted.ours:
            policies_json = with_value(policies_json, policy.path, noted.before)
    return policies_json
