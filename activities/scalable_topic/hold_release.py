"""GUARD, COMPLETE and ROLLBACK: claim the cluster and a topic, override policies, and release them.

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
from models.scalable_topic.results import Released, Undone


@step(TopicTask, needs_open_run=True)
def recover(task: TopicTask) -> Released:
    """Complete what a lost run left; a migration of many topics has done that for all of them."""
    return cluster.recover(task) if task.input.parent is None else Released()


@step(TopicTask, needs_open_run=True)
def guard(task: TopicTask, ordered: Mapping[str, str] = MappingProxyType({})) -> Released:
    """Claim the cluster, override the policies of the namespace, and lock the topic (GUARD).

    If a migration of many topics has done the first two, only check that the policies are still overridden.

    Args:
        task: an attempt of the migration.
        ordered: types of ordered subscriptions, as they were seen so far.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
        StoreConflict: another client has changed the policies.
    """
    namespace = task.name.namespace_path
    released = Released()
    if task.input.parent is None:
        require_covered(task.input, lambda census: task.cluster.survey(census, [namespace]))
        released = take(task, [namespace])
    with task.cluster.store() as store:
        require_held(task.namespace_guard(store, namespace))
        guard = task.topic_guard(store, task.name)
        record = guard.take()
        types = {**record.types, **ordered}
        if (record.auto_scale, record.types) != (task.input.auto_scale, types):
            # A run that completes the topic after this one is lost needs them: before brokers may merge its segments,
            # and after they have loaded the topic again.
            guard.note(auto_scale=task.input.auto_scale, types=types)
    return released


@step(TopicTask)
def complete(task: TopicTask) -> Released:
    """Set the policy of the topic, keep the regular one for the grace window, and release the cluster (COMPLETE)."""
    notes: list[str] = []
    fault = ""
    with task.cluster.store() as store:
        if holds_cluster(task, store):
            guard = task.topic_guard(store, task.name)
            if task.input.auto_scale is not None:
                guard.take()
                # A failure of one topic must not keep the policies of a namespace overridden.
                fault = set_or_fall_back(
                    task.admin, task.cluster.change_or_never, task.name, task.input.auto_scale, guard.require
                )
            if task.input.deletes_source:
                # Before the policies of the namespace apply again, which let brokers delete what is consumed.
                guard.take()
                # mutant: scalable-topic/nothing-keeps-a-regular-topic-until-the-window-ends
                notes += keep_for_grace(task, guard, task.name)
    released = release_cluster(task).notes if task.input.parent is None else ()
    return Released(notes=(*notes, *released), faults=(fault,) if fault else ())


@step(TopicTask)
def undo(task: TopicTask) -> Undone:
    """Undo the flip and release the cluster; a topic that turns out to be scalable must be completed (ROLLBACK)."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Undone()
        guard = task.topic_guard(store, task.name)
        record = guard.read()
        notes: tuple[str, ...] = ()
        if record is not None and record.is_of(task.attempt):
            guard.take()
            if record.begun:
                lost = _withdraw(task, store, guard, record)
                if lost is None:
                    return Undone(why=f"{task.name} turned out to be scalable, and nothing makes it regular again")
                notes = (lost,) if lost else ()
            # A lock stays where brokers may still have the request, or the record is one of a newer release.
            if not guard.take().begun:
                guard.release()
    released = release_cluster(task).notes if task.input.parent is None else ()
    return Undone(notes=tuple(dict.fromkeys((*notes, *released))))


@step(NamespaceTask, needs_open_run=True)
def hold_all(task: NamespaceTask) -> Released:
    """Claim the cluster, and override the policies of all namespaces of the selected topics (GUARD)."""
    namespaces = sorted({namespace_of(name) for name in selected(task)})
    require_covered(task.input, lambda census: task.cluster.survey(census, namespaces))
    released = take(task, namespaces)
    with task.cluster.store() as store:
        forget_failed_items(store)
    return released


@step(NamespaceTask)
def record_failures(task: NamespaceTask, failures: list[FailedItem], offset: int) -> str:
    """Store failed topics in the metadata store, one node per call; return where they are."""
    with task.cluster.store() as store:
        task.keeper(store).renew()
        record_failed_items(store, failures, offset)
    return f"{FAILED_ITEMS} of {task.input.metadata_url}"


@step(NamespaceTask)
def release_all(task: NamespaceTask) -> Released:
    """Complete half-finished topics, restore all policies, and release the claim (COMPLETE and ROLLBACK)."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Released()
    return release_cluster(task)


@step(NamespaceTask, needs_open_run=True)
def recover_all(task: NamespaceTask) -> Released:
    """Complete what a terminated or lost run left."""
    return cluster.recover(task)


# Inside ---------------------------------------------------------------------------------------------------------------


def _withdraw(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim], record: TopicClaim) -> str | None:
    """Withdraw the requests to brokers.

    Returns:
        What was not undone, empty if everything was; None if the topic is scalable, and then it is complete.
    """
    conversion = conversion_of(task, store, guard, task.name, record)
    lost = conversion.withdrawal.run(task.name, record.partitions, record.asked)
    if lost is not None:
        return lost
    scalable = read_scalable(store, task.name)
    if scalable.state is RecordState.BROKEN:
        # The release of the cluster reports it.
        return ""
    topic = task.find_topic(task.name)
    if topic is not None and foreign_layout(store, scalable, topic) is not None:
        guard.note(stage=Stage.CLAIMED, asked=())
        return name_is_taken(task.name)
    # VERIFY reports that the regular topic is gone, if it was deleted in the meantime.
    if topic is not None:
        conversion.run()
    return None
