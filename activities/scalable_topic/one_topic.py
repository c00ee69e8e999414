"""GUARD, COMPLETE and ROLLBACK of one topic, which may be one of many that a migration holds the cluster for."""

from __future__ import annotations

from activities.lifecycle.namespace_guard import RecordGuard
from activities.scalable_topic import cluster
from activities.scalable_topic.auto_scale import set_auto_scale
from activities.scalable_topic.children import take_back_children
from activities.scalable_topic.cluster import await_late_requests, give_back, holds_cluster, take
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.flip import flip_of
from activities.scalable_topic.guards import require_held
from clients.cas.store import CasStore
from clients.pulsar.scalable_records import RecordState, read_scalable
from models.scalable_topic.claims import TopicClaim
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
    """COMPLETE: set the policy that the topic shall have, put those of the namespace back, and give up the claim."""
    with task.store() as store:
        if task.input.auto_scale is not None and holds_cluster(task, store):
            guard = task.topic_guard(store, task.name)
            guard.take()
            set_auto_scale(task.admin, task.change_or_never, task.name, task.input.auto_scale, guard.require)
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
            if record.begun and _is_scalable(task, store, guard, record):
                return Undone(why=f"{task.name} turned out to be scalable, and nothing makes it regular again")
            guard.release()
    return Undone(kept=give_back(task).kept if task.input.parent is None else ())


def _is_scalable(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim], record: TopicClaim) -> bool:
    """Whether a topic that brokers were asked to make scalable is so; then it is complete, else nothing is left."""
    await_late_requests(task, store, [task.name])
    match read_scalable(store, task.name).state:
        case RecordState.GOOD:
            flip_of(task, store, guard, task.name).run()
            return True
        case RecordState.BROKEN:
            # Somebody else has written it, and has to say what it is for.
            return False
        case _:
            take_back_children(task.change_or_never, store, task.name, record.partitions, guard)
            return False
