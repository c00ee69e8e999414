"""The way back of an earlier migration: green, which takes over now, was blue then, and still sends clients away.

A namespace of green keeps its flag until its own batch begins, so that who begins at green's address is sent to where
the others are. Then its topics that were ended are deleted, and the flag is taken off; green serves it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.copy.subscription_copy import read_managed_ledger
from activities.blue_green.listing import namespaces_of
from activities.blue_green.namespace_redirect import record_of, wait_until_cluster_seen, wait_until_seen
from activities.blue_green.policies import INACTIVE, as_before
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.topics import DeletionRules, check_topic, deletion_refusal, topics_of, users_of
from activities.pulsar.overridden_policies import compare_and_set_policy
from activities.pulsar.stored_topics import stored
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreNotFound
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.cluster_flag import read_cluster_flag, set_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from clients.pulsar.wire.position import EARLIEST
from models.blue_green.claims import BlueGreenClaim, NamespaceClaim, Stage
from models.lifecycle.claim import Changed, namespace_record
from spark.blue_green.positions import count_after
from spark.blue_green.tasks import read_record


def flagged_namespaces(store: CasReader, namespaces: Iterable[str]) -> list[str]:
    """Those of green's namespaces whose clients it sends away."""
    return [name for name in namespaces if read_flag(store, name)]


