"""What a migration to a scalable topic takes of the cluster, and gives back: the claim, and policies that are held."""

from __future__ import annotations

from activities.lifecycle.namespace_guard import recorded_namespaces
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.guards import hold_policies, put_policies_back
from clients.cas.store import CasStore
from models.scalable_topic.results import Released


def register(task: TopicTask) -> Released:
    """Take the claim on the cluster, and put policies back that an earlier run left when it was ended.

    Raises:
        ClaimHeld: another migration holds it.
    """
    with task.store() as store:
        task.keeper(store).take()
        return Released(kept=_put_back(task, store))


def guard(task: TopicTask) -> None:
    """GUARD: hold the policies of the namespace."""
    with task.store() as store:
        task.keeper(store).renew()
        held = task.guard(store)
        held.take()
        hold_policies(held, task.context, task.brokers)


def release(task: TopicTask) -> Released:
    """Put the policies back, and give up the claim; harmless where both was done."""
    with task.store() as store:
        keeper = task.keeper(store)
        found = keeper.read()
        if found is None or not found.claim.is_of(task.attempt):
            # It was never taken, or an earlier attempt has given it up.
            return Released()
        keeper.renew()
        kept = _put_back(task, store)
        keeper.release()
        return Released(kept=kept)


def _put_back(task: TopicTask, store: CasStore) -> tuple[str, ...]:
    kept: list[str] = []
    for namespace in recorded_namespaces(store):
        guard = task.guard(store, namespace)
        record = guard.read()
        # Other kinds of migrations keep records of namespaces there as well.
        if record and record.workflow_id == task.attempt.workflow_id:
            kept += put_policies_back(guard, task.context, task.brokers)
    return tuple(kept)
