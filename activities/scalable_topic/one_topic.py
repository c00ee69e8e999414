"""GUARD, COMPLETE and ROLLBACK of one topic, which may be one of many that a migration holds the cluster for."""

from __future__ import annotations

from activities.lifecycle.namespace_guard import RecordGuard
from activities.scalable_topic import cluster
from activities.scalable_topic.auto_scale import set_auto_scale
from activities.scalable_topic.cluster import await_late_requests, give_back, holds_cluster, take
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.flip import flip_of
from activities.scalable_topic.guards import require_held
from activities.scalable_topic.parents import release_parents
from clients.cas.store import CasStore
from clients.pulsar.scalable_records import RecordState, read_scalable, recorded_subscriptions
from models.scalable_topic.claims import Stage, TopicClaim
from models.scalable_topic.results import Released, Undone


def recover(task: TopicTask) -> Released:
    """Bring to its end what a lost run has left; a migration of many topics has done that for all of them."""
    return cluster.recover(task) if task.input.parent is None else Released()


def guard(task: TopicTask) -> Released:
    """GUARD: claim the cluster, hold the policies of the namespace, and lock the topic.

    Where a migration of many topics has done the former two, it only looks whether they stand.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
        StoreConflict: somebody has changed the policies.
    """
    namespace = task.name.namespace_path
    released = take(task, [namespace]) if task.input.parent is None else Released()
    with task.store() as store:
        require_held(task.namespace_guard(store, namespace))
        task.topic_guard(store, task.name).take()
    return released


def complete(task: TopicTask) -> Released:
    """COMPLETE: let streams begin, set the topic's policy, put those of the namespace back, and give up the claim."""
    with task.store() as store:
        if holds_cluster(task, store):
            guard = task.topic_guard(store, task.name)
            guard.take()
            _release_parents(task, store, guard)
            if task.input.auto_scale is not None:
                set_auto_scale(task.admin, task.name, task.input.auto_scale, guard.require)
    return give_back(task) if task.input.parent is None else Released()


def undo(task: TopicTask) -> Undone:
    """ROLLBACK: give everything back, unless the topic turns out to be scalable; then it has to be completed."""
    with task.store() as store:
        if not holds_cluster(task, store):
            return Undone()
        guard = task.topic_guard(store, task.name)
        record = guard.read()
        if record is not None and record.is_of(task.attempt):
            guard.take()
            if record.stage is not Stage.CLAIMED and _is_scalable(task, store, guard):
                return Undone(why=f"{task.name} turned out to be scalable, and nothing makes it regular again")
            guard.release()
    return Undone(kept=give_back(task).kept if task.input.parent is None else ())


def _release_parents(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim]) -> None:
    topic, layout = task.find_topic(task.name), read_scalable(store, task.name).layout
    if topic is not None and layout is not None:
        release_parents(task.admin, topic, layout, recorded_subscriptions(store, task.name), guard.require)


def _is_scalable(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim]) -> bool:
    await_late_requests(task, store, [task.name])
    if read_scalable(store, task.name).state is not RecordState.GOOD:
        return False
    flip_of(task, store, guard, task.name).run()
    return True