def distribute_cluster_flag(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Have each namespace of green carry the flag that the whole cluster had, so that they come back one by one.

    For clients nothing changes. While the flag of the cluster is set nothing can be created in any namespace.
    """
    green, name = task.green, task.input.green_cluster
    known = green.clusters.migration(name)
    if known is None or not known.migrated or known.migrated_cluster_url is None:
        return
    changed = [own_namespace for own_namespace in _own_namespaces(task) if not read_flag(store, own_namespace)]
    for namespace in changed:
        try:
            set_flag(store, namespace, guard.require, migrated=True)
        except StoreNotFound:
            # Nobody has used it yet; brokers make the record.
            task.change_green(
                look=lambda admin, namespace=namespace: admin.namespaces.policies(namespace),
                fence=guard.require,
                change=lambda admin, namespace=namespace: admin.namespaces.set_migrated(namespace, migrated=True),
            )
    for namespace in changed:
        wait_until_seen(task, namespace, migrated=True, by=task.green_brokers())
    guard.renew(cluster_flag=True)
    _set_cluster_flag(task, guard, store, migrated=False)


def restore_cluster_flag(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Put the flag of the whole cluster back where no namespace has come back."""
    if not guard.require().cluster_flag:
        return
    known = read_cluster_flag(store, task.input.green_cluster)
    stays = all(read_flag(store, own_namespace) for own_namespace in _own_namespaces(task))
    if stays and known and known.migrated_cluster_url:
        _set_cluster_flag(task, guard, store, migrated=True)
    guard.renew(cluster_flag=False)


def was_blue(task: AnyBlueGreenTask) -> bool:
    """Return whether green was the blue cluster of an earlier migration."""
    return task.green.clusters.migration(task.input.green_cluster) is not None


def reopen_namespace(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Let green serve a namespace again, if it sends its clients away; topics that were ended make room.

    Raises:
        StoreConflict: one of these topics has something that would be lost.
    """
    if not was_blue(task):
        return
    delete_terminated(task, guard)
    with task.green_store() as store:
        if read_flag(store, guard.namespace):
            guard.note(green_flag=True)
            set_flag(store, guard.namespace, guard.require, migrated=False)
        if changed := _kept(store, guard.namespace):
            back = Changed(before=changed.ours, ours=changed.before)
            compare_and_set_policy(store, guard, INACTIVE, back)
    wait_until_seen_off(task, guard.namespace)


def wait_until_seen_off(task: AnyBlueGreenTask, namespace: str) -> None:
    """Wait until no broker of green sends a namespace's clients away."""
    wait_until_seen(task, namespace, migrated=False, by=task.green_brokers())


def restore_redirect(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasReader) -> str:
    """Have green send a namespace's clients away as before its batch; why not, where it is used already."""
    if not guard.require().green_flag:
        return ""
    topics = topics_of(task.green, guard.namespace)
    uses = task.each(topics, lambda topic: used_on_green(task, store, topic))
    used = [topic for topic, used in zip(topics, uses, strict=True) if used]
    if not used:
        with task.green_store() as there:
            set_flag(there, guard.namespace, guard.require, migrated=True)
            if changed := _kept(there, guard.namespace):
                compare_and_set_policy(there, guard, INACTIVE, changed)
    guard.note(green_flag=False)
    if not used:
        return ""
    return (
        f"{guard.namespace}: {task.input.green_cluster} serves its clients now, besides {task.input.cluster}: "
        f"{len(used)} topics have clients or messages there, {used[0]} among them"
    )


def used_on_green(task: AnyBlueGreenTask, store: CasReader, topic: TopicName) -> bool:
    """Return whether green has clients of a topic, or messages that are no copies of blue's.

    Args:
        task: the step.
        store: blue's metadata store, which has the records of copies.
        topic: which.
    """
    stats = check_topic(task.green, topic).stats
    if stats is None:
        return False
    consumers = any(sub.consumers for sub in stats.client_subscriptions.values())
    known = read_record(store, topic)
    copied = known.record.positions.last if known else None
    _, there = read_managed_ledger(task.green, topic)
    return bool(stats.publishers) or consumers or count_after(there, copied[1] if copied else EARLIEST) > 0


def clear_remaining_flags(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim]) -> None:
    """Take off what flags green still has, right before blue gets that of the whole cluster: clients would go round."""
    with task.green_store() as store:
        for namespace in flagged_namespaces(store, _own_namespaces(task)):
            set_flag(store, namespace, guard.require, migrated=False)
            wait_until_seen_off(task, namespace)


# Topics that were ended -----------------------------------------------------------------------------------------------


class TerminatedTopic(NamedTuple):
    """A topic of green that an earlier migration has ended.

    Attributes:
        needed_by: who still needs messages of it; empty for nobody.
        refusal: why it must not be deleted; empty where it may.
    """

    needed_by: str
    refusal: str


def terminated_topics(task: AnyBlueGreenTask, namespace: str) -> dict[TopicName, TerminatedTopic]:
    """Return the topics of green that an earlier migration has ended."""
    rules = _rules(task)

    def check(topic: TopicName) -> TerminatedTopic:
        return TerminatedTopic(users_of(task.green, topic), deletion_refusal(rules, topic))

    topics = topics_of(task.green, namespace)
    infos = task.each(topics, lambda topic: stored(task.green, topic))
    ended = [topic for topic, info in zip(topics, infos, strict=True) if info and info.migrated]
    return dict(zip(ended, task.each(ended, check), strict=True))


def delete_terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Delete topics of green that were ended, and that nobody needs: clients cannot send to them.

    Raises:
        StoreConflict: one of them has something that would be lost; nothing is deleted then.
    """
    ended = terminated_topics(task, guard.namespace)
    # mutant: blue-green/failback-deletes-what-retention-keeps
    if refused := [(topic, one.refusal) for topic, one in ended.items() if one.refusal]:
        topic, refusal = refused[0]
        raise StoreConflict(
            f"{len(refused)} topics that were ended on {task.input.green_cluster} must not be deleted: {topic} "
            f"({refusal})"
        )

    def delete(topic: TopicName) -> None:
        with suppress(AdminNotFound):
            task.change_green(
                look=lambda admin: admin.topics.internal_info(topic),
                fence=guard.require,
                change=lambda admin: admin.topics.delete(topic),
            )

    task.each(ended, delete)


def _rules(task: AnyBlueGreenTask) -> DeletionRules:
    return DeletionRules(task.green, task.input.cluster, task.input.discard_retained, "discard_retained")


def after_failback(
    namespace: NamespaceInventory, ended: Container[TopicName], record: NamespaceClaim | None, cluster: str
) -> NamespaceInventory:
    """A namespace of green as it will be when it has come back: what was ended is made again then.

    Args:
        namespace: as it is.
        ended: topics that were ended.
        record: that the migration which left green has of it.
        cluster: green's name.
    """
    topics = {name: topic.after_failback(ended) for name, topic in namespace.topics.items()}
    kept = {name: topic for name, topic in topics.items() if topic.partitions or topic.parts}
    return NamespaceInventory(namespace.name, as_before(namespace.policies, record, cluster), kept)


def delete_old_record(store: CasStore, namespace: str, fence: Callable[[], object]) -> None:
    """Remove the record that green has of a namespace since it left, and which nobody needs any more."""
    node = store.get(path := namespace_record(namespace))
    if node and NamespaceClaim.model_validate_json(node.value).stage is Stage.KEPT:
        fence()
        store.delete(path, node.version)


def _set_cluster_flag(
    task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore, *, migrated: bool
) -> None:
    """Set or take off green's own flag; where it sends clients stays."""
    name = task.input.green_cluster

    def change(now: ClusterMigration | None) -> ClusterMigration:
        return ClusterMigration(migrated=migrated, migrated_cluster_url=now and now.migrated_cluster_url)

    wanted = set_cluster_flag(store, name, guard.require, change)
    wait_until_cluster_seen(task, name, wanted, task.green_brokers())


def _kept(store: CasReader, namespace: str) -> Changed | None:
    """What was changed of a namespace of green when it was left, and stays so until its clients return."""
    record = record_of(store, namespace)
    return record.inactive_topics if record and record.stage is Stage.KEPT else None


def _own_namespaces(task: AnyBlueGreenTask) -> list[str]:
    """Namespaces of green, without those of Pulsar itself."""
    return [name for name in namespaces_of(task.green) if not name.startswith("pulsar/")]
