"""GUARD, COMPLETE and ROLLBACK: hold the cluster, its policies and a topic, and release them.

The topic may be one of many, for which another migration holds the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from activities.lifecycle.failed_items import FAILED_ITEMS, forget_failed_items, record_failed_items
from activities.lifecycle.step import step
from activities.pulsar.coverage import require_covered
from activities.pulsar.namespace_guard import RecordGuard
from activities.scalable_topic import cluster
from activities.scalable_topic.auto_scale import set_or_fall_back
from activities.scalable_topic.cluster import holds_cluster, keep_for_grace, release_cluster, require_held, take
from activities.scalable_topic.context import NamespaceTask, TopicTask
from activities.scalable_topic.conversion.name_taken import foreign_layout, name_is_taken
from activities.scalable_topic.conversion.topic import conversion_of
from activities.scalable_topic.topic_list import namespace_of, selected
from clients.cas.store import CasStore
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.failures import FailedItem
from models.scalable_topic.claims import Stage, TopicClaim
from models.scalable_topic.input import cleans_up
from models.scalable_topic.results import Released, Undone


@step(TopicTask, needs_open_run=True)
def recover(task: TopicTask) -> Released:
    """Bring to its end what a lost run has left; a migration of many topics has done that for all of them."""
    return cluster.recover(task) if task.input.parent is None else Released()


@step(TopicTask, needs_open_run=True)
def guard(task: TopicTask, ordered: Mapping[str, str] = MappingProxyType({})) -> Released:
    """GUARD: claim the cluster, hold the policies of the namespace, and lock the topic.

    Where a migration of many topics has done the former two, it only looks whether they stand.

    Args:
        task: an attempt of the migration.
        ordered: types of ordered subscriptions, as they were seen so far.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
        StoreConflict: somebody has changed the policies.
    """
    namespace = task.name.namespace_path
    released = Released()
    if task.input.parent is None:
        require_covered(task.input, lambda census: task.survey(census, [namespace]))
        released = take(task, [namespace])
    with task.cluster.store() as store:
        require_held(task.namespace_guard(store, namespace))
        guard = task.topic_guard(store, task.name)
        record = guard.take()
        types = {**record.types, **ordered}
        if (record.auto_scale, record.types) != (task.input.auto_scale, types):
            # Whoever completes the topic, if this run is lost, needs them: before brokers may merge its segments, and
            # when they have loaded the topic again.
            guard.note(auto_scale=task.input.auto_scale, types=types)
    return released


@step(TopicTask)
def complete(task: TopicTask) -> Released:
    """COMPLETE: set the topic's policy, keep the regular topic for the grace window, give policies and claim back."""
    told: list[str] = []
    fault = ""
    with task.cluster.store() as store:
        if holds_cluster(task, store):
            guard = task.topic_guard(store, task.name)
            if task.input.auto_scale is not None:
                guard.take()
                # What concerns one topic alone must not keep the policies of a namespace held.
                fault = set_or_fall_back(
                    task.admin, task.cluster.change_or_never, task.name, task.input.auto_scale, guard.require
                )
            if cleans_up(task.input):
                # Before the policies of the namespace count again, which let brokers delete what is consumed.
                guard.take()
                # mutant: scalable-topic/nothing-keeps-a-regular-topic-until-the-window-ends
                told += keep_for_grace(task, guard, task.name)
    released = release_cluster(task).kept if task.input.parent is None else ()
    return Released(kept=(*told, *released), faults=(fault,) if fault else ())


@step(TopicTask)
def undo(task: TopicTask) -> Undone:
    """ROLLBACK: give everything back, unless the topic turns out to be scalable; then it must be completed."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Undone()
        guard = task.topic_guard(store, task.name)
        record = guard.read()
        told: tuple[str, ...] = ()
        if record is not None and record.is_of(task.attempt):
            guard.take()
            if record.begun:
                lost = _taken_back(task, store, guard, record)
                if lost is None:
                    return Undone(why=f"{task.name} turned out to be scalable, and nothing makes it regular again")
                told = (lost,) if lost else ()
            # A lock stays where brokers may still have the request, or the record is one of a newer release.
            if not guard.take().begun:
                guard.release()
    released = release_cluster(task).kept if task.input.parent is None else ()
    return Undone(kept=tuple(dict.fromkeys((*told, *released))))


@step(NamespaceTask, needs_open_run=True)
def hold_all(task: NamespaceTask) -> Released:
    """GUARD: claim the cluster, and hold the policies of all namespaces with topics that become scalable."""
    namespaces = sorted({namespace_of(name) for name in selected(task)})
    require_covered(task.input, lambda census: task.survey(census, namespaces))
    released = take(task, namespaces)
    with task.cluster.store() as store:
        forget_failed_items(store)
    return released


@step(NamespaceTask)
def record_failures(task: NamespaceTask, failures: list[FailedItem], offset: int) -> str:
    """Keep failed topics in the metadata store, a node for each call; says where."""
    with task.cluster.store() as store:
        task.keeper(store).renew()
        record_failed_items(store, failures, offset)
    return f"{FAILED_ITEMS} of {task.input.metadata_url}"


@step(NamespaceTask)
def release_all(task: NamespaceTask) -> Released:
    """COMPLETE and ROLLBACK: complete what was left half-finished, put all policies back, and give up the claim."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Released()
    return release_cluster(task)


@step(NamespaceTask, needs_open_run=True)
def recover_all(task: NamespaceTask) -> Released:
    """Bring to its end what a run has left that was terminated, or is lost."""
    return cluster.recover(task)


# Inside ---------------------------------------------------------------------------------------------------------------


def _taken_back(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim], record: TopicClaim) -> str | None:
    """Take back what brokers were asked for; in words what is not as it was.

    Returns:
        None where the topic is scalable; then it is complete.
    """
    conversion = conversion_of(task, store, guard, task.name, record)
    lost = conversion.withdrawal.run(task.name, record.partitions, record.asked)
    if lost is not None:
        return lost
    scalable = read_scalable(store, task.name)
    if scalable.state is RecordState.BROKEN:
        # Those who bring all topics to their end report it.
        return ""
    topic = task.find_topic(task.name)
    if topic is not None and foreign_layout(store, scalable, topic) is not None:
        guard.note(stage=Stage.CLAIMED, asked=())
        return name_is_taken(task.name)
    # VERIFY tells that the regular topic is gone, where it was deleted in the meantime.
    if topic is not None:
        conversion.run()
    return None
